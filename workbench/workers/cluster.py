"""Where work is spread to: processes of this machine, or the workers of a Dask cluster. Both are executors.

Stages may be arguments of a task. A process of this machine finds one by its name. A worker of a cluster need not have
the repository: the stage goes there by value, with its source and its headers. Scheduling, workers that die and the
dashboard are Dask's."""

from __future__ import annotations

import contextlib
import copy
import copyreg
import functools
import hashlib
import io
import logging
import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, InvalidStateError, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from ..catalogue import registry
from ..devices import Device, DeviceUnavailable, IsolatedDevice, open_device
from ..devices.base import OnMachine
from ..model.errors import BadStage, WorkbenchError, file_of, inside
from ..model.launch import H200, Machine
from ..model.operation import Operation
from ..model.origin import BUILT_IN
from ..model.results import DeviceInfo
from ..model.stage import Stage
from ..records import environment
from ..sandbox import integrity
from ..sandbox.processes import context, end_with_parent, held_back, ignore_interrupts
from ..toolchain import nvml
from ..toolchain.compiler import cache_folder, contents, source_digest, source_of, write

LOCAL = "local"
"""The address of a cluster that is started on this machine for one command."""

SECONDS = 30.0
"""How long a scheduler and its first worker may take to answer."""

BESIDE = 8
"""Most tasks at once on a worker with a GPU: one has the GPU, the others are being compiled or wait for it."""

SETTINGS = {
    "distributed.scheduler.worker-saturation": 1.0,  # a worker has no tasks but those at work: no other is blamed
    "distributed.scheduler.no-workers-timeout": f"{SECONDS} s",  # where none can be started again
}
"""Of the scheduler that is started here."""

HOUSED = "travelled"
"""In the cache: the sources that came with stages, each in the folders that it had where it came from."""


class ClusterUnavailable(WorkbenchError, RuntimeError):
    """The cluster cannot be used, or does not support this; the message says why, and what would help."""


class Lost(WorkbenchError, RuntimeError):
    """Several workers ended while they had this task. Another task of the same workers may be the cause."""


# ------------------------------------------------------------------------------------------------ this machine


def _begin_worker(prepare: Callable[[], Any] | None) -> None:
    ignore_interrupts()
    if prepare:
        prepare()
    end_with_parent()


def _but_of_cancelled(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The hook of threads without what the thread of a pool raises as it tells cancelled tasks that it ends."""
    return lambda about: None if issubclass(about.exc_type, InvalidStateError) else hook(about)


class Processes(ProcessPoolExecutor):
    """So many processes of this machine, each of which may `prepare` for tasks. It finds the stages that are arguments
    of a task by their names; an isolated device is its own of this kind there."""

    def __init__(self, count: int, prepare: Callable[[], Any] | None = None) -> None:
        super().__init__(count, context(), _begin_worker, (prepare,))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        """Wait for what is at work; where something has gone wrong, as where the user interrupts, end it at once."""
        if kind is None:
            return super().__exit__(kind, error, at)
        self.end()
        return False

    def end(self) -> None:
        """End the processes, whatever they are at."""
        processes = [*(self._processes or {}).values()]
        threading.excepthook = _but_of_cancelled(threading.excepthook)
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        file = io.BytesIO()
        _ByName(file).dump((function, arguments, named))
        with held_back():
            return super().submit(_call, file.getvalue())


class _ByName(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Stage):
            return _named, (value.spec, dict(value.parameters))
        return (own_device, (value.name, True)) if isinstance(value, IsolatedDevice) else NotImplemented


@functools.cache
def _selected(spec: str) -> Stage[Any]:
    (stage,) = registry.select([spec])
    return stage


def _named(spec: str, parameters: dict[str, int]) -> Stage[Any]:
    """The same object at every call, so that a task finds what an earlier one has made for it."""
    stage = _selected(spec)
    return stage if stage.parameters == parameters else stage.with_parameters(parameters)


def _call(task: bytes) -> Any:
    function, arguments, named = pickle.loads(task)
    return function(*arguments, **named)


# ------------------------------------------------------------------------------------------------ how a stage travels


@dataclass(frozen=True)
class _Cargo:
    """A stage: its declaration, pickled by value, and its source and headers by their paths, the source first."""

    declaration: bytes
    files: tuple[tuple[str, bytes], ...]
    digest: str

    @classmethod
    def of(cls, stage: Stage[Any]) -> _Cargo:
        """Raises OSError for sources that cannot be read, ClusterUnavailable for a declaration that cannot travel."""
        files = contents(source_of(stage))
        file = io.BytesIO()
        try:
            _by_value()(file).dump(registry.local(stage))
        except BadStage as error:
            raise ClusterUnavailable(f"{error}, and cannot be sent to other machines: verify it on this one") from None
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ClusterUnavailable(
                f"the declaration of {stage.spec} cannot be sent to other machines ({error}); what it uses may hold no "
                "open files, locks or modules that were written in C"
            ) from None
        return cls(
            file.getvalue(), tuple((str(p), content) for p, content in files.items()), source_digest(source_of(stage))
        )

    def unpack(self) -> Stage[Any]:
        """The stage on this machine, with its sources in the cache. Raises ClusterUnavailable, CompilerUnavailable."""
        folder = cache_folder() / HOUSED / hashlib.sha256(repr(self.files).encode()).hexdigest()[:32]
        for name, content in self.files:
            path = inside(folder, Path(name).relative_to("/"))
            if not path.is_file():
                write(path, content)
        source = inside(folder, Path(self.files[0][0]).relative_to("/"))
        if source_digest(source) != self.digest:
            raise ClusterUnavailable("the headers of the workbench on a worker are other ones; install the same there")
        stage: Stage[Any] = pickle.loads(self.declaration)
        return replace(stage, source=str(source), code=None)


@functools.lru_cache(maxsize=64)
def _arrived(cargo: _Cargo) -> Stage[Any]:
    """The same object at every call, so that a task finds what an earlier one has made for it."""
    return cargo.unpack()


def _by_value() -> type[pickle.Pickler]:
    """Pickles declarations. Functions without a name and what is in the project's modules travel by value already;
    an operation leaves its other stages behind."""
    import cloudpickle

    class ByValue(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, Operation):
                made = copyreg.__newobj__  # type: ignore[attr-defined]  # left out of the stubs
                return made, (Operation,), vars(value) | {"stages": [], "sources": None}
            return super().reducer_override(value)

    return ByValue


def _project_modules() -> Iterator[ModuleType]:
    """The modules that a worker may lack: those with operations that are not the workbench's, whatever lies in their
    top packages, and everything else of the project."""
    found = registry.loaded()
    if not found.project and all(o.origin == BUILT_IN for o in found.operations.values()):
        return
    foreign = [m for name, m in found.modules.items() if found.operations[name].origin != BUILT_IN]
    packages = {module.__name__.partition(".")[0] for module in foreign}
    below = f"{found.project.root}{os.sep}" if found.project else None
    for name, module in list(sys.modules.items()):
        file = file_of(module)
        ours = name.partition(".")[0] in (__name__.partition(".")[0], "__main__")
        inside = below and file and file.startswith(below) and "site-packages" not in Path(file).parts
        if not ours and (inside or name.partition(".")[0] in packages):
            yield module


@contextlib.contextmanager
def _travelling() -> Iterator[None]:
    import cloudpickle

    known = cloudpickle.list_registry_pickle_by_value()
    modules = [module for module in _project_modules() if module.__name__ not in known]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


class _AtHome(pickle.Pickler):
    """Pickles results; in their texts, sources are where they came from."""

    def persistent_id(self, value: Any) -> Any:
        folder = f"{cache_folder() / HOUSED}/"
        if type(value) is str and folder in value:
            first, *others = value.split(folder)
            return first + "".join(other[32:] for other in others)
        return None


class _FromThere(pickle.Unpickler):
    def persistent_load(self, text: Any) -> Any:
        return text


# ------------------------------------------------------------------------------------------------ a Dask cluster


class RemoteDevice(OnMachine):
    """The device of the cluster's workers: what it is. Where it arrives as an argument it is the worker's own."""

    def __init__(self, requested: tuple[str, bool], name: str, times: bool, machine: Machine, info: DeviceInfo) -> None:
        self._requested, self.name, self.times, self.machine, self._info = requested, name, times, machine, info

    def info(self) -> DeviceInfo:
        return self._info

    def bind(self, *arguments: Any) -> Any:
        """Raises DeviceUnavailable: only a worker can."""
        raise DeviceUnavailable("this device is on the workers of a cluster, and only they can launch on it")

    def __reduce__(self) -> tuple[Any, ...]:
        return own_device, self._requested


@functools.cache
def own_device(name: str, isolate: bool) -> Device:
    """The device of this worker, opened once."""
    if name == "auto":
        return own_device("cuda" if _has_gpu() else "emulator", isolate)
    multiprocessing.current_process().daemon = False  # as Dask's are: they could not have the process that uses the GPU
    return open_device(name, isolate=isolate)


def _has_gpu() -> bool:
    from ..devices.cuda import require_gpu

    with contextlib.suppress(DeviceUnavailable):
        require_gpu()
        return True
    return False


_packing = threading.Lock()
"""Held while cloudpickle is told which modules go by value, which holds for the whole process."""

_alone = threading.RLock()
"""Held while a task uses its worker's device."""


def _run(task: bytes) -> bytes:
    """On a worker: one task, with the device for itself."""
    prepare, function, arguments, named = pickle.loads(task)
    if prepare:
        prepare()
    with _alone:
        if prepare and _given_up():
            return b""  # for nobody, and others wait
        watch = integrity.Watch()
        try:
            result = function(*arguments, **named)
        finally:
            if changed := watch.restore():
                raise integrity.Tampered(*changed)
    file = io.BytesIO()
    _AtHome(file).dump(result)
    return file.getvalue()


def _given_up() -> bool:
    """On a worker: whether nobody waits any more for the task at hand. Dask lets what has begun go on."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled"


class Cluster(Executor):
    """The workers of a Dask cluster. A task has the device of its worker for itself.

    A worker that dies costs the tasks that it had, which others do again. `count` is how many workers there are,
    `slots` how many tasks they take at once. `device` stands for what the workers run kernels on."""

    def __init__(self, client: Any, device: str, isolate: bool) -> None:
        self.client = client
        self._cargo: dict[int, tuple[Stage[Any], _Cargo]] = {}
        self._preferred: list[str] = []
        workers = client.nthreads()
        self.count, self.slots = len(workers), sum(workers.values())
        self.device = self._common_device((device, isolate), sorted(workers))

    def among(self, position: int, of: int) -> Cluster:
        """The same cluster, which gives tasks to every `of`-th of the workers that are there now, beginning with the
        one at `position`, as long as one of them is there."""
        made = copy.copy(self)
        made._preferred = sorted(self.client.nthreads())[position::of]
        return made

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Raises OSError and ClusterUnavailable where a stage cannot be sent."""
        return self._submit((None, function, arguments, named))

    def submit_prepared(
        self, prepare: Callable[[], Any], function: Callable[..., Any], /, *arguments: Any
    ) -> Future[Any]:
        """A task before which `prepare` is called, on the same worker, while others may use its device."""
        return self._submit((prepare, function, arguments, {}))

    def call(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """The result of a task that comes before those that wait."""
        return self._submit((None, function, arguments, named), priority=1).result()

    def _submit(self, task: tuple[Any, ...], **options: Any) -> Future[Any]:
        from distributed import KilledWorker
        from distributed.scheduler import NoWorkerError

        if self._preferred:
            options = {"workers": self._preferred, "allow_other_workers": True, **options}
        inner = self.client.submit(_run, self._packed(task), pure=False, **options)
        outer: Future[Any] = Future()

        def hand_over(done: Any) -> None:
            if not outer.set_running_or_notify_cancel():
                return
            try:
                outer.set_result(_FromThere(io.BytesIO(done.result())).load())
            except KilledWorker as error:
                outer.set_exception(Lost(_why_lost(error)))
            except NoWorkerError as error:
                outer.set_exception(ClusterUnavailable(f"the cluster has had no worker for {error.timeout:.0f} s"))
            except CancelledError:
                outer.set_exception(ClusterUnavailable("the cluster is gone: its scheduler no longer answers"))
            except BaseException as error:
                outer.set_exception(error)
            finally:
                done.release()  # a worker that dies is not to take along what has arrived

        inner.add_done_callback(hand_over)
        outer.add_done_callback(lambda future: inner.cancel() if future.cancelled() else None)
        return outer

    def _packed(self, task: tuple[Any, ...]) -> bytes:
        import cloudpickle

        cluster = self

        class Packer(cloudpickle.Pickler):  # type: ignore[misc]
            def reducer_override(self, value: Any) -> Any:
                if isinstance(value, Stage):
                    return _arrived, (cluster._cargo_of(value),)
                return super().reducer_override(value)

        file = io.BytesIO()
        with _packing, _travelling():
            Packer(file).dump(task)
        return file.getvalue()

    def _cargo_of(self, stage: Stage[Any]) -> _Cargo:
        """Made once for a stage as its sources are now."""
        known = self._cargo.get(id(stage))
        if known is None or known[1].digest != source_digest(source_of(stage)):
            known = self._cargo[id(stage)] = (stage, _Cargo.of(stage))  # the stage, so that no other one gets its id
        return known[1]

    def _common_device(self, requested: tuple[str, bool], workers: list[str]) -> RemoteDevice:
        """Raises ClusterUnavailable where the workers differ in what a result depends on."""
        asked = RemoteDevice(requested, "", False, H200, DeviceInfo("", "", "", 0))
        futures = [self._submit((None, _description, (asked,), {}), workers=[address]) for address in workers]
        try:
            found = [future.result() for future in futures]
        except (ModuleNotFoundError, AttributeError) as error:
            raise ClusterUnavailable(
                f"a worker does not have this workbench ({error}); install the same version there"
            ) from None
        kinds = {f"{name} {info.name}, driver {info.driver or 'none'}" for name, _, _, info, _ in found}
        if len(kinds) > 1:
            raise ClusterUnavailable(
                f"the workers have different devices ({'; '.join(sorted(kinds))}): their results would not belong into "
                "one record; choose one with --device, or a cluster whose workers are alike"
            )
        if any(code != environment.package_digest() for *_, code in found):
            raise ClusterUnavailable("a worker has another version of the workbench: install the same code there")
        name, times, machine, info, _ = found[0]
        return RemoteDevice((name, requested[1]), name, times, machine, info)


def _why_lost(error: Any) -> str:
    return (
        f"workers ended while they had this task, {error.allowed_failures + 1} in all and the last one at "
        f"{error.last_worker.address}: most likely for lack of memory, or what it does ends them; try it on one machine"
    )


def _description(device: Device) -> tuple[str, bool, Machine, DeviceInfo, str]:
    return device.name, device.times, device.machine, device.info(), environment.package_digest()


@contextlib.contextmanager
def connect(
    address: str, device: str = "auto", *, isolate: bool = False, workers: int | None = None
) -> Iterator[Cluster]:
    """The cluster whose Dask scheduler has this address. `local` starts one here: a worker for each GPU, or for each
    core where `device` is the emulator or there is no GPU, or so many `workers`.

    Raises ClusterUnavailable, DeviceUnavailable and what else a worker cannot do."""
    try:
        import dask
        import distributed
    except ImportError:
        raise ClusterUnavailable(
            "Dask is not installed; install it with: pip install 'kernel-workbench[cluster]'"
        ) from None
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as held:
        if address == LOCAL:
            made: Any = distributed.SpecCluster
            local = _local(device, workers)
            threads = max(1, environment.core_count() // len(local["workers"]))  # of BLAS; Dask's own choice is one
            named = (f"distributed.nanny.pre-spawn-environ.{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL"))
            stack.enter_context(dask.config.set({**SETTINGS, **dict.fromkeys(named, threads)}))
            held.enter_context(held_back())  # what it has half begun it cannot end
            where = stack.enter_context(made(**local, silence_logs=logging.ERROR))
        else:
            where = _checked(address)
        try:
            joined: Any = distributed.Client
            client = stack.enter_context(joined(where, timeout=SECONDS, set_as_default=False))
            client.wait_for_workers(len(where.workers) if address == LOCAL else 1, timeout=SECONDS)
            client.get_versions(check=True, packages=list(environment.PACKAGES))
        except (OSError, TimeoutError) as error:
            raise ClusterUnavailable(
                f"no Dask scheduler with a worker answers at {address} ({error}); start them with `dask scheduler` and "
                f"`dask worker {address}`, or use --cluster {LOCAL}"
            ) from None
        except ValueError as error:
            raise ClusterUnavailable(f"{address}: {error}") from None
        held.close()
        yield Cluster(client, device, isolate)


def _checked(address: str) -> str:
    """The address with its protocol. Raises ClusterUnavailable where it is none."""
    from distributed.comm.addressing import get_address_host_port

    full = address if "://" in address else f"tcp://{address}"
    try:
        get_address_host_port(full, strict=True)
    except ValueError as error:
        raise ClusterUnavailable(
            f"{address!r} is not the address of a Dask scheduler ({error}); write tcp://10.0.0.5:8786 or {LOCAL}"
        ) from None
    return full


def _local(device: str, workers: int | None) -> dict[str, Any]:
    """A scheduler and workers on this machine, for SpecCluster."""
    from distributed import Nanny, Scheduler

    cores, gpus = environment.core_count(), _gpus(device)
    count = workers or len(gpus) or cores
    options: dict[str, Any] = {
        "host": "127.0.0.1",
        "memory_limit": 0,
        "dashboard": False,
        "silence_logs": logging.ERROR,
    }
    made = {
        number: {
            "cls": Nanny,
            "options": {
                **options,
                "preload": [__name__],
                "nthreads": max(2, min(BESIDE, cores // count)) if gpus else 1,
                "env": {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {},
            },
        }
        for number in range(count)
    }
    return {
        "workers": made,
        "scheduler": {"cls": Scheduler, "options": {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}},
    }


def dask_setup(worker: Any) -> None:
    """Dask calls this in each worker that is started here."""
    ignore_interrupts()


def _gpus(device: str) -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them; none for the emulator. Raises DeviceUnavailable."""
    if device.startswith("emulator") or (device == "auto" and not _has_gpu()):
        return []
    from ..devices.cuda import require_gpu

    require_gpu()
    return nvml.visible() or ["0"]
