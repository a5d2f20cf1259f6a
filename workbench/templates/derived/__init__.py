"""derived: what gemm computes, until `reference.py` says what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from workbench.kernels.gemm import GEMM, GemmProblem

from . import reference

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class DerivedProblem(GemmProblem):
    """A problem of gemm, solved in another way or followed by something else."""

    def reference(self, inputs: Arrays) -> Arrays:
        return reference.derived(super().reference(inputs))


def _own(problem: GemmProblem) -> DerivedProblem:
    return DerivedProblem(**{f.name: getattr(problem, f.name) for f in fields(problem)})


DERIVED = replace(
    GEMM,
    name="derived",
    summary="as gemm",
    problem=DerivedProblem,
    problems=lambda size, edges: GEMM.problems(size, edges).map(_own),
    suite=tuple(map(_own, GEMM.suite)),
    fastest=(),
    stages=[],
    baselines=[],
    sources=None,
)
