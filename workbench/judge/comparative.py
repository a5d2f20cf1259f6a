"""The comparative tier: the error of a kernel beside that of a NumPy model in the same precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from ..model.arrays import Array, Arrays
from ..model.declared import BadOperation, arrays_like
from ..model.problem import Problem

SAMPLES, MOST_PROBLEMS = 64, 64
"""Errors of the model that are seen for each row at least, and of so many problems at most."""

OTHER_SEEDS = 1_000_003
"""Where the seeds of those problems begin: nobody draws them."""


def twice_the_model(problem: Problem, inputs: Arrays, expected: Arrays) -> Arrays:
    """The bound of the comparative tier: twice the largest error that the operation's model makes in a row, and one
    rounding of the result.

    Short rows show too few errors to say how large they are: then the same rows of other inputs are looked at as well.
    Raises BadOperation.
    """
    arrays = {name: array for name, array in problem.arrays().items() if array.output}
    worst = _row_errors(problem, inputs, expected, arrays)
    shortest = min(expected[name].size // worst[name].size for name in arrays)
    for number in range(min(-(-SAMPLES // shortest), MOST_PROBLEMS) - 1):
        other = dataclasses.replace(problem, seed=problem.seed + OTHER_SEEDS + number)
        given = other.inputs()
        found = _row_errors(other, given, other.reference(given), arrays)
        worst = {name: np.maximum(worst[name], found[name]) for name in arrays}
    return {
        name: 2 * worst[name] + array.dtype.unit_roundoff * np.abs(expected[name]) + array.dtype.smallest
        for name, array in arrays.items()
    }


def _row_errors(problem: Problem, inputs: Arrays, expected: Arrays, arrays: dict[str, Array]) -> Arrays:
    """The largest error of the model in each row of each output, with a last axis of one."""
    model: Callable[[Arrays], Arrays | None] = problem.model
    answer = model(inputs)
    if answer is None:
        raise BadOperation("an operation with a comparative tier has to define model()")
    shapes = {name: array.shape for name, array in arrays.items()}
    answer = arrays_like("model of the operation", answer, shapes)
    found = {}
    for name, array in arrays.items():
        got, right = array.dtype.rounded(answer[name]).astype(np.float64), expected[name]
        if (np.isfinite(right) & ~np.isfinite(got)).any():
            raise BadOperation(f"model of the operation gives {name} that is not finite where the reference is")
        with np.errstate(invalid="ignore"):
            error = np.where(got == right, 0.0, np.abs(got - right))
        found[name] = np.nan_to_num(error, nan=0.0).max(axis=-1, keepdims=True) if error.ndim else error
    return found
