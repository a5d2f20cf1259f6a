"""NumPy on the CPU, by the host's clock: a time of its own kind, which no time of a GPU is divided by."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...model.arrays import Arrays
from ...model.operation import Baseline
from ...model.problem import Problem

KIND = "numpy"

MOST_FLOPS = 3e11
"""Work of a problem beyond which NumPy is not asked: some seconds a sample."""

SECONDS, LEAST, MOST = 0.3, 3, 30
"""When sampling stops: after so long with the least, or with the most."""


def refuses(baseline: Baseline[Any] | None, problem: Problem) -> str | None:
    """Why NumPy is not timed on the problem, None where it is."""
    if baseline is None:
        return "there is no NumPy baseline of this operation"
    if problem.cost.flops > MOST_FLOPS:
        return f"NumPy is not asked for more than {MOST_FLOPS / 1e9:.0f} GFLOP"
    return baseline.refuses(problem)


def solved(baseline: Baseline[Any], problem: Problem, inputs: Arrays) -> Callable[[], Arrays]:
    """What solves the problem, its outputs by name.

    Real numbers become fp32 first, which is not timed: NumPy has no fast arithmetic for bf16 and fp16."""
    given = {n: v if v.dtype.kind in "iub" or v.itemsize > 4 else v.astype(np.float32) for n, v in inputs.items()}
    arguments = baseline.arguments(given)
    outputs = [name for name, array in problem.arrays().items() if array.output]
    return lambda: baseline.outputs(baseline.call(problem, **arguments), outputs)


def timed(solve: Callable[[], Arrays]) -> list[float]:
    """Samples in microseconds."""
    samples: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(samples) < LEAST or (len(samples) < MOST and time.perf_counter() < until):
        started = time.perf_counter()
        solve()
        samples.append(1e6 * (time.perf_counter() - started))
    return samples
