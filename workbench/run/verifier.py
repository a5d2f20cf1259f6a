"""A session: stages are verified one after the other on one device, and the record is kept.

`Request` is what a session is asked to do, `Interrupted` what an interrupted one has done of it. `verify` has a memory:
what failed before is tried first, what passed is kept and need not be verified again."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from .. import harness
from ..catalogue import registry
from ..checks import hazards, sanitizer
from ..devices import Device, IsolatedDevice
from ..model import errors
from ..model.errors import BadStage, WrongUsage
from ..model.operation import Operation
from ..model.problem import Problem, ProblemError, Size
from ..model.results import Failure, Resources, Run, StageResult, Verdict, Verification
from ..model.stage import Stage
from ..records import environment, store, versions
from ..records.store import Folder, comparable
from ..report import derived
from ..report.evidence import NOT_OF_A_PROBLEM, passed, publish
from ..toolchain import compiler
from ..toolchain.compiler import CompileError, source_digest, source_of
from ..workers.cluster import Cluster, Processes
from ..workers.prefetch import SolvedAhead

# ------------------------------------------------------------------------------------------- what is asked of a session
ALL = "every problem"
"""Key of `StageResult.untimed` for a reason that holds for the whole suite."""

VARIABLE = "WORKBENCH_SEED"
"""Environment variable for the seed of everything that is given none. No stage is told it."""


class BadSeed(WrongUsage, ValueError):
    """The environment variable `WORKBENCH_SEED` does not hold a seed."""


def asked(seed: int | None) -> int | None:
    """The seed that is asked for, or None. Raises BadSeed."""
    if seed is not None or VARIABLE not in os.environ:
        return seed
    if not (text := os.environ[VARIABLE]).isdecimal():
        raise BadSeed(f"{VARIABLE} is {text!r}; it has to be a whole number from 0 on")
    return int(text)


def chosen(seed: int | None) -> int:
    """The seed that is asked for, else a fresh one of 32 bits. Raises BadSeed."""
    found = asked(seed)
    return secrets.randbits(32) if found is None else found


class Listener(Protocol):
    """Is told how far a stage has come."""

    def verified(self, problems: int) -> None:
        """So many problems of the stage have been verified."""

    def timing(self, label: str) -> None:
        """The problem with this label is being timed."""


class Silent(Listener):
    """Is told, and says nothing."""

    def verified(self, problems: int) -> None: ...
    def timing(self, label: str) -> None: ...


def by_work(operation: Operation[Any]) -> list[Problem]:
    """The suite of an operation, the problem with the most work first: bytes or operations, whichever is its metric."""

    def work(problem: Problem) -> int:
        return problem.cost.bytes if operation.metric == derived.GBPS else problem.cost.flops

    return sorted(operation.suite, key=work, reverse=True)


def takes(stage: Stage[Any], problem: Problem, unsaid: bool = False) -> bool:
    """Whether a stage takes a problem on its machine; `unsaid` for one that cannot say it."""
    try:
        return stage.supports(problem) is None
    except BadStage:
        return unsaid


@dataclass
class Request:
    """`problems` holds those asked for, by operation; none means the usual ones. Where nothing is timed, it is one.

    With a `cluster` its workers solve problems and time: the device is theirs, and what comes out is the same.
    What an interrupted run of the same code in the same environment left in the folder is taken over, unless `fresh`.
    With `keep`, versions of stages that pass are kept, and what fails is tried first the next time. With `rely`, too,
    what passed before just as it is now is not verified again, unless `fresh`. With `any_seed` that may have been with
    another seed, and an interrupted run goes on with its own. Without `resources` nothing is
    assembled to tell what a stage takes of a multiprocessor. With `whole_suite` a stage is timed on every problem of
    the suite, else on the one with the most work that it takes, and on its own problem and those of its children.
    `strict`: a stage with a condition that no problem has tried both ways has failed."""

    device: Device
    examples: int
    seed: int
    problems: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    folder: Folder | None = None
    sanitize: bool = False
    fresh: bool = False
    cluster: Cluster | None = None
    keep: bool = False
    rely: bool = False
    any_seed: bool = False
    resources: bool = True
    whole_suite: bool = False
    strict: bool = False
    timed: ClassVar[bool] = False
    """Whether what passes is timed."""

    def to_time(self, stage: Stage[Any]) -> tuple[Problem, ...]:
        """The problems on which a stage is timed."""
        operation = registry.operation_of(stage)
        if self.whole_suite or operation.name in self.problems:
            return self.suite(operation)
        there = stage.on(self.device.machine)
        usual = [problem for problem in by_work(operation) if takes(there, problem)][:1]
        own = (s.problem for s in operation.stages if stage.name in (s.name, s.parent) and s.problem)
        return tuple(dict.fromkeys((*usual, *(problem for problem in own if takes(there, problem)))))

    def suite(self, operation: Operation[Any]) -> tuple[Problem, ...]:
        """The problems that were asked for, or those of the operation."""
        return self.problems.get(operation.name, operation.suite)

    def only_problem(self, stage: Stage[Any]) -> Problem | None:
        """Where times follow, random problems come first even when only one problem is timed."""
        return None if self.timed or stage.operation not in self.problems else self.problems[stage.operation][0]

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(*arguments)`, on a worker where there are some."""
        return self.cluster.call(function, *arguments) if self.cluster else function(*arguments)

    def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """`function(*a)` for each of the arguments, in their order: here when asked for, on workers all at once."""
        if self.cluster is None:
            return itertools.starmap(function, arguments)
        futures = [self.cluster.submit(function, *a) for a in arguments]
        return (future.result() for future in futures)


class Interrupted:
    """The results of interrupted runs of the same code in the same environment as `run`."""

    def __init__(self, earlier: list[Run], run: Run) -> None:
        self._run = run
        self._stages = {(s.operation, s.stage): (s, old) for s, old in (store.current(earlier) if earlier else ())}
        self.earlier = earlier
        self.taken_over = 0
        """Verifications and measurements that were not made again."""

    def result(self, stage: Stage[Any], digest: str) -> StageResult | None:
        """What was found of a stage with this source, on as many problems as the run asks for."""
        found = self.at_any_depth(stage, digest)
        return found if found and not found.verification.examples else None

    def at_any_depth(self, stage: Stage[Any], digest: str) -> StageResult | None:
        """What was found of a stage with this source, on however many problems."""
        result, _ = self._stages.get((stage.operation, stage.name), (None, None))
        return result if result and result.source_sha256 == digest else None

    def take_over(self, stage: Stage[Any]) -> None:
        """Count it; a record has one date, which is that of its oldest figure."""
        _, old = self._stages[stage.operation, stage.name]
        self._run.environment.date = min(self._run.environment.date, old.environment.date)
        self.taken_over += 1


# ----------------------------------------------------------------------------------------- a verification with a memory
UNKEPT = "versions and failures are not kept: {}"
"""All that is said, once, where the database cannot be used."""


def keep(stage: Stage[Any], before: versions.Snapshot, result: StageResult, run: Run) -> versions.Version | None:
    """Keep a version that has passed; `before` is what it was when it began to be verified.

    None where it has changed since: nobody can tell which of the two passed. A database that cannot be used is a
    warning: what was verified does not depend on it."""
    try:
        if stage.code is None and versions.Snapshot.of(stage).digest == before.digest:
            return versions.of(stage).keep(before, replace(run, stages=[result], peers=[], host=[]))
    except OSError as error:
        errors.warn(f"this version was not kept: {error}")
    except versions.VersionsError as error:
        errors.warn(UNKEPT.format(error))
    return None


def passed_before(
    stage: Stage[Any], snapshot: versions.Snapshot, run: Run, any_seed: bool = False, depends: str | None = None
) -> Verification | None:
    """The verification that exactly this has passed, by the same code, on the same device, as `run` would verify it, or
    with another seed where any will do.

    None as well where the stage has failed on any problem since. `date` of what is returned is when it was made.
    `depends` is what `versions.surroundings` gives, where that has been read."""
    with _warned():
        for old in _unchanged(stage, versions.of(stage).passed(snapshot), depends):
            if comparable(old, run, any_seed):
                made = old.stages[0].verification
                made.date = made.date or old.environment.date
                return made
    return None


def passes(stage: Stage[Any]) -> list[Run]:
    """The records of what has passed of exactly this stage, on any device, the newest first.

    None where it has failed on any problem since. Raises OSError where its sources cannot be read, and VersionsError.
    """
    return _unchanged(stage, versions.of(stage).passed(versions.Snapshot.of(stage)))


def _unchanged(stage: Stage[Any], runs: Sequence[Run], now: str | None = None) -> list[Run]:
    """The runs of the stage since which nothing has changed that its launches depend on, which is read once."""
    if now is None:
        now = versions.surroundings(stage) if runs else ""
    return [run for run in runs if run.stages[0].depends_sha256 == now]


def verify(stage: Stage[Any], device: Device, *, remembers: bool = True, **how: Any) -> Verification:
    """`harness.verify`, on a GPU with a search for hazards beside it. What is verified first, where it `remembers`, are
    the problems that the stage has failed on before; a new one is kept."""
    verified = hazards.beside if device.times else harness.verify
    if not remembers or stage.code is not None:
        return verified(stage, device, **how)
    again = [] if how.get("problem") else failed_before(stage, device)
    outcome = verified(stage, device, again=again, **how)
    failure = outcome.failure
    if failure and failure.verdict not in NOT_OF_A_PROBLEM:
        with _warned():
            versions.of(stage).remember(stage, device.name, failure)
    return outcome


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    try:
        yield
    except versions.VersionsError as error:
        errors.warn(UNKEPT.format(error))


def failed_before(stage: Stage[Any], device: Device) -> list[Problem]:
    """The problems that a stage has failed on, the last one first; for the emulator those of its size."""
    operation, found = registry.operation_of(stage), []
    with _warned():
        for failure in versions.of(stage).failures():
            if failure.spec != stage.spec:
                continue
            try:
                problem = operation.problem.parse(failure.problem)
            except ProblemError:  # problems of the operation are not what they were
                continue
            if failure.device == device.name or device.times or _small(problem, operation.emulator_size):
                found.append(problem)
    return found


def _small(problem: Problem, size: Size) -> bool:
    work: int = math.prod(getattr(problem, name) for name in problem.extents)
    return work <= size.work


# --------------------------------------------------------------------------------------- the verifications of a session


UNTRIED = (
    *(Verdict.COMPILE_ERROR, Verdict.OPERATION_ERROR, Verdict.UNSUPPORTED, Verdict.TAMPERING),
    Verdict.UNTESTED,
)
"""Verdicts with which compute-sanitizer has nothing to look at."""


MOST_AT_ONCE, OF_A_PROCESS = 16, 8 << 30
"""Stages that are verified at once on a GPU, each by a process with a context of its own; bytes of the device's memory
for each of them."""


HELPERS = 11
"""Most processes that help where one stage is verified alone."""


class Verifier:
    """Verifies stages for a session, the record of which is `run`."""

    def __init__(self, request: Request, run: Run, interrupted: Interrupted) -> None:
        self._request, self._run, self._interrupted = request, run, interrupted
        self._pool: Processes | None = None
        self._begun: dict[tuple[str, str], Future[Verification]] = {}
        self._helpers = 0
        """Processes that help with the verification of one stage."""
        self.relied_on = 0
        """Verifications of earlier runs that were not made again."""

    def expect(self, stages: Iterable[Stage[Any]]) -> None:
        """These stages will be asked for, in this order: on a GPU processes begin to verify several at once, since most
        of that is work of the host."""
        request, device, stages = self._request, self._request.device, list(stages)
        memory = device.info().memory_bytes // OF_A_PROCESS if device.times else 0
        most = min(MOST_AT_ONCE, environment.core_count(), memory)
        named = not any(stage.code is not None for stage in stages)
        if most < 2 or request.cluster or request.sanitize or not named or not isinstance(device, IsolatedDevice):
            return
        self._helpers = min(HELPERS, most - 1) if len(stages) == 1 else 0
        if len(stages) < 2:
            return
        for stage in stages:
            with contextlib.suppress(OSError):  # what is wrong with the source is said in its turn
                digest = source_digest(source_of(stage))
                if self._passed_before(stage, digest)[0]:
                    continue
                self._pool = self._pool or Processes(min(most, len(stages)), hazards.begin)
                self._begun[stage.spec, digest] = self._pool.submit(verify, stage, device, **self._how(stage))

    def result(self, stage: Stage[Any], listener: Listener) -> StageResult:
        """The stage with its verification, and without times. Raises CompilerUnavailable."""
        depends = versions.surroundings(stage)
        try:
            digest = source_digest(source_of(stage))
        except OSError as error:  # a source that is not there must not cost the other stages
            digest, verification = "", self._unreadable(stage, error)
        else:
            verification = self._verified_before(stage, digest, depends) or self._verified(stage, digest, listener)
        if self._request.sanitize:
            self._sanitize(stage, verification)
        publish(stage, verification)
        result = StageResult(stage.operation, stage.name, stage.idea, stage.source, digest, verification)
        result.depends_sha256 = depends
        if verification.verdict is Verdict.PASS and self._request.resources:
            result.resources = self._resources(stage)
        elif self._request.timed:
            result.untimed[ALL] = f"verification ended with {verification.verdict}"
        return result

    def snapshot(self, stage: Stage[Any]) -> versions.Snapshot | None:
        """What is to be kept if it passes: not one that has solved a single problem."""
        request = self._request
        if not request.keep or (not request.timed and stage.operation in request.problems):
            return None
        with contextlib.suppress(OSError):  # verification says so
            return versions.Snapshot.of(stage)
        return None

    def _how(self, stage: Stage[Any]) -> dict[str, Any]:
        request = self._request
        how = {"remembers": request.keep, "examples": request.examples, "seed": request.seed, "strict": request.strict}
        problem = request.only_problem(stage)
        how |= {"helpers": self._helpers} if self._helpers and problem is None else {}
        return {**how, "problem": problem}

    def settle(self) -> None:
        """Wait for verifications that have begun: beside them nothing can be timed."""
        wait(self._begun.values())
        self._end()

    def _end(self) -> None:
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _verified_at_once(self, stage: Stage[Any], digest: str, listener: Listener) -> Verification | None:
        """What a process of this machine has found, None where nobody has begun, or the process has ended."""
        future = self._begun.pop((stage.spec, digest), None)
        if future is None:
            return None
        try:
            verification: Verification = future.result()
        except (BrokenExecutor, CancelledError):
            self._begun.clear()
            return None
        except BaseException:
            self._begun.clear()
            self._end()
            raise
        listener.verified(verification.problems)
        if not self._begun:
            self._end()
        return verification

    def _verified(self, stage: Stage[Any], digest: str, listener: Listener) -> Verification:
        if found := self._verified_at_once(stage, digest, listener):
            return found
        device, cluster, how = self._request.device, self._request.cluster, self._how(stage)
        if cluster is None:
            return verify(stage, device, on_problem=listener.verified, **how)
        ahead = SolvedAhead(cluster, cluster.slots, stage, device)
        try:
            return verify(stage, device, on_problem=listener.verified, call=ahead, before=ahead.begin, **how)
        finally:
            ahead.cancel()

    def _verified_before(self, stage: Stage[Any], digest: str, depends: str) -> Verification | None:
        """What an earlier run found of this source. A failure is looked at again."""
        before, interrupted = self._passed_before(stage, digest, depends)
        if before and interrupted:
            self._interrupted.take_over(stage)
        elif before:
            self.relied_on += 1
        return before

    def _passed_before(
        self, stage: Stage[Any], digest: str, depends: str | None = None
    ) -> tuple[Verification | None, bool]:
        """How it has passed, and whether that was in the run that is continued."""
        if before := self._interrupted.result(stage, digest):
            return (before.verification if before.verification.verdict is Verdict.PASS else None), True
        relies = self._request.rely and not self._request.fresh and not self._request.sanitize
        snapshot = self.snapshot(stage) if relies else None
        if snapshot is None:
            return None, False
        return passed_before(stage, snapshot, self._run, self._request.any_seed, depends), False

    def _sanitize(self, stage: Stage[Any], verification: Verification) -> None:
        """Let compute-sanitizer look at what failed, else at what `verify` would try first."""
        if verification.verdict in UNTRIED:
            return
        if verification.failure:
            kind = registry.operation_of(stage).problem
            problems: list[Problem] = [kind.parse(verification.failure.problem)]
        elif chosen := self._request.problems.get(stage.operation):
            problems = list(chosen)
        else:
            problems = harness.drawn(stage, self._request.device, examples=sanitizer.PROBLEMS, seed=self._request.seed)
        sanitizer.add(stage, verification, problems)

    def _resources(self, stage: Stage[Any]) -> list[Resources]:
        request = self._request
        try:
            problems = request.to_time(stage) if request.timed else request.suite(registry.operation_of(stage))
            return compiler.suite_resources(stage, problems)
        except (CompileError, KeyError, BadStage):
            return []  # a variant that no verified problem needed; timing it says what is wrong
        except Exception as error:
            if not registry.fault_of(error):
                raise
            return []

    def _unreadable(self, stage: Stage[Any], error: OSError) -> Verification:
        message = f"cannot read the source {source_of(stage)}: {error.strerror or error}"
        replay = f"workbench verify {stage.spec} --device {self._request.device.name}"
        failure = Failure(Verdict.COMPILE_ERROR, "any", message, replay)
        return Verification(Verdict.COMPILE_ERROR, self._request.seed, failure=failure)


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
        self.trouble: dict[str, str] = {}
        """Stages that passed and could not be timed on a problem that they support, with the reason."""

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
        """Verify a stage, and save. Raises CompilerUnavailable."""
        _, result = self._verified(stage, listener)
        self._save()
        return result

    def _verified(self, stage: Stage[Any], listener: Listener) -> tuple[versions.Snapshot | None, StageResult]:
        """What a stage was before it was verified, and what the record has of it now. Raises CompilerUnavailable."""
        before = self._verifier.snapshot(stage)
        result = self._verifier.result(stage, listener)
        if self.only_problem(stage):
            result.verification.examples = 1
        self.run.stages.append(result)
        self._keep(stage, before, result)
        return before, result

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

    def _of(self, result: StageResult) -> StageResult | None:
        """What the record has of a stage."""
        alike = (s for s in self.run.stages if (s.operation, s.stage) == (result.operation, result.stage))
        return next(alike, None)

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
            self.kept = keep(stage, before, result, self.run)

    def _save(self, unfinished: StageResult | None = None) -> None:
        if self.folder:
            self.folder.save(self.run, unfinished)
