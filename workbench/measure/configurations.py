"""A configuration of a stage is verified, and timed interleaved with the declared one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import harness
from ..devices import Device, Fault, machine_for
from ..judge import soundness
from ..judge.case import Case
from ..model.arrays import Arrays
from ..model.problem import Problem, Tier
from ..model.results import Conditions, Failure, Timing
from ..model.stage import Stage
from ..records.tuned import Trial, TuningError
from ..report import derived
from ..toolchain import compiler
from ..toolchain.compiler import CompileError, compile_stage
from . import plausibility, timing
from .judged import solved
from .timing import Effort

SHORT = Effort(
    0.01,
    seconds=0.05,
    least=4,
    enough=8,
    most=16,
    warm_up_seconds=0.02,
    most_warm_up_seconds=0.02,  # interleaved, so that a clock that is not steady does no harm
)
"""How long a configuration is timed at first."""

SMALL_PROBLEMS = 6
"""Verified with every configuration, beside the problem that is tuned for."""

KNOWN_ANSWERS = 4
"""Most right answers that are kept for comparison."""


def compile_ahead(stage: Stage[Any], configuration: Mapping[str, int], problem: Problem, architecture: int) -> str:
    """Put a compiled source into the cache, in a process of the pool; what the compiler says against it."""
    try:
        compile_stage(stage.with_parameters(configuration), problem, architecture)
    except CompileError as error:
        return str(error)
    return ""


def race(plans: Sequence[Any], effort: Effort, l2_bytes: int) -> list[list[float]]:
    """Cold samples in microseconds of bound plans that are timed interleaved, in the process that has the device."""
    effort = dataclasses.replace(effort, sustained_seconds=0.0)  # nobody would read those
    contestants = {str(number): plan.enqueue for number, plan in enumerate(plans)}
    timings: dict[str, Timing] = timing.measure(contestants, l2_bytes, effort, Conditions())
    for plan in plans:
        plan.wait()  # and look at the red zones
    return [timings[name].cold_us for name in contestants]


def small_problems(stage: Stage[Any], device: Device, problem: Problem, seed: int) -> list[Problem]:
    """Problems for every configuration: solved by the very binary that is tuned, so of the types and layouts of
    `problem`, and exact where the operation can be."""
    words = {name: getattr(problem, name) for name in problem.words()}
    drawn = harness.drawn(stage, device, examples=4 * SMALL_PROBLEMS, seed=seed)
    tier = Tier.EXACT if Tier.EXACT in problem.tiers else problem.tiers[0]
    alike = (dataclasses.replace(p, **words, tier=tier) for p in drawn)
    supported = (p for p in alike if stage.supports(p) is None)
    return list(dict.fromkeys(supported))[:SMALL_PROBLEMS]


@dataclass
class Judge:
    """Verifies configurations of a stage on the `problems`, and times them on one, on a device.

    Raises TuningError where there is nothing to verify them with."""

    stage: Stage[Any]
    device: Device
    problem: Problem
    problems: Sequence[Problem]
    answers: list[Arrays] = field(default_factory=list)
    """Right ones to the problem that is tuned for."""
    rival: Any = None
    """The declared parameters on the device: everything is timed interleaved with them."""

    def __post_init__(self) -> None:
        self.stage = self.stage.on(machine_for(self.stage, self.device))  # one that another process found by name
        info = self.device.info()
        self.timed = self.device.times
        self.l2_bytes, self.roofline_us = info.l2_bytes, plausibility.roofline_bound(self.problem, info)[0]
        small = self.problem.cost.flops <= soundness.MOST_FLOPS
        self.case = solved(self.problem) if self.timed or small else None
        self.storage = self.case.storage() if self.case else {}
        self.cases = [Case.of(p) for p in self.problems]
        if self.case and not self.timed:
            self.cases.append(self.case)
        if not self.cases:
            raise TuningError(
                f"{self.stage.spec} takes no small problem like {self.problem}: nothing could be verified"
            )

    def try_(self, configuration: dict[str, int]) -> Trial:
        """Compile a configuration unless that is done, and judge it."""
        return self.judge(
            configuration, compile_ahead(self.stage, configuration, self.problem, self.stage.home.architecture)
        )

    def judge(self, configuration: dict[str, int], complaint: str) -> Trial:
        """Verify a configuration that has been compiled, then time it. `complaint` is the compiler's."""
        declared = {name: self.stage.parameters[name] for name in configuration}
        unready = self.timed and self.rival is None and configuration != declared
        if unready and (reason := self.try_(declared).reason):
            return Trial(configuration, reason=f"with the declared parameters: {reason}")
        stage = self.stage.with_parameters(configuration)
        if reason := complaint or self._unfit(stage) or self._wrong(stage):
            return Trial(configuration, reason=reason)
        if not self.timed:
            return Trial(configuration)
        try:
            plan = self._bind(stage)
        except Fault as fault:
            return Trial(configuration, reason=f"{fault.verdict}: {fault}")
        keep = False
        try:
            plan.run()
            if failure := self._mismatch(plan):
                return Trial(configuration, reason=f"{failure.verdict} on {self.problem}: {failure.message}")
            if self.rival is None:
                self.rival, keep = plan, True
            samples = self._race([self.rival] if keep else [self.rival, plan], SHORT)
        except Fault as fault:
            return Trial(configuration, reason=f"{fault.verdict} on {self.problem}: {fault}")
        finally:
            if not keep:
                plan.close()
        first, last = derived.median(samples[0]), derived.median(samples[-1])
        if last < self.roofline_us:
            return Trial(
                configuration, reason=f"{last:.2f} us: less than the roofline bound, {self.roofline_us:.2f} us"
            )
        return Trial(configuration, last, last / first)

    def _unfit(self, stage: Stage[Any]) -> str:
        """Why the compiled kernels cannot be launched, or would be slow whatever is timed."""
        for used in compiler.resources(stage, self.problem):
            if not used.blocks_per_sm:
                return f"does not fit: {used.limiter}"
            if used.spill_bytes:
                return f"spills {used.spill_bytes} bytes of registers"
        return ""

    def _wrong(self, stage: Stage[Any]) -> str:
        for number, case in enumerate(self.cases):
            if stage.supports(case.problem) is None:
                failure = harness.run_case(stage, self.device, case, twice=number == 0).failure
                if failure:
                    return f"{failure.verdict} on {case.problem}: {failure.message}"
        return ""

    def _mismatch(self, plan: Any) -> Failure | None:
        """What is wrong with the answer to the problem that is tuned for, after a run. Most configurations add up in
        the same order: an answer with the bits of one that was right needs no comparison, which takes long."""
        assert self.case is not None
        after = {name: plan.read(name) for name, array in self.case.arrays.items() if array.output}
        if any(all(_same_bits(after[name], known[name]) for name in after) for known in self.answers):
            return None
        failure, _ = self.case.judge(after.__getitem__)
        if failure is None:
            self.answers = [*self.answers[1 - KNOWN_ANSWERS :], after]
        return failure

    def _bind(self, stage: Stage[Any]) -> Any:
        assert self.case is not None
        compiled = self.device.compile(stage, self.problem)
        return self.device.bind(compiled, stage.plan(self.problem), self.case.arrays, self.storage, self.problem.seed)

    def _race(self, plans: Sequence[Any], effort: Effort) -> list[list[float]]:
        seconds = len(plans) * (effort.seconds + effort.most_warm_up_seconds)
        seconds += 4 * effort.least * len(plans) * self.problem.cost.slow_seconds
        device: Any = self.device
        samples: list[list[float]] = device.together(plans, race, effort, self.l2_bytes, seconds=seconds)
        return samples

    def at_length(self, configurations: Sequence[Mapping[str, int]]) -> list[float]:
        """Cold medians in microseconds of the declared parameters and of these, timed interleaved. Raises Fault."""
        plans = [self.rival]
        try:
            for configuration in configurations:
                plans.append(self._bind(self.stage.with_parameters(configuration)))
            return [derived.median(samples) for samples in self._race(plans, Effort())]
        finally:
            for plan in plans[1:]:
                plan.close()

    def close(self) -> None:
        """Free what is on the device."""
        if self.rival is not None:
            self.rival.close()


def _same_bits(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return np.array_equal(one.view(np.uint8), other.view(np.uint8))
