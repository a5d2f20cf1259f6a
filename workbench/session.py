"""Runs stages one after the other on one device and keeps the record: verify, then time what passed, save, next."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from . import environment, harness, occupancy, registry
from .compiler import CompileError, source_digest
from .devices import Device, Fault
from .evidence import failed
from .operation import SOURCES, Problem, Stage
from .results import Failure, Resources, ResultsError, Run, StageResult, Verdict, Verification
from .store import Folder

ALL = "every problem"
"""Key of `StageResult.untimed` for a reason that holds for the whole suite."""


class Listener(Protocol):
    """Is told how far a stage has come."""

    def verified(self, problems: int) -> None:
        """So many problems of the stage have been verified."""

    def timing(self, label: str) -> None:
        """The problem with this label is being timed."""


@dataclass
class Session:
    """One run in progress. `problems` holds the one problem asked for, by operation; none means the usual ones."""

    device: Device
    examples: int
    seed: int
    timed: bool = False
    problems: Mapping[str, Problem] = field(default_factory=dict)
    folder: Folder | None = None
    trouble: dict[str, str] = field(default_factory=dict)
    """Stages that passed and could not be timed on a problem that they support, with the reason."""

    def __post_init__(self) -> None:
        self.run = Run(self.device.info(), environment.describe(), self.seed, self.examples)

    @property
    def saved(self) -> Path | None:
        """Where the finished stages are, None where nothing is saved."""
        return self.folder.latest if self.folder and self.run.stages else None

    def stage(self, stage: Stage[Any], listener: Listener) -> StageResult:
        """Verify a stage, time it where that was asked for and it passed, and save. Raises CompilerUnavailable."""
        if getattr(self.device, "lost", False):
            result = self._in_fresh_process(stage)
        else:
            result = self._in_this_process(stage, listener)
        self.run.stages.append(result)
        if self.folder:
            self.folder.save(self.run)
        return result

    def ok(self) -> bool:
        """Whether something was verified, nothing failed, and all that should be timed was."""
        verdicts = [s.verification for s in self.run.stages]
        passed = any(v.verdict is Verdict.PASS for v in verdicts)
        return passed and not self.trouble and not any(failed(v) for v in verdicts)

    def _in_this_process(self, stage: Stage[Any], listener: Listener) -> StageResult:
        # where times follow, random problems come first even when only one problem is timed
        problem = None if self.timed else self.problems.get(stage.operation)
        try:
            digest = source_digest(stage.path)
        except OSError as error:  # a source that is not there must not cost the other stages
            digest, verification = "", self._unreadable(stage, error)
        else:
            verification = harness.verify(
                stage,
                self.device,
                examples=self.examples,
                seed=self.seed,
                problem=problem,
                on_problem=listener.verified,
            )
        if verification.failure:
            # records are published: where the checkout lies on this machine is nobody's business
            verification.failure.message = verification.failure.message.replace(f"{SOURCES.parent}{os.sep}", "")
        result = StageResult(stage.operation, stage.name, stage.idea, stage.source, digest, verification)
        if verification.verdict is Verdict.PASS:
            result.resources = self._resources(stage)
            if self.timed:
                self._time(stage, result, listener)
        elif self.timed:
            result.untimed[ALL] = f"verification ended with {verification.verdict}"
        return result

    def _suite(self, stage: Stage[Any]) -> tuple[Problem, ...]:
        chosen = self.problems.get(stage.operation)
        return (chosen,) if chosen else registry.operations()[stage.operation].suite

    def _resources(self, stage: Stage[Any]) -> list[Resources]:
        try:
            return occupancy.suite_resources(stage, self._suite(stage))
        except (CompileError, KeyError):
            return []  # a variant that no verified problem needed; timing it says what is wrong

    def _time(self, stage: Stage[Any], result: StageResult, listener: Listener) -> None:
        from . import timing

        suite = self._suite(stage)
        try:
            result.measurements, result.untimed = timing.bench(
                stage,
                self.device,  # type: ignore[arg-type]  # only a CUDA device is ever timed
                problems=suite,
                on_problem=listener.timing,
            )
        except Fault as fault:
            result.untimed = {ALL: str(fault)}
        supported = {p.label for p in suite if stage.supports(p, self.device.architecture) is None} | {ALL}
        for label, reason in result.untimed.items():
            if label in supported:
                self.trouble.setdefault(stage.spec, f"{label}: {reason}")

    def _unreadable(self, stage: Stage[Any], error: OSError) -> Verification:
        message = f"cannot read the source {stage.path}: {error.strerror or error}"
        replay = f"workbench verify {stage.spec} --device {self.device.name}"
        failure = Failure(Verdict.COMPILE_ERROR, "any", message, replay)
        return Verification(Verdict.COMPILE_ERROR, self.seed, failure=failure)

    def _in_fresh_process(self, stage: Stage[Any]) -> StageResult:
        """A failed launch can end a process's CUDA context for good; the stages after it get a process each."""
        problem = self.problems.get(stage.operation)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "workbench", "bench" if self.timed else "verify", stage.spec, "--json"]
            command += ["--device", self.device.name, "--seed", str(self.seed), "--examples", str(self.examples)]
            command += ["--problem", str(problem)] if problem else []
            command += ["--output", folder] if self.timed else []
            done = subprocess.run(command, capture_output=True, check=False)
            answer = Path(folder) / "answer.json"
            answer.write_bytes(done.stdout)
            try:
                (result,) = Run.load(answer).stages
            except (ResultsError, ValueError):
                message = f"the process that verified it ended without a result: {done.stderr.decode(errors='replace')}"
                replay = f"workbench verify {stage.spec} --device {self.device.name}"
                failure = Failure(Verdict.LAUNCH_ERROR, "any", message.strip(), replay)
                verification = Verification(Verdict.LAUNCH_ERROR, self.seed, failure=failure)
                result = StageResult(stage.operation, stage.name, stage.idea, stage.source, "", verification)
            if self.timed and done.returncode and not failed(result.verification):
                self.trouble.setdefault(stage.spec, "; ".join(f"{k}: {v}" for k, v in result.untimed.items()))
        return result
