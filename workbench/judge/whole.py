"""The whole answer to a large problem beside a float64 reference that a device has computed.

The reference and the bound are those of the operation: their NumPy functions compute with arrays of CuPy, too. `xp` is
the module of the arrays: cupy, or numpy in tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..model.arrays import Array, Arrays
from ..model.dtypes import DType
from ..model.problem import Problem, Tier
from ..model.results import WrongElement
from .case import SHOWN, Comparison, _text
from .comparative import allowed, sizes_of
from .drawn import Drawn

ELSEWHERE = 4.0
"""Times the error of the model at drawn rows, which the answer may have at other rows in the comparative tier: those
that are drawn, a part of all, need not have the largest error."""

AT_ONCE = 1 << 26
"""Elements that are compared at once."""


def values_of(array: Array, storage: Any, xp: Any) -> Any:
    """The elements of an array in the storage on a device, bytes; fp32 where the device has no such type."""
    dtype: np.dtype[Any] = array.dtype.numpy
    if array.dtype.is_float and array.dtype.itemsize == 1:
        table = xp.asarray(np.arange(1 << array.dtype.bits, dtype=np.uint8).view(dtype).astype(np.float32))
        return table[strided(array, array.dtype.unpacked(storage), np.dtype(np.uint8), xp)]
    return strided(array, storage, dtype, xp)


def wide(array: Array, values: Any) -> Any:
    """Numbers of a float type in fp32, which holds all of them; others, and fp64, as they are."""
    small = array.dtype.is_float and array.dtype.itemsize < 4
    return values.astype(np.float32) if small and values.dtype != np.float32 else values


def packed(array: Array, values: Any, xp: Any) -> Any:
    """The storage of an array on a device, bytes, with these elements; what lies between them is unwritten."""
    filler = np.frombuffer(array.filler, np.uint8)
    whole = array.size == array.storage_elements * array.dtype.packing
    storage = xp.empty(array.nbytes, np.uint8) if whole else xp.resize(xp.asarray(filler), array.nbytes)
    dtype = array.dtype
    elements = dtype.unpacked(storage)
    if dtype.is_float and dtype.itemsize == 1 and values.dtype != dtype.numpy:
        strided(array, elements, np.dtype(np.uint8), xp)[...] = _codes(dtype, values, xp)
    else:
        strided(array, elements, dtype.numpy, xp)[...] = values.astype(dtype.numpy)
    return dtype.packed(elements)


def strided(array: Array, storage: Any, dtype: np.dtype[Any], xp: Any) -> Any:
    """A view of the storage, bytes, as elements of this type where the array has its own."""
    steps = tuple(step * dtype.itemsize for step in array.element_strides)
    if xp is np:
        return np.lib.stride_tricks.as_strided(storage.view(dtype), array.shape, steps)
    return xp.ndarray(array.shape, dtype, storage.data, steps)


def _sorted(dtype: DType) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The finite numbers of an 8-bit type in order, fp32, and their bits."""
    bits = np.arange(1 << dtype.bits, dtype=np.uint8)
    values = bits.view(dtype.numpy).astype(np.float32)
    bits, values = bits[np.isfinite(values)], values[np.isfinite(values)]
    order = np.argsort(values, kind="stable")
    return values[order], bits[order]


def _nearest(dtype: DType, values: Any, xp: Any) -> Any:
    numbers, _ = _sorted(dtype)
    return xp.searchsorted(xp.asarray((numbers[:-1] + numbers[1:]) / 2), values)


def rounded(dtype: DType, values: Any, xp: Any) -> Any:
    """Numbers rounded to a type; fp32 where the device has no such type."""
    if dtype.is_float and dtype.itemsize == 1:
        return xp.asarray(_sorted(dtype)[0])[_nearest(dtype, values, xp)]
    return values.astype(dtype.numpy)


def _codes(dtype: DType, values: Any, xp: Any) -> Any:
    return xp.asarray(_sorted(dtype)[1])[_nearest(dtype, values, xp)]


@dataclass(frozen=True)
class Whole:
    """A problem with the float64 reference and the bound of every element, on a device."""

    problem: Problem
    expected: Arrays
    bound: Arrays

    @classmethod
    def of(cls, problem: Problem, inputs: Arrays, drawn: Callable[[], Drawn]) -> Whole:
        """Solve the problem where the inputs are, while NumPy solves what was `drawn`. Raises what that raises, and
        whatever the arrays' module raises for what it lacks."""
        expected = problem.reference(inputs)
        if problem.tier is Tier.COMPARATIVE:
            rows = sizes_of(problem, inputs, expected)
            return cls(problem, expected, allowed(problem, rows, drawn().worst, ELSEWHERE, expected))
        return cls(problem, expected, problem.bound(inputs, expected))

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return sum(int(v.nbytes) for arrays in (self.expected, self.bound) for v in arrays.values())

    def compare(self, storage: Mapping[str, Any], xp: Any) -> dict[str, Comparison]:
        """Compare an answer, the storage of outputs as bytes on the device, element by element."""
        found = {}
        for name, array in self.problem.arrays().items():
            if array.output:
                found[name] = self._compare(name, array, values_of(array, storage[name], xp), xp)
        return found

    def _compare(self, name: str, array: Array, got: Any, xp: Any) -> Comparison:
        right, bound = (xp.broadcast_to(a[name], array.shape) for a in (self.expected, self.bound))
        step = max(1, AT_ONCE * array.shape[0] // array.size)
        worst, count, wrong = 0.0, 0, list[WrongElement]()
        for first in range(0, array.shape[0], step):
            at = slice(first, first + step)
            some, expected, allowed_ = got[at], right[at], bound[at]
            ratio = _ratio(some, expected, allowed_, xp)
            largest = float(ratio.max())
            number = int(xp.count_nonzero(xp.isinf(ratio))) if largest == math.inf else 0
            worst = max(worst, largest)
            count += number
            if number and len(wrong) < SHOWN:
                places = xp.argwhere(xp.isinf(ratio))[: SHOWN - len(wrong)]
                for place in (places.get() if hasattr(places, "get") else places).tolist():
                    elements = (float(part[tuple(place)].astype(np.float64)) for part in (some, expected, allowed_))
                    wrong.append(_wrong(name, [place[0] + first, *place[1:]], *elements))
        return Comparison(worst, count, array.size, wrong)


def _ratio(got: Any, right: Any, bound: Any, xp: Any) -> Any:
    """Error over bound of each element, infinite where it is wrong."""
    if xp is not np:
        small = got.dtype.kind not in "iub" and got.dtype.itemsize < 4
        floats = got.dtype in (np.float32, np.float64)
        return _kernel()(got if floats else got.astype(np.float32 if small else np.float64), right, bound)
    values = got.astype(np.float64)
    with np.errstate(all="ignore"):
        away = np.abs(values - right)
        same = (values == right) | (np.isnan(values) & np.isnan(right))
        return np.where(same, 0.0, np.where((away <= bound) & np.isfinite(values), away / bound, np.inf))


@cache
def _kernel() -> Any:
    """The same on a device, in one pass."""
    import cupy

    return cupy.ElementwiseKernel(
        "T got, float64 right, float64 bound",
        "float64 ratio",
        """
        double value = static_cast<double>(got), away = fabs(value - right);
        bool same = value == right || (isnan(value) && isnan(right));
        ratio = same ? 0.0 : (away <= bound && isfinite(value)) ? away / bound : CUDART_INF;
        """,
        "error_over_bound",
        preamble="#define CUDART_INF __longlong_as_double(0x7ff0000000000000ull)",
    )


def _wrong(name: str, index: list[int], got: float, right: float, bound: float) -> WrongElement:
    return WrongElement(name, index, _text(np.float64(got)), _text(np.float64(right)), bound)
