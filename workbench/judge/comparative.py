"""The comparative tier: the error of a kernel beside that of a NumPy model in the same precision."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from ..model.arrays import Arrays
from ..model.dtypes import FP32
from ..model.errors import BadOperation, arrays_like
from ..model.problem import Problem

Values = np.ndarray[Any, Any]

SAMPLES, FEWEST = 64, 16
"""Rows at least of which the model's error is seen: errors within one row have causes in common. Where they are so long
that all problems together have more than `MOST` bytes or operations, fewer do."""

MOST = 2**26

OTHER_SEEDS = 1_000_003
"""Where the seeds of further problems begin, which are looked at for that: nobody draws them."""


def twice_the_model(problem: Problem, inputs: Arrays, expected: Arrays) -> Arrays:
    """The bound of the comparative tier: twice the largest error of the operation's model, one rounding, and
    those of subnormal terms.

    A row is what lies along the last axis, or an element of an output that is `elementwise`. Its error is taken
    relative to its size, which is its largest element, by the problem's `magnitudes` where it has them, or the median
    of those of all rows that are not 0 where that is larger; the largest over all rows counts. So a row of small
    results, an average of many values, may have small errors only.
    Problems of few rows show too few errors: then the same problem is looked at with other seeds. The largest error of
    fewer than `SAMPLES` rows is smaller, and counts for more. Raises BadOperation."""
    rows = rows_of(problem, inputs, expected)
    return allowed(problem, rows, *worst_of_all(problem, [rows]), expected)


def worst_of_all(problem: Problem, seen: Sequence[Rows]) -> tuple[Worst, float]:
    """The largest error of the rows of problems like this one, and of as many others with other seeds as `problems_for`
    has, until there are `SAMPLES`; and what times it is allowed. Raises BadOperation."""
    several = [min(int(np.count_nonzero(sizes)) for sizes, _ in rows.values()) for rows in seen]
    had, each, others = max(1, sum(several)), max(1, several[0]), list[Rows]()
    for number in range(min(problems_for(problem, each) - 1, -(-max(0, SAMPLES - had) // each))):
        other = dataclasses.replace(problem, seed=problem.seed + OTHER_SEEDS + number)
        given = other.given()
        others.append(rows_of(other, given, other.reference(given)))
    times = 2 * _largest_error(SAMPLES) / _largest_error(min(SAMPLES, had + each * len(others)))
    return worst_of([*seen, *others]), times


def problems_for(problem: Problem, rows: int | None = None) -> int:
    """The problems of which errors are seen, this one included: it has so many rows, or as many as its outputs have."""
    if rows is None:
        outputs = {name: array for name, array in problem.arrays().items() if array.output}
        rows = min(math.prod(a.shape if name in problem.elementwise else a.shape[:-1]) for name, a in outputs.items())
    least, wanted = (-(-count // max(1, rows)) for count in (FEWEST, SAMPLES))
    return min(wanted, max(least, int(MOST // max(1, problem.cost.flops, problem.cost.bytes))))


def _largest_error(count: int) -> float:
    """What the largest of so many normal errors exceeds in 99 of 100 cases, in standard deviations."""
    return NormalDist().inv_cdf((1 + 0.01 ** (1 / count)) / 2)


Rows = dict[str, tuple[Values, Values]]
"""By output: the size of each row and the error of the model in it."""

Worst = dict[str, tuple[float, float]]
"""By output: the largest error of the model over the size of its row, and the size of the median row."""


def worst_of(seen: Sequence[Rows]) -> Worst:
    """The largest error, relative to the size of its row, of all rows that were seen."""
    found = {}
    for name in seen[0]:
        all_sizes = np.concatenate([rows[name][0].ravel() for rows in seen])
        some = all_sizes[all_sizes > 0]
        typical = float(np.median(some)) if some.size else 0.0
        worst = 0.0
        for sizes, errors in (rows[name] for rows in seen):
            worst = max(worst, float((errors / np.maximum(sizes, typical or 1.0)).max(initial=0.0)))
        found[name] = worst, typical
    return found


def allowed(problem: Problem, rows: Rows, worst: Worst, times: float, expected: Arrays) -> Arrays:
    """The error that elements may have: `times` the largest of the model, or a rounding in fp32 where that is larger,
    relative to the size of their row, one rounding, and those of subnormal terms. The arrays are of NumPy or CuPy."""
    found = {}
    for name, (error, typical) in worst.items():
        dtype, sizes = problem.arrays()[name].dtype, rows[name][0]
        own = np.where(sizes > 0, np.maximum(sizes, typical), 0.0)  # what is 0 is so exactly: masked rows
        if dtype.unit_roundoff >= FP32.unit_roundoff:  # a model whose sums are exact allows another order of them
            error = max(error, FP32.unit_roundoff)
        least = dtype.smallest + (problem.addends - 1) * FP32.smallest
        found[name] = times * error * own + dtype.unit_roundoff * np.abs(expected[name]) + least
    return found


def sizes_of(problem: Problem, inputs: Arrays, expected: Arrays) -> Rows:
    """The size of each row, without the error of a model. The arrays are of NumPy or CuPy."""
    magnitudes, found = problem.magnitudes(inputs, expected), {}
    for name, right in expected.items():
        sizes = np.where(np.isfinite(right), magnitudes.get(name, np.abs(right)), 0.0)
        sizes = sizes if name in problem.elementwise else _largest(sizes)
        found[name] = sizes, sizes
    return found


def rows_of(problem: Problem, inputs: Arrays, expected: Arrays) -> Rows:
    """The largest element and the largest error of the problem's model in each row of each output: of one that is not
    elementwise with a last axis of one. Raises BadOperation."""
    shapes = {name: array.shape for name, array in problem.arrays().items() if array.output}
    answer = problem.model(inputs)
    if answer is None:
        raise BadOperation("an operation with a comparative tier has to define model()")
    answer = arrays_like("model of the operation", answer, shapes)
    magnitudes = problem.magnitudes(inputs, expected)
    magnitudes = arrays_like("magnitudes of the operation", magnitudes, {name: shapes[name] for name in magnitudes})
    found = {}
    for name in shapes:
        got, right = (values[name].astype(np.float64, copy=False) for values in (answer, expected))
        finite = np.isfinite(right)
        if (finite & ~np.isfinite(got)).any():
            raise BadOperation(f"model of the operation gives {name} that is not finite where the reference is")
        with np.errstate(invalid="ignore"):
            errors = np.abs(got - right)
        sizes = magnitudes[name] if name in magnitudes else np.abs(right)
        if not finite.all():
            errors, sizes = (np.where(finite, values, 0.0) for values in (errors, sizes))
        alone = name in problem.elementwise
        found[name] = (sizes, errors) if alone else (_largest(sizes), _largest(errors))
    return found


def _largest(values: Values) -> Values:
    rows: Values = values.max(axis=-1, keepdims=True) if values.ndim else values
    return rows
