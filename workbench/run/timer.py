"""A session that also times: stages that passed, and the other implementations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from ..catalogue import registry
from ..devices import Device, Fault, IsolatedDevice
from ..devices.cuda import CudaDevice
from ..measure import peers, timing
from ..measure.referee import of_gpu
from ..measure.timing import Effort
from ..model.operation import NO_SUITE
from ..model.problem import Problem
from ..model.results import HostTiming, Measurement, PeerResult, StageResult, Verdict
from ..model.stage import Stage
from ..toolchain.compiler import compile_stage, source_digest, source_of
from .verifier import ALL, Listener, Session, takes

LATER = "the run ended before it was timed"

CHANGED = "the source has changed since it was verified: what would be timed is not what is right"


class TimedSession(Session):
    """A session that times what has passed."""

    timed = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._coming: Sequence[Stage[Any]] = ()
        self._expected: set[Problem] = set()
        self._beside: IsolatedDevice | None = None
        self._loading: dict[str, Future[IsolatedDevice]] = {}
        self._thread = ThreadPoolExecutor(1)  # the process of the device ends with the thread that has started it

    def expect(self, stages: Iterable[Stage[Any]]) -> None:
        self._coming = list(stages)
        super().expect(self._coming)

    def stage(self, stage: Stage[Any], listener: Listener) -> StageResult:
        """Verify a stage, time it where it passed, and save. Raises CompilerUnavailable."""
        for other in (stage, *(s for s in self._coming if s.operation == stage.operation)):
            self._prepare(other)
        before, result = self._verified(stage, listener)
        if result.verification.verdict is Verdict.PASS:
            try:
                self._verifier.settle()
                self._time(stage, result, listener)
                self._keep(stage, before, result)
            except BaseException:  # on disk it stays with what has been timed
                self.run.stages.pop()
                raise
        self._save()
        return result

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
        self._time(stage, result, listener, problems, enough)
        self._save()

    def _prepare(self, stage: Stage[Any]) -> None:
        """A stage will be timed: its judge begins to prepare, and a process to load what it is timed beside."""
        if self.cluster or not (self.device.times and isinstance(self.device, IsolatedDevice)):
            return
        problems = [p for p in self.to_time(stage) if p not in self._expected]
        self._expected.update(problems)
        of_gpu().expect(problems)
        if stage.operation not in self._loading:
            self._loading[stage.operation] = self._thread.submit(self._load, stage.operation)

    def _load(self, operation: str) -> IsolatedDevice:
        """The device in a process in which nothing was verified, and which has loaded the baselines of an operation."""
        self._beside = self._beside or IsolatedDevice(CudaDevice)
        with contextlib.suppress(Fault):  # whoever times beside them says so
            timing.load_baselines(self._beside, operation)
        return self._beside

    def _device_for(self, operation: str) -> Device:
        """The device on which the stages of an operation are timed. Raises DeviceUnavailable."""
        loading = self._loading.get(operation)
        return loading.result() if loading else self.device

    def _time(
        self,
        stage: Stage[Any],
        result: StageResult,
        listener: Listener,
        problems: Collection[Problem] | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Time a stage on the suite, or on these `problems` of it, until it is `enough`. It is saved after each one,
        and one that `result` has a measurement of is left out."""
        if self._expected:
            of_gpu().wait()
        suite, device = self.to_time(stage), self._device_for(stage.operation)
        if not registry.operation_of(stage).suite and not suite:
            result.untimed[ALL] = NO_SUITE
        done = {measurement.problem for measurement in result.measurements}
        suite = tuple(p for p in suite if str(p) not in done)
        same = source_digest(source_of(stage)) == result.source_sha256
        before = {p: m for p in suite if same and (m := self._measured_before(stage, p, result.source_sha256))}
        wanted = [p for p in suite if p not in before and (problems is None or p in problems)]
        outcomes = self.each(_bench, [(stage, device, p, result.source_sha256) for p in wanted])
        for number, problem in enumerate(suite):
            if enough() or (problem not in before and problem not in wanted):
                result.untimed[problem.label] = LATER
                continue
            later = dict.fromkeys((p.label for p in suite[number:]), LATER)
            self._save(replace(result, untimed=result.untimed | later))
            listener.timing(problem.label)
            outcome = before.get(problem) or next(outcomes)
            if isinstance(outcome, Measurement):
                result.measurements.append(outcome)
                result.untimed.pop(problem.label, None)
                continue
            result.untimed[problem.label] = outcome
            if takes(stage.on(self.device.machine), problem, unsaid=True):
                self.trouble.setdefault(stage.spec, f"{problem.label}: {outcome}")

    def peers(self, operation: str, listener: Listener) -> None:
        """Time the other implementations of an operation, and NumPy on the CPU, on its problems, and save.

        None of them is needed: why one has no time is kept with the results, and is no trouble. Raises Fault where
        the device cannot be asked."""
        call, device = self.call, self._device_for(operation)
        found = call(peers.peers_found, operation, device)
        results = [PeerResult(operation, name, version) for name, version in found.items()]
        self.run.peers += results
        recorded = {s.stage for s in self.run.stages if s.operation == operation}
        stages = [stage for stage in registry.operations()[operation].stages if stage.name in recorded]
        for problem in dict.fromkeys(problem for stage in stages for problem in self.to_time(stage)):
            for peer in results:
                listener.timing(f"{problem.label}, {peer.name}")
                outcome = self._peer_before(peer, problem) or call(
                    peers.bench_peer, peer.name, operation, device, problem
                )
                if isinstance(outcome, Measurement):
                    peer.measurements.append(outcome)
                else:
                    peer.untimed[problem.label] = outcome
            listener.timing(f"{problem.label}, NumPy")
            on_host = self._host_before(operation, problem) or call(peers.time_host, operation, problem)
            if isinstance(on_host, HostTiming):
                self.run.host.append(on_host)
            if self.run.stages:
                self._save()

    def _measured_before(self, stage: Stage[Any], problem: Problem, digest: str) -> Measurement | None:
        """The measurement of the same binary on this problem, with the effort of today; it is taken over."""
        before = self._interrupted.result(stage, digest)
        for made in before.measurements if before else ():
            alike = made.problem == str(problem) and made.effort == asdict(Effort())
            if alike and made.binary_sha256 == self.call(_binary_digest, stage, problem, self.device.architecture):
                self._interrupted.take_over(stage)
                return made
        return None

    def _peer_before(self, peer: PeerResult, problem: Problem) -> Measurement | None:
        """The measurement of the same version of another implementation, with the effort of today."""
        wanted = (peer.operation, peer.name, peer.version)
        known = (p for old in self._interrupted.earlier for p in old.peers)
        made = (m for p in known if (p.operation, p.name, p.version) == wanted for m in p.measurements)
        return next((m for m in made if m.problem == str(problem) and m.effort == asdict(Effort())), None)

    def _host_before(self, operation: str, problem: Problem) -> HostTiming | None:
        """The time of NumPy on this problem."""
        known = (t for old in self._interrupted.earlier for t in old.host)
        return next((t for t in known if (t.operation, t.problem) == (operation, str(problem))), None)


def _bench(stage: Stage[Any], device: Device, problem: Problem, digest: str) -> Measurement | str:
    """Time a stage as long as its source is what was verified, or say why not."""
    return timing.bench(stage, device, problem) if source_digest(source_of(stage)) == digest else CHANGED


def _binary_digest(stage: Stage[Any], problem: Problem, architecture: int) -> str:
    return compile_stage(stage, problem, architecture).binary_digest()
