"""Why a call is solved by the stage that solves it."""

from __future__ import annotations

from typing import Any

from ..model.calls import Function
from ..model.problem import Problem
from .choice import Explanation, explained
from .prepared import Prepared

ARCHITECTURE = 90
"""Compute capability, times ten, of a device that is named and not there."""


def explain(function: Function, *arrays: Any, **options: Any) -> Explanation:
    """Which stage solves a call of `function` with these arguments, why, and what time is predicted.

    Instead of arrays there may be a problem, or its text, and the full name of a `device`: then no GPU is needed.
    `print` shows the stage and every other one, with its predicted time or why it cannot take the problem. Times are
    predicted where the operation has a cost model; they are of a cold L2. Raises what a call raises; launches nothing.

    >>> from workbench import ops
    >>> found = ops.explain(ops.gemm, "3000x3000x3000,dtype=bf16,out=bf16", device="NVIDIA H200")
    >>> found.stage.name, found.why
    ('stream_k', 'the cost model predicts the least time')
    """
    if len(arrays) == 1 and isinstance(arrays[0], str | Problem):
        problem = function.operation.problem.parse(arrays[0]) if isinstance(arrays[0], str) else arrays[0]
        return explained(function.among, problem, ARCHITECTURE, device=options.get("device", ""))
    prepared: Prepared = function.prepare(*arrays, **options)
    return explained(function.among, prepared.problem, *prepared.asked)
