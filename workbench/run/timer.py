"""The second half of a session: what passed is timed, and so are the other implementations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from ..catalogue import registry
from ..devices import Device, Fault, IsolatedDevice
from ..devices.cuda import CudaDevice
from ..measure import peers, timing
from ..measure.referee import of_gpu
from ..model.operation import NO_SUITE
from ..model.problem import Problem
from ..model.results import HostTiming, Measurement, PeerResult, Run, StageResult
from ..model.stage import Stage
from ..toolchain.compiler import compile_stage, source_digest, source_of
from .request import ALL, Interrupted, Listener, Request, takes

LATER = "the run ended before it was timed"

CHANGED = "the source has changed since it was verified: what would be timed is not what is right"


class Timer:
    """Times stages for a session, the record of which is `run`. `save` keeps it, with a stage that is unfinished."""

    def __init__(
        self, request: Request, run: Run, interrupted: Interrupted, save: Callable[[StageResult | None], None]
    ) -> None:
        self._request, self._run, self._interrupted, self._save = request, run, interrupted, save
        self._expected: set[Problem] = set()
        self._device: IsolatedDevice | None = None
        self._loading: dict[str, Future[IsolatedDevice]] = {}
        self._thread = ThreadPoolExecutor(1)  # the process of the device ends with the thread that has started it
        self.trouble: dict[str, str] = {}
        """Stages that passed and could not be timed on a problem that they support, with the reason."""

    def expect(self, stage: Stage[Any]) -> None:
        """A stage will be timed: its judge begins to prepare, and a process to load what it is timed beside."""
        request = self._request
        if request.cluster or not (request.device.times and isinstance(request.device, IsolatedDevice)):
            return
        problems = [p for p in request.to_time(stage) if p not in self._expected]
        self._expected.update(problems)
        of_gpu().expect(problems)
        if stage.operation not in self._loading:
            self._loading[stage.operation] = self._thread.submit(self._load, stage.operation)

    def _load(self, operation: str) -> IsolatedDevice:
        """The device in a process in which nothing was verified, and which has loaded the baselines of an operation."""
        self._device = self._device or IsolatedDevice(CudaDevice)
        with contextlib.suppress(Fault):  # whoever times beside them says so
            timing.load_baselines(self._device, operation)
        return self._device

    def _device_for(self, operation: str) -> Device:
        """The device on which the stages of an operation are timed. Raises DeviceUnavailable."""
        loading = self._loading.get(operation)
        return loading.result() if loading else self._request.device

    def stage(
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
        suite, device = self._request.to_time(stage), self._device_for(stage.operation)
        if not registry.operation_of(stage).suite and not suite:
            result.untimed[ALL] = NO_SUITE
        done = {measurement.problem for measurement in result.measurements}
        suite = tuple(p for p in suite if str(p) not in done)
        same = source_digest(source_of(stage)) == result.source_sha256
        before = {p: m for p in suite if same and (m := self._measured_before(stage, p, result.source_sha256))}
        wanted = [p for p in suite if p not in before and (problems is None or p in problems)]
        outcomes = self._request.each(_bench, [(stage, device, p, result.source_sha256) for p in wanted])
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
            if takes(stage.on(self._request.device.machine), problem, unsaid=True):
                self.trouble.setdefault(stage.spec, f"{problem.label}: {outcome}")

    def peers(self, operation: str, listener: Listener) -> None:
        """Time the other implementations of an operation, and NumPy on the CPU, on its problems, and save.

        None of them is needed: why one has no time is kept with the results, and is no trouble. Raises Fault where
        the device cannot be asked."""
        call, device = self._request.call, self._device_for(operation)
        found = call(peers.peers_found, operation, device)
        results = [PeerResult(operation, name, version) for name, version in found.items()]
        self._run.peers += results
        stages = [stage for stage in registry.operations()[operation].stages if self._timed(stage)]
        for problem in dict.fromkeys(problem for stage in stages for problem in self._request.to_time(stage)):
            for peer in results:
                listener.timing(f"{problem.label}, {peer.name}")
                before = self._interrupted.peer(peer, problem)
                outcome = before or call(peers.bench_peer, peer.name, operation, device, problem)
                if isinstance(outcome, Measurement):
                    peer.measurements.append(outcome)
                else:
                    peer.untimed[problem.label] = outcome
            listener.timing(f"{problem.label}, NumPy")
            on_host = self._interrupted.host(operation, problem) or call(peers.time_host, operation, problem)
            if isinstance(on_host, HostTiming):
                self._run.host.append(on_host)
            if self._run.stages:
                self._save(None)

    def _timed(self, stage: Stage[Any]) -> bool:
        """Whether the record has a stage."""
        return any((s.operation, s.stage) == (stage.operation, stage.name) for s in self._run.stages)

    def _measured_before(self, stage: Stage[Any], problem: Problem, digest: str) -> Measurement | None:
        binary = partial(self._request.call, _binary_digest, stage, problem, self._request.device.architecture)
        return self._interrupted.measurement(stage, problem, digest, binary)


def _bench(stage: Stage[Any], device: Device, problem: Problem, digest: str) -> Measurement | str:
    """Time a stage as long as its source is what was verified, or say why not."""
    return timing.bench(stage, device, problem) if source_digest(source_of(stage)) == digest else CHANGED


def _binary_digest(stage: Stage[Any], problem: Problem, architecture: int) -> str:
    return compile_stage(stage, problem, architecture).binary_digest()
