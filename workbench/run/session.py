"""Runs stages one after the other on one device and keeps the record: verify, then time what passed, save, next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..model.problem import Problem
from ..model.results import Run, StageResult, Verdict
from ..model.stage import Stage
from ..records import environment, versions
from ..report.evidence import passed
from ..toolchain.compiler import source_digest, source_of
from . import verifier
from .interrupted import Interrupted
from .request import Listener, Request
from .timer import Timer
from .verifier import Verifier


@dataclass
class Session(Request):
    """One run in progress: what was asked for, and the record of what was found so far."""

    def __post_init__(self) -> None:
        self.run = Run(self.device.info(), environment.describe(), self.seed, self.examples, finished=False)
        continues = self.folder and not self.fresh
        earlier = self.folder.interrupted(self.run, self.any_seed) if self.folder and continues else []
        if self.any_seed and earlier:
            self.seed = self.run.seed = earlier[0].seed
            earlier = [old for old in earlier if old.seed == self.seed]
        self._interrupted = Interrupted(earlier, self.run)
        self._verifier = Verifier(self, self.run, self._interrupted)
        self.kept: versions.Version | None = None
        """The version of the last stage that passed, where it was kept."""

    @cached_property
    def _timer(self) -> Timer:
        return Timer(self, self.run, self._interrupted, self._save)

    @property
    def trouble(self) -> dict[str, str]:
        """Stages that passed and could not be timed on a problem that they support, with the reason."""
        return self._timer.trouble if "_timer" in vars(self) else {}

    @property
    def taken_over(self) -> int:
        """Verifications and measurements of an interrupted run that were not made again."""
        return self._interrupted.taken_over

    @property
    def relied_on(self) -> int:
        """Verifications of earlier runs that were not made again."""
        return self._verifier.relied_on

    @property
    def saved(self) -> Path | None:
        """The folder where the finished stages are, None where nothing is saved."""
        return self.folder.results if self.folder and self.run.stages else None

    def expect(self, stages: Iterable[Stage[Any]]) -> None:
        """These stages will be asked for, in this order: a cluster may begin. Raises ClusterUnavailable."""
        self._verifier.expect(stages)

    def stage(self, stage: Stage[Any], listener: Listener) -> StageResult:
        """Verify a stage, time it where that was asked for and it passed, and save. Raises CompilerUnavailable."""
        before = self._verifier.snapshot(stage)
        if self.timed:
            self._timer.expect(stage)
        result = self._verifier.result(stage, listener)
        if self.only_problem(stage):
            result.verification.examples = 1
        self.run.stages.append(result)
        self._keep(stage, before, result)
        if self.timed and result.verification.verdict is Verdict.PASS:
            try:
                self._verifier.settle()
                self._timer.stage(stage, result, listener)
                self._keep(stage, before, result)
            except BaseException:  # on disk it stays with what has been timed
                self.run.stages.pop()
                raise
        self._save()
        return result

    def take_over(self, stages: Iterable[Stage[Any]]) -> list[tuple[Stage[Any], StageResult]]:
        """Begin with what interrupted runs have found of stages that passed, on however many problems; what it is."""
        taken: list[tuple[Stage[Any], StageResult]] = []
        for stage in stages:
            with contextlib.suppress(OSError):  # verification says so
                found = self._interrupted.at_any_depth(stage, source_digest(source_of(stage)))
                if found and found.verification.verdict is Verdict.PASS:
                    taken.append((stage, found))
                    self._interrupted.take_over(stage)
        self.run.stages += [result for _, result in taken]
        if taken:
            self._save()
        return taken

    def enter(self, result: StageResult) -> None:
        """Put a stage that was verified elsewhere into the record, in the place of what was found of it, and save."""
        before = self._of(result)
        if before and before.source_sha256 == result.source_sha256:
            result.measurements, result.untimed = before.measurements, before.untimed
        self.run.stages = [*(s for s in self.run.stages if s is not before), result]
        if self.folder:
            self.folder.save(self.run, only=result.operation)

    def time(
        self,
        stage: Stage[Any],
        result: StageResult,
        listener: Listener,
        problems: Collection[Problem] | None,
        enough: Callable[[], bool],
    ) -> None:
        """Time a stage of the record that has passed, on the suite or on these problems, until it is enough."""
        self.run.stages = [*(s for s in self.run.stages if s is not result), result]
        self._timer.stage(stage, result, listener, problems, enough)
        self._save()

    def _of(self, result: StageResult) -> StageResult | None:
        """What the record has of a stage."""
        alike = (s for s in self.run.stages if (s.operation, s.stage) == (result.operation, result.stage))
        return next(alike, None)

    def peers(self, operation: str, listener: Listener) -> None:
        """Time the other implementations of an operation, and NumPy on the CPU, and save. Raises Fault."""
        self._timer.peers(operation, listener)

    def finish(self) -> None:
        """The run has been through all that it was asked for: there is nothing in it to continue."""
        self.run.finished = True
        if self.run.stages:
            self._save()

    def ok(self) -> bool:
        """Whether something was verified, nothing failed, and all that should be timed was."""
        return passed(self.run) and not self.trouble

    def _keep(self, stage: Stage[Any], before: versions.Snapshot | None, result: StageResult) -> None:
        if before and result.verification.verdict is Verdict.PASS:
            self.kept = verifier.keep(stage, before, result, self.run)

    def _save(self, unfinished: StageResult | None = None) -> None:
        if self.folder:
            self.folder.save(self.run, unfinished)
