"""Random numbers that are drawn on a device, by a generator that problems call as they call NumPy's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ..judge import whole
from ..model.dtypes import DType

MIX = """
__device__ unsigned long long mixed(unsigned long long x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
"""
"""Numbers of 64 bits that nothing tells from random ones, of a counter. Source: Steele, Lea and Flood, Fast Splittable
Pseudorandom Number Generators, 2014 (SplitMix64)."""

NORMAL = """
  unsigned long long bits = mixed(seed + i);
  float u = ((bits >> 40) + 1) * 5.9604645e-8f, v = (bits & 0xffffff) * 5.9604645e-8f;
  z = sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
"""
"""Source: Box and Muller, A Note on the Generation of Random Normal Deviates, 1958."""

UNIFORM = "z = (mixed(seed + i) >> 11) * 1.1102230246251565e-16;"
INTEGER = "z = low + (long long)(mixed(seed + i) % (unsigned long long)(high - low));"


@cache
def _kernel(arguments: str, result: str, body: str) -> Any:
    import cupy

    return cupy.ElementwiseKernel(arguments, result, body, f"drawn_{result.split()[0]}", preamble=MIX)


class DeviceGenerator:
    """What problems use of `numpy.random.Generator`, with arrays of CuPy. Whatever else is asked for is missing."""

    most = 1 << 62
    """Elements of an array that are drawn: all of them."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._state = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])

    def _drawn(self, size: Any, dtype: Any, arguments: str, result: str, body: str, *values: Any) -> Any:
        import cupy

        shape = (size,) if isinstance(size, int | np.integer) else tuple(size)
        made = cupy.empty(shape, dtype)
        _kernel(f"uint64 seed{arguments}", result, body)(np.uint64(self._state), *values, made)
        self._state = (self._state + math.prod(shape)) % (1 << 64)
        return made

    def standard_normal(self, size: Any, dtype: Any = np.float64) -> Any:
        """Normally distributed numbers, of the resolution of fp32."""
        return self._drawn(size, np.float32, "", "float32 z", NORMAL).astype(dtype, copy=False)

    def random(self, size: Any, dtype: Any = np.float64) -> Any:
        """Numbers from 0 to 1."""
        return self._drawn(size, np.float64, "", "float64 z", UNIFORM).astype(dtype, copy=False)

    def uniform(self, low: float, high: float, size: Any = None) -> Any:
        """Numbers from low to high; one alone is a number of Python."""
        drawn = self.random(1 if size is None else size) * (high - low) + low
        return float(drawn[0]) if size is None else drawn

    def integers(self, low: int, high: int, size: Any, dtype: Any = np.int64) -> Any:
        """Whole numbers from low on, below high."""
        bounds = (np.int64(low), np.int64(high))
        drawn = self._drawn(size, np.int64, ", int64 low, int64 high", "int64 z", INTEGER, *bounds)
        return drawn.astype(dtype, copy=False)

    def rounded(self, values: Any, dtype: DType) -> Any:
        """Numbers rounded to a type; fp32 where CuPy has no such type."""
        import cupy

        return whole.rounded(dtype, values, cupy)
