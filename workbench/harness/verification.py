"""Verifies a stage on a device: random problems, two tiers, the smallest failure. Timing comes after, never before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..devices import Device
from ..model.problem import Problem
from ..model.results import Failure, Verdict, Verification
from ..model.stage import Stage
from ..records import environment
from ..sandbox import integrity
from .ahead import Ahead
from .failures import tampering
from .hazards import HazardSearch, look_closer
from .search import Search


def verify(
    stage: Stage[Any],
    device: Device,
    *,
    examples: int = 50,
    seed: int = 0,
    problem: Problem | None = None,
    problems: Sequence[Problem] | None = None,
    again: Sequence[Problem] = (),
    on_problem: Callable[[int], None] | None = None,
    ahead: Ahead | None = None,
) -> Verification:
    """Verify a stage on `examples` random problems that it supports, on these `problems`, or on one given `problem`.

    Every problem is judged in all tiers of the operation (products with a large extent in the last one); one given
    alone in its own. The first one of each tier, if need be enlarged, also serves to show that the operation is sound
    and that the comparison rejects its negative controls. A failure is shrunk to the smallest problem that still
    fails. Those of `again`, which have failed before, come first, each in its own tier; they do not count.
    `on_problem` is called with the number of problems done. Where work is done `ahead`, the device is that of a
    cluster's workers, and the outcome the same. Raises CompilerUnavailable.

    On a GPU a failure is looked at in the emulator as well, which may name it, and meanwhile the stage solves a few
    small problems there: a hazard that is found fails it. A stage whose Python code changes what judges it has failed
    whatever else it does (TAMPERING); what it has changed is put back.
    """
    watch = integrity.Watch()
    search = Search(stage, device, examples if problems is None else len(problems), on_problem, ahead=ahead)
    there: list[str] = []
    beside: HazardSearch | None = None
    hazard: Failure | None = None
    try:
        with environment.few_threads():
            if device.name == "cuda" and problems is None:
                beside = HazardSearch(stage, seed)
            result = search.run(seed, problem, problems, again)
            if beside and result.verdict is Verdict.PASS:
                hazard = beside.found()
    except integrity.Tampered as error:
        there, result = list(error.args), Verification(Verdict.TAMPERING, seed)
    finally:
        if ahead:
            ahead.cancel()
        if beside:
            beside.close()
    if changed := there + watch.restore():
        result.verdict = Verdict.TAMPERING
        result.failure = tampering(stage, changed)
    elif hazard:
        result.verdict, result.failure = hazard.verdict, hazard
    elif device.name == "cuda" and result.failure:
        look_closer(stage, result.failure)
        result.verdict = result.failure.verdict
    return result
