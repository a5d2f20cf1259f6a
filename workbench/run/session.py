"""Runs stages one after the other on one device and keeps the record: verify, then time what passed, save, next."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from .. import harness
from ..catalogue import registry
from ..devices import Device
from ..model.operation import Operation
from ..model.origin import SOURCES
from ..model.problem import Problem
from ..model.results import (
    Failure,
    HostTiming,
    Measurement,
    PeerResult,
    Resources,
    Run,
    StageResult,
    Verdict,
    Verification,
)
from ..model.stage import Stage
from ..records import environment, store, versions
from ..records.store import Folder
from ..report.evidence import passed
from ..toolchain import occupancy
from ..toolchain.compiler import CompileError, compile_stage, source_digest, source_of, sources_of
from ..workers.cluster import Cluster
from . import memory

ALL = "every problem"
"""Key of `StageResult.untimed` for a reason that holds for the whole suite."""


CHANGED = "the source has changed since it was verified: what would be timed is not what is right"


def published(stage: Stage[Any], message: str) -> str:
    """The message as a record has it: where the checkout lies on this machine is nobody's business."""
    for folder in sorted((str(sources_of(stage).parent), str(SOURCES.parent)), key=len, reverse=True):
        message = message.replace(f"{folder}{os.sep}", "")
    return message


class Listener(Protocol):
    """Is told how far a stage has come."""

    def verified(self, problems: int) -> None:
        """So many problems of the stage have been verified."""

    def timing(self, label: str) -> None:
        """The problem with this label is being timed."""


@dataclass
class Session:
    """One run in progress. `problems` holds the one problem asked for, by operation; none means the usual ones.

    With a `cluster` its workers solve problems and time: the device is theirs, and what comes out is the same.
    What an interrupted run of the same code in the same environment left in the folder is taken over, unless `fresh`.
    With `keep`, versions of stages that pass are kept, and what fails is tried first the next time. With `rely`, too,
    what passed before just as it is now is not verified again, unless `fresh`.
    """

    device: Device
    examples: int
    seed: int
    timed: bool = False
    problems: Mapping[str, Problem] = field(default_factory=dict)
    folder: Folder | None = None
    sanitize: bool = False
    fresh: bool = False
    cluster: Cluster | None = None
    keep: bool = False
    rely: bool = False
    trouble: dict[str, str] = field(default_factory=dict)
    """Stages that passed and could not be timed on a problem that they support, with the reason."""

    def __post_init__(self) -> None:
        self.run = Run(self.device.info(), environment.describe(), self.seed, self.examples, finished=False)
        earlier = self.folder.interrupted(self.run) if self.folder and self.timed and not self.fresh else []
        self._earlier = {(s.operation, s.stage): (s, old) for s, old in store.current(earlier)}
        self._earlier_peers = [peer for old in earlier for peer in old.peers]
        self._earlier_host = [timing for old in earlier for timing in old.host]
        self._ahead: dict[tuple[str, str], harness.Ahead] = {}
        self.kept: versions.Version | None = None
        """The version of the last stage that passed, where it was kept."""
        self.taken_over = 0
        """Verifications and measurements of an interrupted run that were not made again."""
        self.relied_on = 0
        """Verifications of earlier runs that were not made again."""

    @property
    def saved(self) -> Path | None:
        """The folder where the finished stages are, None where nothing is saved."""
        return self.folder.results if self.folder and self.run.stages else None

    def expect(self, stages: Iterable[Stage[Any]]) -> None:
        """These stages will be asked for, in this order: a cluster may begin. Raises ClusterUnavailable."""
        for stage in stages if self.cluster else ():
            with contextlib.suppress(OSError):  # what is wrong with the source is said in its turn
                digest = source_digest(source_of(stage))
                if not self._passed_before(stage, digest)[0] and (ahead := self._solving(stage, digest)):
                    self._ahead[stage.spec, digest] = ahead

    def stage(self, stage: Stage[Any], listener: Listener) -> StageResult:
        """Verify a stage, time it where that was asked for and it passed, and save. Raises CompilerUnavailable."""
        before = self._snapshot(stage)
        result = self._verified(stage, listener)
        self.run.stages.append(result)
        self._keep(stage, before, result)
        if self.timed and result.verification.verdict is Verdict.PASS:
            try:
                self._time(stage, result, listener)
                self._keep(stage, before, result)
            except BaseException:  # on disk it stays with what has been timed
                self.run.stages.pop()
                raise
        self._save()
        return result

    def _snapshot(self, stage: Stage[Any]) -> versions.Snapshot | None:
        """What is to be kept if it passes: not one that has solved a single problem."""
        if not self.keep or (not self.timed and stage.operation in self.problems):
            return None
        with contextlib.suppress(OSError):  # verification says so
            return versions.Snapshot.of(stage)
        return None

    def _keep(self, stage: Stage[Any], before: versions.Snapshot | None, result: StageResult) -> None:
        if before and result.verification.verdict is Verdict.PASS:
            self.kept = memory.keep(stage, before, result, self.run)

    def _save(self, unfinished: StageResult | None = None) -> None:
        if self.folder:
            self.folder.save(self.run, unfinished)

    def finish(self) -> None:
        """The run has been through all that it was asked for: there is nothing in it to continue."""
        self.run.finished = True
        if self.run.stages:
            self._save()

    def ok(self) -> bool:
        """Whether something was verified, nothing failed, and all that should be timed was."""
        return passed(self.run) and not self.trouble

    def _verified(self, stage: Stage[Any], listener: Listener) -> StageResult:
        verify = memory.verify if self.keep else harness.verify
        try:
            digest = source_digest(source_of(stage))
        except OSError as error:  # a source that is not there must not cost the other stages
            digest, verification = "", self._unreadable(stage, error)
        else:
            verification = self._verified_before(stage, digest) or verify(
                stage,
                self.device,
                examples=self.examples,
                seed=self.seed,
                problem=self._only_problem(stage),
                on_problem=listener.verified,
                ahead=self._solving(stage, digest),
            )
        if self.sanitize:
            self._sanitize(stage, verification)
        if verification.failure:
            verification.failure.message = published(stage, verification.failure.message)
        result = StageResult(stage.operation, stage.name, stage.idea, stage.source, digest, verification)
        if verification.verdict is Verdict.PASS:
            result.resources = self._resources(stage)
        elif self.timed:
            result.untimed[ALL] = f"verification ended with {verification.verdict}"
        return result

    def _solving(self, stage: Stage[Any], digest: str) -> harness.Ahead | None:
        """The workers' answers for a stage with this source, begun before or now."""
        if self.cluster is None or (stage.spec, digest) in self._ahead:
            return self._ahead.pop((stage.spec, digest), None)
        problem = self._only_problem(stage)
        return harness.Ahead.of(self.cluster, stage, examples=self.examples, seed=self.seed, problem=problem)

    def _only_problem(self, stage: Stage[Any]) -> Problem | None:
        """Where times follow, random problems come first even when only one problem is timed."""
        return None if self.timed else self.problems.get(stage.operation)

    def _verified_before(self, stage: Stage[Any], digest: str) -> Verification | None:
        """What an earlier run found of this source. A failure is looked at again."""
        before, interrupted = self._passed_before(stage, digest)
        if before and interrupted:
            self._taken_over(stage)
        elif before:
            self.relied_on += 1
        return before

    def _passed_before(self, stage: Stage[Any], digest: str) -> tuple[Verification | None, bool]:
        """How it has passed, and whether that was in the run that is continued."""
        if before := self._earlier_result(stage, digest):
            return (before.verification if before.verification.verdict is Verdict.PASS else None), True
        snapshot = self._snapshot(stage) if self.rely and not self.fresh and not self.sanitize else None
        return (memory.passed_before(stage, snapshot, self.run) if snapshot else None), False

    def _measured_before(self, stage: Stage[Any], problem: Problem, result: StageResult) -> Measurement | None:
        """The measurement of the same binary on this problem, with the effort of today, by an interrupted run."""
        from ..measure.timing import Effort

        before = self._earlier_result(stage, result.source_sha256)
        for measurement in before.measurements if before else ():
            alike = measurement.problem == str(problem) and measurement.effort == asdict(Effort())
            if alike and measurement.binary_sha256 == self._call(_binary_digest, stage, problem):
                self._taken_over(stage)
                return measurement
        return None

    def _earlier_result(self, stage: Stage[Any], digest: str) -> StageResult | None:
        result, _ = self._earlier.get((stage.operation, stage.name), (None, None))
        return result if result and result.source_sha256 == digest else None

    def _taken_over(self, stage: Stage[Any]) -> None:
        """Count it; a record has one date, which is that of its oldest figure."""
        _, old = self._earlier[stage.operation, stage.name]
        self.run.environment.date = min(self.run.environment.date, old.environment.date)
        self.taken_over += 1

    def _sanitize(self, stage: Stage[Any], verification: Verification) -> None:
        """Let compute-sanitizer look at what failed, else at what `verify` would try first."""
        from ..checks import sanitizer

        untried = (Verdict.COMPILE_ERROR, Verdict.OPERATION_ERROR, Verdict.UNSUPPORTED, Verdict.TAMPERING)
        if verification.verdict in untried:
            return
        if verification.failure:
            kind = registry.operation_of(stage).problem
            problems: list[Problem] = [kind.parse(verification.failure.problem)]
        elif chosen := self.problems.get(stage.operation):
            problems = [chosen]
        else:
            problems = harness.drawn(stage, self.device, examples=sanitizer.PROBLEMS, seed=self.seed)
        sanitizer.add(stage, verification, problems)

    def _problems(self, operation: Operation[Any]) -> tuple[Problem, ...]:
        chosen = self.problems.get(operation.name)
        return (chosen,) if chosen else operation.suite

    def _resources(self, stage: Stage[Any]) -> list[Resources]:
        try:
            return occupancy.suite_resources(stage, self._problems(registry.operation_of(stage)))
        except (CompileError, KeyError):
            return []  # a variant that no verified problem needed; timing it says what is wrong
        except Exception as error:
            if not registry.fault_of(error):
                raise
            return []

    def _time(self, stage: Stage[Any], result: StageResult, listener: Listener) -> None:
        suite = self._problems(registry.operation_of(stage))
        same = source_digest(source_of(stage)) == result.source_sha256
        before = {p: m for p in suite if same and (m := self._measured_before(stage, p, result))}
        outcomes = self._each(_bench, [(stage, self.device, p, result.source_sha256) for p in suite if p not in before])
        for number, problem in enumerate(suite):
            later = dict.fromkeys((p.label for p in suite[number:]), "the run ended before it was timed")
            self._save(replace(result, untimed=result.untimed | later))
            listener.timing(problem.label)
            outcome = before.get(problem) or next(outcomes)
            if isinstance(outcome, Measurement):
                result.measurements.append(outcome)
                continue
            result.untimed[problem.label] = outcome
            if stage.supports(problem, self.device.architecture) is None:
                self.trouble.setdefault(stage.spec, f"{problem.label}: {outcome}")

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(*arguments)`, on a worker where there are some."""
        return self.cluster.call(function, *arguments) if self.cluster else function(*arguments)

    def _each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """`function(*a)` for each of the arguments, in their order: here when asked for, on workers all at once."""
        if self.cluster is None:
            return itertools.starmap(function, arguments)
        futures = [self.cluster.submit(function, *a) for a in arguments]
        return (future.result() for future in futures)

    def peers(self, operation: str, listener: Listener) -> None:
        """Time the other implementations of an operation, and NumPy on the CPU, on its problems, and save.

        None of them is needed: why one has no time is kept with the results, and is no trouble. Raises Fault where
        the device cannot be asked.
        """
        from ..measure import timing

        found = self._call(timing.peers_found, operation, self.device)
        results = [PeerResult(operation, name, version) for name, version in found.items()]
        self.run.peers += results
        for problem in self._problems(registry.operations()[operation]):
            for peer in results:
                listener.timing(f"{problem.label}, {peer.name}")
                outcome = self._peer_before(peer, problem) or self._call(
                    timing.bench_peer, peer.name, operation, self.device, problem
                )
                if isinstance(outcome, Measurement):
                    peer.measurements.append(outcome)
                else:
                    peer.untimed[problem.label] = outcome
            listener.timing(f"{problem.label}, NumPy")
            on_host = self._host_before(operation, problem) or self._call(timing.time_host, operation, problem)
            if isinstance(on_host, HostTiming):
                self.run.host.append(on_host)
            if self.run.stages:
                self._save()

    def _peer_before(self, peer: PeerResult, problem: Problem) -> Measurement | None:
        """The measurement of the same version with the effort of today, by an interrupted run."""
        from ..measure.timing import Effort

        alike = (
            p
            for p in self._earlier_peers
            if (p.operation, p.name, p.version) == (peer.operation, peer.name, peer.version)
        )
        made = (m for p in alike for m in p.measurements)
        return next((m for m in made if m.problem == str(problem) and m.effort == asdict(Effort())), None)

    def _host_before(self, operation: str, problem: Problem) -> HostTiming | None:
        made = (t for t in self._earlier_host if (t.operation, t.problem) == (operation, str(problem)))
        return next(made, None)

    def _unreadable(self, stage: Stage[Any], error: OSError) -> Verification:
        message = f"cannot read the source {source_of(stage)}: {error.strerror or error}"
        replay = f"workbench verify {stage.spec} --device {self.device.name}"
        failure = Failure(Verdict.COMPILE_ERROR, "any", message, replay)
        return Verification(Verdict.COMPILE_ERROR, self.seed, failure=failure)


def _bench(stage: Stage[Any], device: Device, problem: Problem, digest: str) -> Measurement | str:
    """Time a stage as long as its source is what was verified, or say why not."""
    from ..measure import timing

    return timing.bench(stage, device, problem) if source_digest(source_of(stage)) == digest else CHANGED


def _binary_digest(stage: Stage[Any], problem: Problem) -> str:
    return compile_stage(stage, problem).binary_digest()
