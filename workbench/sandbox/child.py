"""The process in which the Python code of stages runs, the server that forks it, and the messages it answers.

The process answers questions, and cannot do much else (`confine.py`). It gets shapes, types and parameters, never a
seed or an input. It has no files but its socket, and ends with the process that started it.

The server has modules of the workbench and of its packages, and nothing of the judge: it is started afresh, is given
no seed and no input, and imports no stage and no project. A process that it forks has no file but its socket, and the
environment and the folder of whoever asks. It ends with the server, and the server with the thread that started it. For
Linux alone (pidfds, 5.3 and later): elsewhere every process is started afresh."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..model.errors import declares, text_of, where
from ..model.launch import Machine, planning_for
from ..model.operation import Operation
from ..model.stage import Stage
from . import confine, plain

# ------------------------------------------------------------ stubs: modules of stages, which only this process imports
STAGES = "stages"
"""A module of this name, or inside of a package of this name, has stages and nothing else."""

OURS = __name__.partition(".")[0]
"""The package of the workbench's own stages, which are imported everywhere."""


class Stub(ModuleType):
    """Stands for a module of stages; it has nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(
            f"{self.__name__}.{name} is not there: modules of stages are imported in a process of their own, and by no "
            "other module; move what an operation and stages share into the module of the operation",
            name=self.__name__,
        )


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ not in met:
            met.append(module.__name__)


met: list[str] = []
"""The modules of which stubs have been imported, in this order: it is that of the ladder."""


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.packages: set[str] = set()
        self.real: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top, *inner = fullname.split(".")
        if top not in self.packages or STAGES not in (inner or [top]) or fullname in self.real:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is None:
            return None
        stub = importlib.machinery.ModuleSpec(fullname, _Loader(), origin=found.origin)
        stub.submodule_search_locations = found.submodule_search_locations
        stub.has_location = True  # so that it is known which file to watch
        return stub


_finder = _Finder()


def install(modules: Sequence[str]) -> None:
    """From now on the modules of stages in the top packages of these are stubs."""
    _finder.packages |= {name.partition(".")[0] for name in modules} - {OURS}
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def import_for_real(name: str) -> None:
    """Import a module of stages itself."""
    _finder.real.add(name)
    if isinstance(sys.modules.get(name), Stub):
        del sys.modules[name]
    importlib.import_module(name)


def is_stages(name: str) -> bool:
    """Whether a module of the project is one of stages, as far as its name says."""
    top, *inner = name.split(".")
    return STAGES in (inner or [top])


# ----------------------------------------------------------- messages: JSON texts over a socket, each behind its length

MOST_BYTES = 8 << 20
"""Of one message."""


class Silent(Exception):
    """Nothing whole came in time."""


class Closed(Exception):
    """The other end is closed, or what it sends is no message; the text says which."""


def encoded(message: Any) -> bytes:
    """The bytes of a message. Raises ValueError for one that is too large, and what JSON raises."""
    text = json.dumps(message, allow_nan=False).encode()
    if len(text) > MOST_BYTES:
        raise ValueError(f"a message of {len(text):,} bytes; {MOST_BYTES:,} are allowed")
    return len(text).to_bytes(4, "big") + text


def send(connection: socket.socket, message: Any) -> None:
    """Send a message. Raises Closed."""
    try:
        connection.sendall(encoded(message))
    except OSError:
        raise Closed("it has ended") from None


def receive(connection: socket.socket, seconds: float | None = None) -> Any:
    """The next message, whole within so many seconds. Raises Silent and Closed."""
    until = None if seconds is None else time.monotonic() + seconds
    length = int.from_bytes(_read(connection, 4, until), "big")
    if length > MOST_BYTES:
        raise Closed(f"it sent what is no answer, or one of {length:,} bytes; {MOST_BYTES:,} are allowed")
    text = _read(connection, length, until)
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise Closed("it sent what is no answer") from None


def _read(connection: socket.socket, count: int, until: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        left = None if until is None else max(0.0, until - time.monotonic())
        if not select.select([connection], [], [], left)[0]:
            raise Silent
        try:
            part = connection.recv(count - len(parts))
        except OSError:
            part = b""
        if not part:
            raise Closed("it has ended")
        parts += part
    return bytes(parts)


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number that an answer may have")


# ------------------------------------------------------------------------------------------------ the process of stages

LINES = 4
"""Of a traceback that are told."""


def answer(descriptor: int, parent: int, namespaces: bool = False) -> None:
    """Say which protections hold, then answer until the other end is closed. The first question says which modules
    there are."""
    connection = socket.socket(fileno=descriptor)
    end_with(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.dont_write_bytecode = True
    held = confine.confined() + [confine.NAMESPACES] * namespaces
    with contextlib.suppress(Closed):
        send(connection, held)
    host: _Host | None = None
    while True:
        try:
            question = receive(connection)
        except Closed:
            return
        if host is None:
            host = _Host(question)
        try:
            send(connection, host.answer(question))
        except ValueError as error:  # the answer is too large
            send(connection, {"trouble": told(error)})


class _Host:
    """The modules of a project in this process: one of stages, or those of its operations."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.path, self.module, self.homes, self.known = (about[n] for n in ("path", "module", "homes", "known"))
        self.others: list[str] = about["others"]
        sys.path[:] = self.path
        self.stages: dict[tuple[str, str], Stage[Any]] = {}
        install([*self.homes.values(), *self.others, *([self.module] if self.module else [])])

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"begin": self.begin, "solve": self.solve}[question["ask"]](question)
        except BaseException as error:  # an exit of the stage is none of the process
            return {"trouble": told(error)}

    def begin(self, _: dict[str, Any]) -> dict[str, Any]:
        """Import the module of stages, and say what it declares."""
        if not self.module:
            return {"stages": []}
        for home in dict.fromkeys(self.homes.values()):
            if home.partition(".")[0] != OURS:
                importlib.import_module(home)
        spec = importlib.util.find_spec(self.module)
        if spec and spec.origin and b".stages" in Path(spec.origin).read_bytes():
            for other in self.others:  # what this module takes from them
                with contextlib.suppress(BaseException):
                    import_for_real(other)
        before = {id(o): set(map(id, o.stages)) for o in _operations()}
        for operation in _operations():  # stages of other modules, which may be parents
            known = self.known.get(operation.name, [])
            there = {s.name for s in operation.stages}
            for name, track in known:
                if name not in there:
                    made = Stage(operation.name, name, "", "", _elsewhere, owner=operation, track=track)
                    operation.stages.append(made)
                    before[id(operation)].add(id(made))
        import_for_real(self.module)
        return {
            "stages": [
                _described(stage)
                for operation in _operations()
                for stage in operation.stages
                if id(stage) not in before.get(id(operation), set())
                and (stage.name not in {n for n, _ in self.known.get(operation.name, ())} or id(operation) in before)
            ]
        }

    def solve(self, question: dict[str, Any]) -> dict[str, Any]:
        """All that a stage says of a problem; what comes after a reason against it only where it is asked for."""
        stage = self._stage(question["operation"], question["stage"])
        kind: Any = stage.owner
        problem: Any = plain.problem_of(kind.problem, question["problem"])
        told = Machine(**question["machine"])
        given = dataclasses.replace(stage, parameters={**stage.parameters, **question["parameters"]}, machine=told)
        with planning_for(told):
            return self._solved(given, problem, question["whole"])

    def _solved(self, given: Stage[Any], problem: Any, whole: bool) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for part, function in (
            ("accepts", lambda: _reason(given.accepts(problem))),
            ("constraint", lambda: _reason(given.constraint(problem, given.parameters))),
        ):
            answer[part] = _tried(function)
            if answer[part].get("value") is not None and not whole:
                return answer
        answer["sizes"] = _tried(lambda: _sizes(given.sizes_for(problem, given.parameters)))
        answer["plan"] = _tried(lambda: plain.encoded(given.plan_for(problem, given.sizes(problem))), given.plan_for)
        return answer

    def _stage(self, operation: str, name: str) -> Stage[Any]:
        if (operation, name) in self.stages:
            return self.stages[operation, name]
        for module in (self.homes[operation], *self.others):
            importlib.import_module(module)
            for stage in (s for o in _operations() if o.name == operation for s in o.stages if s.name == name):
                self.stages[operation, name] = stage
                return stage
        raise LookupError("no module of the project declares it: declare it at the top level of one")


def _operations() -> list[Operation[Any]]:
    """Every operation at module level in a module that has been imported."""
    found = {
        id(value): value
        for module in list(sys.modules.values())
        if not isinstance(module, Stub)
        for value in list(getattr(module, "__dict__", {}).values())
        if type(value) is Operation
    }
    return list(found.values())


def _described(stage: Stage[Any]) -> dict[str, Any]:
    return {
        "operation": stage.operation,
        "name": stage.name,
        "source": "" if stage.code is not None else stage.source,
        "code": stage.code,
        "idea": stage.idea,
        "parent": stage.parent,
        "track": stage.track,
        "parameters": _sizes(stage.parameters),
        "space": {name: [int(v) for v in values] for name, values in stage.space.items()},
        "architecture": int(stage.architecture),
        "specific": bool(stage.specific),
        "alignment": int(stage.alignment),
        "edge_cases": [plain.all_words(p) for p in stage.edge_cases],
        "problem": [plain.all_words(p) for p in (stage.problem,) if p],
        "deterministic": bool(stage.deterministic),
        "text": text_of(stage.plan_for),
    }


def _elsewhere(problem: Any, size: Any) -> Any:
    raise RuntimeError("the stage is declared in another module")


def _tried(function: Callable[[], Any], declared: Any = None) -> dict[str, Any]:
    try:
        return {"value": function()}
    except BaseException as error:  # an exit of the stage is none of the process
        return {"error": told(error, declared)}


def told(error: BaseException, declared: Any = None) -> str:
    """What a stage raised, from the line of its own code on; else where the function is declared, of which the
    workbench cannot use what it returned."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if declares(f.filename)]
    lines = [*traceback.format_list(frames[-LINES:]), *traceback.format_exception_only(error)]
    place = "" if frames or declared is None else f"{where(declared)}: "
    return f"{place}{''.join(lines).strip()}"[-plain.MOST_TEXT :]


def _reason(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"it has to return a reason or None, not {type(value).__name__}")
    return value or None


def _sizes(values: Any) -> dict[str, int]:
    return {str(name): plain.numbers(value) for name, value in dict(values).items()}


# ------------------------------------------------------------------------------------------------ what it may not do


def end_with(parent: int) -> None:
    """Be killed when the thread ends that started this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; who started us decides
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


# --------------------------------------------------------------------------------- the server that forks such processes

KEPT = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "PYTHONPATH", "PYTHONHASHSEED"),
        *("PYTHONUTF8", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "SYSTEMROOT"),
    }
)
"""Of the environment, what is handed on, and locales: the rest might tell who asks, or change what is launched."""

CODE_BYTES = 4


def environment() -> dict[str, str]:
    """What a stage may know of that of this process."""
    return {name: value for name, value in os.environ.items() if name in KEPT or name.startswith("LC_")}


def started(function: str, connection: socket.socket, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """A fresh process without a file but the socket, which calls a function of this module."""
    number, root = connection.fileno(), str(Path(__file__).parents[2])
    program = (
        f"import sys; sys.path.append({root!r}); from workbench.sandbox import child; "
        f"child.{function}({number}, {os.getpid()})"
    )
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(number,),
        env=variables | {"OPENBLAS_NUM_THREADS": "1"},  # threads of BLAS would not survive a fork, nor be confined
    )


# ------------------------------------------------------------------------------------------------- where it is asked


class Forked:
    """A process that the server forked, as `subprocess.Popen` shows one that was started here."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server  # sends the exit code, and ends the process when this end is closed
        self._code: int | None = None
        self.orphaned = False  # the server ended first, and the process with it

    def kill(self) -> None:
        """End it, whatever it is doing."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_WR)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self._code is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a process of stages", timeout or 0.0)
            with self._server:
                code = self._server.recv(CODE_BYTES)
            self.orphaned = not code
            self._code = int.from_bytes(code, "big", signed=True) if code else -signal.SIGKILL
        return self._code


class ForkServer:
    """The server of this process. It is started with the first question, and again where it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def fork(self, connection: socket.socket, strategies: bool) -> Forked:
        """A process of stages that answers at the other end of the connection, with Hypothesis' strategies loaded
        where its modules import them. Raises OSError and Closed."""
        try:
            return self._forked(connection, strategies)
        except (OSError, Closed):  # it ended just now
            self.close()
            return self._forked(connection, strategies)

    def begin(self) -> None:
        """Start it where it has not been."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._control, theirs = socket.socketpair()
            with theirs:
                self._process = started("serve", theirs, environment())

    def _forked(self, connection: socket.socket, strategies: bool) -> Forked:
        self.begin()
        assert self._control is not None
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"\0"], [connection.fileno(), theirs.fileno()])
        about = {"environment": environment(), "folder": os.getcwd(), "strategies": strategies}  # noqa: PTH109
        send(self._control, about)
        return Forked(ours)

    def close(self) -> None:
        """End the server, and all processes that it forked."""
        process, self._process = self._process, None
        if self._control is not None:
            self._control.close()
            self._control = None
        if process is not None:
            process.kill()
            process.wait()


def usable() -> bool:
    """Whether there can be a server here."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


# -------------------------------------------------------------------------------------------------------- the server


def serve(descriptor: int, parent: int) -> None:
    """Fork a process for every question until the other end is closed."""
    end_with(parent)
    namespaces = confine.separated()
    confine.hide()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all objects
    if namespaces and os.fork() == 0:  # the first process, with which all others there end
        os.close(descriptor)
        end_with(os.getppid())
        while True:
            signal.pause()
    _serve(socket.socket(fileno=descriptor), namespaces)


def _serve(control: socket.socket, namespaces: bool) -> None:
    events = select.poll()
    events.register(control, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}  # a process by its pidfd, with the socket of who asked for it
    askers: dict[int, int] = {}  # the pidfd by that socket, as long as nothing has come from there
    while True:
        number = events.poll()[0][0]  # one at a time: others may be of descriptors that it closes
        if number == control.fileno():
            try:
                _, (connection, asker), _, _ = socket.recv_fds(control, 1, 2)
                question = receive(control)
            except (ValueError, OSError, Closed):
                return
            if question["strategies"]:
                importlib.import_module("hypothesis.strategies")
            pid = os.fork()
            if pid == 0:
                others = {control.detach(), asker, *running, *(number for _, number in running.values())}
                _begin(connection, question, others, namespaces)
            os.close(connection)
            handle = os.pidfd_open(pid)
            running[handle], askers[asker] = (pid, asker), handle
            events.register(handle, select.POLLIN)
            events.register(asker, select.POLLIN)
        elif number in askers:
            events.unregister(number)
            signal.pidfd_send_signal(askers.pop(number), signal.SIGKILL)
        else:
            pid, asker = running.pop(number)
            if askers.pop(asker, None) is not None:
                events.unregister(asker)
            events.unregister(number)
            os.close(number)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with socket.socket(fileno=asker) as answer, contextlib.suppress(OSError):
                answer.send(code.to_bytes(CODE_BYTES, "big", signed=True))


def _begin(connection: int, question: dict[str, Any], others: set[int], namespaces: bool) -> None:
    """In the fork: make it what a process that is started afresh would be, and have it answer; it does not return."""
    code = 1
    try:
        for number in others:
            os.close(number)
        os.environ.clear()
        os.environ.update(question["environment"])
        with contextlib.suppress(OSError):  # it has been removed
            os.chdir(question["folder"])
        answer(connection, os.getppid(), namespaces)
        code = 0
    finally:
        os._exit(code)
