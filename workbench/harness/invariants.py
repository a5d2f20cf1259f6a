"""What holds of right answers beside their error, asked of a stage."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..devices import Device, Fault
from ..judge.case import Case
from ..model.arrays import Arrays, Distribution
from ..model.origin import BadOperation, declared
from ..model.problem import Tier
from ..model.results import Failure, Verdict
from ..model.stage import Stage
from .launching import solve


def _with_related(case: Case, inputs: Arrays, moved: Callable[[Arrays], Arrays] | None) -> Arrays:
    """The bound of a case, as much larger as that of related inputs is, if those are harder and have one: element by
    element where it is known which belongs to which, else by their largest."""
    found = dict(case.bound)
    with contextlib.suppress(BadOperation):  # there may be NaN where answers do not depend on it
        of_related = case.bound_for(inputs)
        if moved:
            return {name: np.maximum(case.bound[name], related) for name, related in moved(of_related).items()}
        for name, related in of_related.items():
            most, others = float(case.bound[name].max(initial=0.0)), float(related.max(initial=0.0))
            if others > most > 0:
                found[name] = case.bound[name] * (others / most)
    return found


def broken_invariant(stage: Stage[Any], device: Device, case: Case, after: Arrays) -> Failure | None:
    """The failure of an answer of which something does not hold that holds of every right one. Raises BadOperation."""
    if case.problem.tier is Tier.EXACT or case.problem.distribution is Distribution.NON_FINITE:
        return None  # the answer is the right one to the last bit; or has NaN, of which nothing holds
    first = case.answers(after)
    with declared("invariants of the operation"):
        invariants = case.problem.invariants()
    for invariant in invariants:
        second, about = first, "the answer"
        with declared(f"the invariant `{invariant.name}` of the operation"):
            inputs = invariant.related(case.inputs) if invariant.related else None
        if inputs is not None:
            about = "the answers to the problem's inputs and to related ones"
            try:
                second = case.answers(solve(stage, device, dataclasses.replace(case, inputs=inputs)))
            except Fault as fault:
                message = f"on the related inputs of the invariant `{invariant.name}`: {fault}"
                return Failure(fault.verdict, str(case.problem), message, "", hazards=[*fault.hazards])
        with declared(f"the invariant `{invariant.name}` of the operation"):
            holds = invariant.holds(first, second, case.bound)
            if not holds and inputs is not None:
                holds = invariant.holds(first, second, _with_related(case, inputs, invariant.moved))
        if not holds:
            message = f"the invariant `{invariant.name}` does not hold of {about}, though every element is near enough"
            return Failure(Verdict.MISMATCH, str(case.problem), message, "")
    return None
