"""The search of one verification: which problems are tried, and the smallest one that fails."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..catalogue import registry
from ..devices import Device, Fault
from ..judge import forensics, soundness
from ..judge.case import Case, quiet
from ..model.operation import Operation
from ..model.origin import BadOperation
from ..model.problem import Problem, Tier
from ..model.results import Failure, Verdict, Verification
from ..model.stage import Stage
from ..toolchain.compiler import CompileError
from . import solving
from .ahead import Ahead
from .drawing import Failed, draw, size_of
from .failures import ANY, replay_command, unusable
from .launching import solve
from .repeats import Turns
from .solving import Judgement

SHRINK_SECONDS = 30.0
"""Longest search for a smaller failing problem, after the first failure was found."""


UNSHRINKABLE = (Verdict.COMPILE_ERROR, Verdict.WEAK_CHECK, Verdict.OPERATION_ERROR, Verdict.TIMEOUT)
"""Verdicts for which neither a smaller problem is sought nor the same one tried again: the first three are not about
one problem, and every try of the last would last until the deadline."""


@dataclass
class Search:
    """What one verification has seen so far."""

    stage: Stage[Any]
    device: Device
    wanted: int
    on_problem: Callable[[int], None] | None = None
    seen: set[Problem] = field(default_factory=set)
    tiers: Counter[str] = field(default_factory=Counter)
    covered: dict[str, Counter[str]] = field(default_factory=dict)
    unsupported: Counter[str] = field(default_factory=Counter)
    worst: float = 0.0
    controlled: set[Tier] = field(default_factory=set)
    wrong_rejected: int = 0
    ahead: Ahead | None = None
    turns: Turns = field(default_factory=Turns)
    failures: dict[Problem, Failure] = field(default_factory=dict)
    last: Failure | None = None
    give_up: float = float("inf")

    def wants_more(self) -> bool:
        """Whether there were too few problems so far, or a failure is being made smaller."""
        return len(self.seen) < self.wanted or bool(self.failures)

    def supported(self, problem: Problem) -> bool:
        """Whether the stage takes the problem; why not is counted."""
        reason = self.stage.supports(problem, self.device.architecture)
        if reason:
            self.unsupported[reason] += 1
        return reason is None

    def try_problem(self, problem: Problem, tiers: tuple[Tier, ...] = ()) -> bool:
        """Judge a supported problem in the given tiers, or in all of its operation; whether there should be more.

        Raises Failed.
        """
        if problem in self.seen:
            return self.wants_more()
        twice = self.turns.take(problem)
        for tier in tiers or problem.tiers:
            self._try_tier(problem.with_tier(tier), twice)
        self.seen.add(problem)
        for name in (*problem.words(), "distribution"):
            self.covered.setdefault(name, Counter())[problem.text(name)] += 1
        if self.on_problem:
            self.on_problem(len(self.seen))
        return self.wants_more()

    def _try_large(self, problem: Problem) -> bool:
        """`try_problem`, of products in the last tier alone: sizes go wrong in all of them."""
        return self.try_problem(problem, problem.tiers[-1:] if len(problem.extents) > 2 else ())

    def judge(self, problem: Problem, twice: bool) -> Judgement:
        """`run_problem`, here or where work is done ahead."""
        if self.ahead:
            return self.ahead.judge(problem, twice)
        return solving.run_problem(self.stage, self.device, problem, twice=twice)

    def try_again(self, problem: Problem) -> None:
        """Judge a problem in its own tier that has failed before, where it can be taken. Raises Failed.

        It leaves no trace where it passes: a record does not depend on what was remembered where it was made.
        """
        if self.stage.supports(problem, self.device.architecture) is None:
            failure, _ = self.judge(problem, twice=True)
            if failure:
                self.failures[problem] = self.last = failure
                raise Failed

    def _sought(self) -> bool:
        """Whether such a failure is made smaller as only a problem that is solved twice has."""
        return self.last is not None and self.last.verdict in (Verdict.NOT_DETERMINISTIC, Verdict.STALE)

    def _check_controls(self, problem: Problem) -> Failure | None:
        """What is wrong with the comparison, asked once a tier, on a problem that is no large one."""
        try:
            if not soundness.small(problem):
                return None
            self.controlled.add(problem.tier)
            message, rejected = soundness.weakness(problem)
        except BadOperation as error:
            return unusable(self.stage, self.device, str(problem), error)
        self.wrong_rejected += rejected
        if not message:
            return None
        return Failure(Verdict.WEAK_CHECK, str(problem), message, replay_command(self.stage, self.device, str(problem)))

    def _try_tier(self, problem: Problem, twice: bool) -> None:
        failure = self.failures.get(problem)
        if failure is None:
            if time.monotonic() > self.give_up:
                return  # enough shrinking: Hypothesis keeps the smallest failure known so far
            failure, worst = self.judge(problem, twice=twice or self._sought())
            self.tiers[problem.tier] += 1
            self.worst = max(self.worst, 0.0 if failure else worst)
            if failure is None and problem.tier not in self.controlled:
                failure = self._check_controls(problem)
        if failure:
            self.failures[problem] = self.last = failure
            self.give_up = min(self.give_up, time.monotonic() + SHRINK_SECONDS)
            if failure.verdict in UNSHRINKABLE:
                self.give_up = 0.0
            raise Failed

    def run(
        self,
        seed: int,
        problem: Problem | None = None,
        problems: Sequence[Problem] | None = None,
        again: Sequence[Problem] = (),
    ) -> Verification:
        """Try the problems that `verify` is asked to, and say what came of it. Raises CompilerUnavailable."""
        stage, device = self.stage, self.device
        operation: Operation[Any] = registry.operation_of(stage)
        started = time.monotonic()
        try:
            for failed_before in again:
                self.try_again(failed_before)
            if problem is not None:
                if self.supported(problem):
                    self.try_problem(problem, (problem.tier,))
            elif problems is not None:
                for given in filter(self.supported, problems):
                    self.try_problem(given)
            else:
                self.turns = Turns.of(size_of(operation, device.name))
                for edge_case in filter(self.supported, stage.edge_cases[: self.wanted]):
                    self.try_problem(edge_case)
                if self.wants_more():
                    left = self.wanted - len(self.seen)
                    draw(stage, device.name, self.supported, self.try_problem, left, seed, self._try_large)
        except Failed:
            pass  # the failure is in `last`
        except BadOperation as error:
            self.last = unusable(stage, device, ANY, error)
        if self.last and self.last.verdict not in UNSHRINKABLE:
            repeated, _ = self.judge(self._failing(operation, self.last), twice=True)
            if repeated is None:
                self.last.message += " (not every time: the same problem then passed)"
            elif self.last.verdict is Verdict.MISMATCH:
                self._look()
        if self.last is None and self.seen and problems is None:
            self.last = self._many()
        return Verification(
            verdict=self.last.verdict if self.last else Verdict.PASS if self.seen else Verdict.UNSUPPORTED,
            seed=seed,
            problems=len(self.seen),
            tiers=dict(self.tiers),
            covered={name: dict(counts) for name, counts in self.covered.items()},
            unsupported=dict(self.unsupported),
            worst_error=self.worst,
            wrong_rejected=self.wrong_rejected,
            seconds=round(time.monotonic() - started, 3),
            failure=self.last,
        )

    def _many(self) -> Failure | None:
        """The failure of one of the smaller problems, solved many times, in the last of its tiers."""
        by_work = sorted(self.seen, key=lambda problem: (problem.cost.flops, str(problem)))
        chosen = by_work[len(by_work) // 4]
        if chosen.cost.flops > soundness.MOST_FLOPS:
            return None
        call = self.ahead.call if self.ahead else _here
        failure: Failure | None = call(solving.run_many, self.stage, self.device, chosen.with_tier(chosen.tiers[-1]))
        return failure

    def _failing(self, operation: Operation[Any], failure: Failure) -> Problem:
        """The problem of a failure: the one that was judged, which may be of another class than the operation's."""
        tried = (problem for problem in self.failures if str(problem) == failure.problem)
        return next(tried, None) or operation.problem.parse(failure.problem)

    def _look(self) -> None:
        """Say what the mismatch looks like, on the largest failing problem: on the smallest, many look the same."""
        smallest = self.last
        mismatches = {p: f for p, f in self.failures.items() if f.verdict is Verdict.MISMATCH and f.wrong}
        if smallest is None or not mismatches:
            return
        problem, failure = max(mismatches.items(), key=lambda item: item[1].element_count)
        call = self.ahead.call if self.ahead else _here
        seen = call(_diagnose, self.stage, self.device, problem, failure.wrong[0].output)
        if seen is None:
            return  # the mismatch stands without an explanation
        where = "" if failure.problem == smallest.problem else f" (seen in {failure.problem})"
        smallest.looks_like, smallest.map, smallest.cells = seen.looks_like + where, seen.map, seen.cells


def _here(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _diagnose(stage: Stage[Any], device: Device, problem: Problem, output: str) -> forensics.Diagnosis | None:
    try:
        case = Case.of(problem)
        after = solve(stage, device, case)
        with quiet(problem):
            return forensics.diagnose(case, output, after, lambda other: solve(stage, device, other))
    except (CompileError, Fault, BadOperation):
        return None
