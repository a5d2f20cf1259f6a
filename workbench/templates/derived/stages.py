"""The stages of derived. They run in a process of their own: no other module imports this one."""

from __future__ import annotations

from collections.abc import Mapping

from workbench import Launch, Plan
from workbench.kernels.gemm import GEMM

from . import DERIVED, DerivedProblem

FIRST = GEMM.stages[0]


@DERIVED.stage(
    "naive",
    source="derived/1_naive.cu",
    idea="FILL IN",
    supports=FIRST.accepts,
    parameters=FIRST.parameters,
    alignment=FIRST.alignment,
    architecture=FIRST.architecture,
    specific=FIRST.specific,
)
def naive(p: DerivedProblem, size: Mapping[str, int]) -> Launch | Plan:
    return FIRST.plan_for(p, size)
