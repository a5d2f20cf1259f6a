"""One problem solved by a stage on a device, and judged."""

from __future__ import annotations

from typing import Any

from ..devices import Device, Fault
from ..judge import soundness
from ..judge.case import Case, quiet
from ..model.origin import BadOperation
from ..model.problem import Problem
from ..model.results import Failure, Verdict
from ..model.stage import Stage
from ..toolchain.compiler import CompileError
from .failures import replay_command, unusable
from .invariants import broken_invariant
from .launching import solve
from .repeats import many, repeat

Judgement = tuple[Failure | None, float]
"""What is wrong with the answer to a problem, and the worst error / bound."""


def run_problem(stage: Stage[Any], device: Device, problem: Problem, *, twice: bool = False) -> Judgement:
    """Solve one problem and judge the outcome: the failure or None, and the worst error / bound.

    `twice`: a right answer is asked for again, on fresh memory, and has to be the same (unless the stage says it is not
    deterministic), and then one for other inputs in that memory. Raises CompilerUnavailable; everything that is the
    stage's fault is in the failure.
    """
    try:
        return run_case(stage, device, Case.of(problem), twice=twice)
    except BadOperation as error:
        return unusable(stage, device, str(problem), error), 0.0


def run_case(stage: Stage[Any], device: Device, case: Case, *, twice: bool = False) -> Judgement:
    """`run_problem` for a problem whose inputs and reference are there already."""
    problem, worst = case.problem, 0.0
    try:
        after = solve(stage, device, case)
    except CompileError as error:
        failure: Failure | None = Failure(Verdict.COMPILE_ERROR, str(problem), str(error), "")
    except Fault as fault:
        failure = Failure(fault.verdict, str(problem), str(fault), "", hazards=[*fault.hazards])
    except MemoryError as error:
        message = f"there is not enough memory for what the stage asks for: {error}"
        failure = Failure(Verdict.OUT_OF_MEMORY, str(problem), message, "")
    else:
        failure, worst = case.judge(lambda name: after[name])
        if failure is None and (changed := case.changed_inputs(after)):
            message = f"the kernel wrote to its input {', '.join(changed)}"
            failure = Failure(Verdict.INPUT_CHANGED, str(problem), message, "")
        if failure and failure.verdict is Verdict.MISMATCH:
            try:
                with quiet(problem):
                    soundness.check(case)
                    soundness.check_bound(case, case.answers(after))
            except BadOperation as error:
                failure = unusable(stage, device, str(problem), error)
        if failure is None and twice:
            failure = repeat(stage, device, case, after) or broken_invariant(stage, device, case, after)
    if failure:
        failure.replay = replay_command(stage, device, failure.problem)
    return failure, worst


def run_many(stage: Stage[Any], device: Device, problem: Problem) -> Failure | None:
    """What is wrong where a problem that has been solved is solved many times."""
    try:
        failure = many(stage, device, Case.of(problem))
    except BadOperation as error:
        return unusable(stage, device, str(problem), error)
    if failure:
        failure.replay = replay_command(stage, device, failure.problem)
    return failure
