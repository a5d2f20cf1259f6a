"""Negative controls for operations that declare none: what broken kernels of any kind answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .arrays import Array, Arrays

Values = np.ndarray[Any, Any]

NOTICEABLE = 0.25
"""Of the root mean square of an output: an element that is off by so much has to be noticed."""


def default_controls(arrays: Mapping[str, Array], inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
    """Answers in which one output is wrong, and the others are right, by what is wrong."""
    outputs = [name for name, array in arrays.items() if array.output]
    found: dict[str, Arrays] = {}
    for name in outputs:
        prefix = f"{name}: " if len(outputs) > 1 else ""
        for what, values in _spoiled(expected[name]):
            found[prefix + what] = {**expected, name: values}
        for given, values in inputs.items():
            if values.shape == expected[name].shape:
                what = "left as it was" if given == name else f"{given} returned"
                found[prefix + what] = {**expected, name: values.astype(expected[name].dtype)}
    for one, other in itertools.pairwise(outputs):
        if expected[one].shape == expected[other].shape:
            found[f"{one} and {other} swapped"] = {**expected, one: expected[other], other: expected[one]}
    return found


def _spoiled(right: Values) -> Iterator[tuple[str, Values]]:
    yield "all zeros", np.zeros_like(right)
    if right.ndim:
        missing = right.copy()
        missing[-1] = 0
        if np.abs(right[-1]).max(initial=0) > NOTICEABLE * _size(right):  # a square near 0 may be as good as none
            yield ("last row missing" if right.ndim > 1 else "last element missing"), missing
        yield "shifted by one", np.roll(right, 1, axis=-1)
    yield "one element off", _one_off(right)


def _one_off(right: Values) -> Values:
    """One element in the middle is wrong by `NOTICEABLE` of the size of the others; an integer by one."""
    answer, at = right.copy(), right.size // 2
    flat = answer.reshape(-1)
    if right.dtype.kind == "b":
        flat[at] = not flat[at]
    elif right.dtype.kind in "iu":
        flat[at] += 1
    else:
        flat[at] += NOTICEABLE * (_size(right) or 1.0)
    return answer


def _size(right: Values) -> float:
    """The root mean square of real numbers that are finite; 0 of others."""
    finite = np.abs(right[np.isfinite(right)]) if right.dtype.kind == "f" else np.zeros(0)
    largest = finite.max(initial=0.0)  # squares of large numbers would overflow
    return float(largest * np.sqrt(np.mean((finite / largest) ** 2))) if largest > 0 else 0.0
