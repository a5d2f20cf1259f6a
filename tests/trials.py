"""A launch of a kernel that uses a device header, and what it has to store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.devices import Device
from workbench.model.arrays import Array
from workbench.model.dtypes import BF16, E4M3, E5M2, FP16, FP32, UINT32, DType
from workbench.model.launch import Argument, Launch, Plan
from workbench.toolchain.compiler import Compiled, translate_source

SOURCES = Path(__file__).parent / "headers"
TYPES = (BF16, FP16, FP32)
HALVES = (BF16, FP16)


@dataclass(frozen=True)
class Trial:
    """One launch of a kernel in `SOURCES`, after those `before`, what it is given, and what it has to store: NaN (in
    integers, what was there before) where nothing is to be. Rows of what it stores are `leading` elements apart, where
    that is more than their length, and nothing is to be stored between them. It is compiled for an `architecture`."""

    source: str
    launch: Launch
    inputs: Mapping[str, np.ndarray[Any, Any]]
    expected: Mapping[str, np.ndarray[Any, Any]]
    defines: Mapping[str, str | int] = field(default_factory=dict)
    before: tuple[Launch, ...] = ()
    leading: int | None = None
    architecture: int = 90

    def compiled(self) -> Compiled:
        return translate_source(SOURCES / self.source, self.defines, self.architecture)

    def run(self, device: Device) -> None:
        """Skips what a GPU has no instructions for."""
        if device.times and self.architecture != device.architecture:
            pytest.skip(f"the GPU is not of compute capability {self.architecture / 10:.1f}")
        arrays = {name: Array(values.shape, _dtype(values)) for name, values in self.inputs.items()}
        stored = {name: Array(v.shape, _dtype(v), self.leading, output=True) for name, v in self.expected.items()}
        arrays |= stored
        storage = {name: array.poisoned() for name, array in arrays.items()}
        storage |= {name: np.ascontiguousarray(values).reshape(-1) for name, values in self.inputs.items()}
        bound = device.bind(self.compiled(), Plan((*self.before, self.launch), expected_seconds=1), arrays, storage)
        try:
            bound.run()
            for name, values in self.expected.items():
                found, array, where = bound.read(name), stored[name], f"{self.source} {self.launch} {name}"
                for part, wanted in ((array.view(found), values), (found, array.pack(values))):  # and between rows
                    np.testing.assert_array_equal(_comparable(part), _comparable(wanted), err_msg=where)
        finally:
            bound.close()


def _comparable(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floating-point numbers of a type of which NumPy knows what NaN is."""
    return values if values.dtype == UINT32.numpy else values.astype(np.float32)


def _dtype(values: np.ndarray[Any, Any]) -> DType:
    return next(dtype for dtype in (*TYPES, E4M3, E5M2, UINT32) if dtype.numpy == values.dtype)


def launch(kernel: str, threads: int, *args: Argument, blocks: int = 1, cluster: int = 1) -> Launch:
    return Launch(kernel, (blocks, 1, 1), (threads, 1, 1), args, cluster=(cluster, 1, 1))


def whole(shape: tuple[int, ...], dtype: DType = FP32, seed: int = 0) -> np.ndarray[Any, Any]:
    """Small whole numbers, whose products and sums are exact in any order."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype.numpy)


def distinct(shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Values that are all different (up to 256 of them in bf16), and not in order."""
    count = int(np.prod(shape))
    bits = {2: np.uint16, 4: np.uint32}[dtype.itemsize]
    one = np.ones(1, dtype.numpy).view(bits)[0]
    return (
        (one + np.random.default_rng(1).permutation(count).astype(bits)).astype(bits).view(dtype.numpy).reshape(shape)
    )


def nothing(shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """An array in which nothing has been stored."""
    return Array(shape, dtype).poisoned().reshape(shape)
