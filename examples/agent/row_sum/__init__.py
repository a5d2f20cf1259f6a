"""The sum of every row of a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench import Launch, Size, simple_operation


@simple_operation(
    "row_sum",
    "x: rows columns fp32 -> y: rows fp32",
    terms="columns",
    suite=("16384x4096",),
    emulator_size=Size(extent=600, work=20_000),
)
def row_sum(x: Any) -> Any:
    """The sum of every row of a matrix."""
    return x.sum(axis=1)


@row_sum.stage("naive", source="row_sum/1_naive.cu", idea="a block takes a row", parameters={"THREADS": 128})
def naive(p: Any, size: Mapping[str, int]) -> Launch:
    return Launch("row_sum", (p.rows, 1, 1), (size["THREADS"], 1, 1), ("x", "y", np.int32(p.columns)))
