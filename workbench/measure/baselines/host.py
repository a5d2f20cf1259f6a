"""NumPy on the CPU, by the host's clock: a time of its own kind, which no time of a GPU is divided by."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...model.arrays import Arrays
from ...model.problem import Problem
from . import rows

SOLVERS: dict[str, Callable[[Any, Arrays], Any]] = {
    **rows.SOLVERS,
    "gemm": lambda p, x: x["A"] @ (x["B"] if p.layout == "nn" else x["B"].T),
    "gemm_fp8": lambda p, x: x["a_scale"][:, None] * (x["A"] @ x["B"].T) * x["b_scale"],
    "matvec": lambda p, x: x["B"] @ x["a"],
    "vector_add": lambda p, x: x["a"] + x["b"],
}
"""The operation's output, whose name is that of the problem's only one, or all outputs by name."""

MOST_FLOPS = 3e11
"""Work of a problem beyond which NumPy is not asked: some seconds a sample."""

SECONDS, LEAST, MOST = 0.3, 3, 30
"""When sampling stops: after so long with the least, or with the most."""


def refuses(operation: str, problem: Problem) -> str | None:
    """Why NumPy is not timed on the problem, None where it is."""
    if operation not in SOLVERS:
        return "there is no NumPy baseline of this operation"
    if problem.cost.flops > MOST_FLOPS:
        return f"NumPy is not asked for more than {MOST_FLOPS / 1e9:.0f} GFLOP"
    return None


def timed(operation: str, problem: Problem, inputs: Arrays) -> tuple[Arrays, list[float]]:
    """The answer in fp32, by output name, and samples in microseconds.

    Inputs become fp32 first, which is not timed: NumPy has no fast arithmetic for bf16 and fp16.
    """
    solve, outputs = SOLVERS[operation], [name for name, array in problem.arrays().items() if array.output]
    given = {name: values.astype(np.float32) for name, values in inputs.items()}
    answer = solve(problem, given)  # the first call starts the threads of the library behind it
    samples: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(samples) < LEAST or (len(samples) < MOST and time.perf_counter() < until):
        started = time.perf_counter()
        answer = solve(problem, given)
        samples.append(1e6 * (time.perf_counter() - started))
    return answer if isinstance(answer, dict) else dict(zip(outputs, [answer], strict=True)), samples
