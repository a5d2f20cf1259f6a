"""Files with host code run as they are: what is for the host is taken out, and every line keeps its number."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulation import line_of
from host_files import (
    ARCHITECTURES,
    COMMON_H,
    DISPATCH,
    EXTENSION,
    GENERATED,
    GROUPS,
    OVERLOADS,
    ROW_MEANS,
    SGEMM,
    STRUCTS,
    THRUST,
    TMA,
)

from workbench.emulator import CompileError, LaunchError, Output, Report, TensorMapOf, launch, load
from workbench.emulator.host_code.declarations import declarations
from workbench.emulator.host_code.tokens import SourceError, tokens_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 40)).astype(np.float32)
Run = Callable[[Path, dict[str, int]], tuple[Report, Any, Any]]


def _row_means(file: Path, defines: dict[str, int]) -> tuple[Report, Any, Any]:
    y = np.zeros(4, np.float32)
    report = launch(file, "row_means_kernel1", 2, 64, [Output(y), X, 4, 40], defines=defines)
    return report, y, X.mean(axis=1)


def _sgemm(file: Path, defines: dict[str, int]) -> tuple[Report, Any, Any]:
    a, b, c = (RNG.standard_normal((32, 32)).astype(np.float32) for _ in range(3))
    expected = 2 * (a @ b) + c
    args = [32, 32, 32, 2.0, a, b, 1.0, c]
    return launch(file, "sgemm_tiled<16, 16, 16>", (2, 2), 256, args, defines=defines), c, expected


def _extension(file: Path, defines: dict[str, int]) -> tuple[Report, Any, Any]:
    y = np.zeros_like(X)
    accessors = [
