"""The comparative tier: the error of a kernel beside that of a NumPy model in the same precision."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..model.arrays import Array, Arrays
from ..model.declared import BadOperation, arrays_like
from ..model.problem import Problem

Values = np.ndarray[Any, Any]

SAMPLES = 64
"""Rows at least of which the model's error is seen: errors within one row have causes in common."""

OTHER_SEEDS = 1_000_003
"""Where the seeds of further problems begin, which are looked at for that: nobody draws them."""


def twice_the_model(problem: Problem, inputs: Arrays, expected: Arrays) -> Arrays:
    """The bound of the comparative tier: twice the largest error of the operation's model, and one rounding.

    A row is what lies along the last axis. Its error is taken relative to its size, which is its largest element, or
    the median of those of all rows that are not 0 where that is larger; the largest over all rows counts. So a row of
    small results, an average of many values, may have small errors only. Problems of few rows show too few errors:
    then the same problem is looked at with other seeds. Raises BadOperation.
    """
    arrays = {name: array for name, array in problem.arrays().items() if array.output}
    sizes = {name: _sizes(expected[name]) for name in arrays}
    worst = _relative_errors(problem, inputs, expected, arrays)
    fewest = max(1, min(int(np.count_nonzero(size)) for size in sizes.values()))
    for number in range(-(-SAMPLES // fewest) - 1):
        other = dataclasses.replace(problem, seed=problem.seed + OTHER_SEEDS + number)
        given = other.inputs()
        found = _relative_errors(other, given, other.reference(given), arrays)
        worst = {name: max(worst[name], found[name]) for name in arrays}
    return {
        name: 2 * worst[name] * sizes[name] + array.dtype.unit_roundoff * np.abs(expected[name]) + array.dtype.smallest
        for name, array in arrays.items()
    }


def _sizes(expected: Values) -> Values:
    """The size of each row, with a last axis of one."""
    finite = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    rows: Values = finite.max(axis=-1, keepdims=True) if finite.ndim else finite
    some = rows[rows > 0]
    sizes: Values = np.where(rows > 0, np.maximum(rows, np.median(some)), 0.0) if some.size else rows
    return sizes


def _relative_errors(problem: Problem, inputs: Arrays, expected: Arrays, arrays: dict[str, Array]) -> dict[str, float]:
    """The largest error of the model in a row, relative to the row, in each output. Raises BadOperation."""
    answer = problem.model(inputs)
    if answer is None:
        raise BadOperation("an operation with a comparative tier has to define model()")
    answer = arrays_like("model of the operation", answer, {name: array.shape for name, array in arrays.items()})
    found = {}
    for name in arrays:
        got, right, size = answer[name].astype(np.float64), expected[name], _sizes(expected[name])
        if (np.isfinite(right) & ~np.isfinite(got)).any():
            raise BadOperation(f"model of the operation gives {name} that is not finite where the reference is")
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.where((got == right) | ~np.isfinite(right), 0.0, np.abs(got - right) / np.where(size > 0, size, 1.0))
        found[name] = float(error.max(initial=0.0))
    return found
