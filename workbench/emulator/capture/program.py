"""Runs a program under the library that stands in for CUDA, and gathers what came of its launches."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..architectures import DEFAULT, architecture, limits_of
from ..explain.words import say_count
from ..findings import Finding, Severity
from .server import HostEvent, Launched, Options, Server
from .sites import line_of, test_of

_LIBRARY = "libworkbench_cuda.so.1"
_NAMES = ("libcudart.so.12", "libcudart.so.13", "libcuda.so.1")
_SOCKET = "WORKBENCH_CAPTURE"
_SEVERITIES = dict.fromkeys(("leak", "unwritten_copy", "unread_output"), Severity.STRICT)
_KERNEL_OF_LAUNCH = re.compile(r"the launch of ([\w:]+)")
_HEADER = struct.Struct("<QQ")
_LAST_WORDS = 10.0
"""Seconds until the end of a process whose program has ended: others that it has started may go on."""

_PYTHON = {"CUPY_ACCELERATORS": "", "CUPY_CACHE_IN_MEMORY": "1", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""For CuPy, which otherwise takes machine code from its cache, and calls libraries of machine code; and for PyTorch,
whose tensors otherwise lie side by side in one allocation, so that nobody notices what leaves one."""


class CaptureError(RuntimeError):
    """A program that cannot be captured; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class HostFinding:
    """What the host's code did wrong, at its line where that is known.

    ``kind``: ``host_race`` (memory that an asynchronous copy or a kernel may still use), ``host_access`` (a pointer of
    the device that the host follows), ``out_of_bounds``, ``wrong_direction``, ``invalid_free``, ``unread_error`` (a
    failed launch whose error nothing reads), ``tensor_map`` (one that the driver refuses), ``not_emulated``; of
    severity strict ``leak``, ``unwritten_copy`` and ``unread_output`` (what a launch has stored is never copied back).
    ``test``: that of pytest which was running."""

    kind: str
    message: str
    place: str
    severity: Severity
    test: str = ""

    def __str__(self) -> str:
        title = self.kind.replace("_", " ")
        if self.severity is not Severity.ERROR:
            title = f"{self.severity}: {title}"
        said = f"{self.place}: {title}: {self.message}" if self.place else f"{title}: {self.message}"
        return f"{said}\n  in {self.test}" if self.test else said


@dataclass
class Captured:
    """What came of a program: its exit code, its launches, and what was found, each thing once.

    ``launched_at`` says of each of ``findings`` which kernel was launched, at which line of the host, in which test."""

    command: tuple[str, ...]
    strict: bool = False
    exit_code: int = 0
    launches: Counter[str] = field(default_factory=Counter)
    warp_instructions: int = 0
    findings: list[Finding] = field(default_factory=list)
    launched_at: list[str] = field(default_factory=list)
    host: list[HostFinding] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[Finding | HostFinding]:
        """The findings that are failures."""
        failing = {Severity.ERROR, Severity.STRICT} if self.strict else {Severity.ERROR}
        found: list[Finding | HostFinding] = [*self.findings, *self.host]
        return [one for one in found if one.severity in failing]

    @property
    def ok(self) -> bool:
        """Whether nothing was found, and every launch could be executed."""
        return not self.failures and not self.refused

    def as_dict(self) -> dict[str, Any]:
        """In types that JSON has."""
        return {
            "command": list(self.command),
            "ok": self.ok,
            "exit_code": self.exit_code,
            "launches": dict(self.launches),
            "warp_instructions": self.warp_instructions,
            "findings": [
                {**asdict(one), "code": one.code, "text": str(one), "launched_at": at}
                for one, at in zip(self.findings, self.launched_at, strict=True)
            ],
            "host": [{**asdict(one), "text": str(one)} for one in self.host],
            "refused": list(self.refused),
        }

    def __str__(self) -> str:
        failures = len(self.failures)
        said = say_count(failures, "hazard") if failures else "no hazard found"
        launches = self.launches.total()
        said += f" in {launches} launch{'' if launches == 1 else 'es'} of {say_count(len(self.launches), 'kernel')}"
        said += f", {self.warp_instructions:,} warp instructions"
        if others := len(self.findings) + len(self.host) - failures:
            said += f", {say_count(others, 'finding')} that {'is' if others == 1 else 'are'} no failure"
        if self.refused:
            said += f", {len(self.refused)} not executed"
        if self.exit_code < 0:
            said += f"; {signal.Signals(-self.exit_code).name} has ended the program"
        return f"{Path(self.command[0]).name}: {said}"


class _Gathered:
    """What the servers of all processes say, told once each as it comes."""

    def __init__(self, result: Captured, tell: Callable[[str], None]) -> None:
        self._result, self._tell = result, tell
        self._lock = threading.Lock()
        self._seen: set[object] = set()

    def launched(self, one: Launched) -> None:
        with self._lock:
            if one.refused:
                self._once(one.refused, self._result.refused, f"{_at(one.site, one.kernel)}{one.refused}")
                return
            if not one.is_copy:
                self._result.launches[one.kernel] += 1
            self._result.warp_instructions += one.warp_instructions
            for finding in one.findings:
                key = (finding.cause, finding.location, finding.other, finding.instruction)
                if key not in self._seen:
                    self._seen.add(key)
                    self._result.findings.append(finding)
                    self._result.launched_at.append(_launch(one))
                    if finding.severity is Severity.ERROR or self._result.strict:
                        self._tell(f"{finding}\n  in {self._result.launched_at[-1]}")

    def said(self, event: HostEvent) -> None:
        with self._lock:
            kernel = _KERNEL_OF_LAUNCH.match(event.message)
            place = line_of(event.site, kernel[1] if kernel else "")
            if (event.kind, event.message, place) in self._seen:
                return
            self._seen.add((event.kind, event.message, place))
            severity = _SEVERITIES.get(event.kind, Severity.ERROR)
            found = HostFinding(event.kind, event.message, place, severity, test_of(event.site))
            self._result.host.append(found)
            if severity is Severity.ERROR or self._result.strict:
                self._tell(str(found))

    def _once(self, key: str, into: list[str], text: str) -> None:
        if key not in self._seen:
            self._seen.add(key)
            into.append(text)
            self._tell(text)


def _launch(one: Launched) -> str:
    at, test = _at(one.site, one.kernel).removesuffix(": "), test_of(one.site)
    return ", ".join(filter(None, (one.kernel, at and f"launched at {at}", test and f"in {test}")))


def _at(site: str, kernel: str) -> str:
    place = line_of(site, kernel.partition("(")[0].split()[-1]) if site else ""
    return f"{place}: " if place else ""


def capture(
    command: Sequence[str],
    *,
    arch: str | None = None,
    seed: int = 0,
    strict: bool = False,
    suppress: Sequence[str] = (),
    max_seconds: float | None = None,
    kernel: str | None = None,
    sample: int | None = None,
    environment: Mapping[str, str] | None = None,
    output: int | None = None,
    tell: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Captured:
    """Runs a program that was built for CUDA, with every launch executed by the emulator and checked.

    ``command`` is the program and its arguments; ``arch`` the device's architecture, such as ``sm_80``, by default
    sm_90a; ``seed``, ``strict``, ``suppress`` and ``max_seconds`` (of a launch) are those of ``launch``. Only launches
    of ``kernel`` are checked, and of each kernel the first ``sample``; others are executed all the same.
    ``environment`` adds variables; ``tell`` is called with each finding as it comes. The program reads and prints where
    this process does, or prints to the file descriptor ``output``.

    Raises ``CaptureError`` where the program cannot be started, and ``ArchitectureError``."""
    stand_in = library()
    result = Captured(tuple(command), strict)
    limits = limits_of(architecture(arch or DEFAULT))
    options = Options(limits, seed, strict, tuple(suppress), max_seconds, kernel, sample, threads=os.cpu_count() or 1)
    gathered = _Gathered(result, tell)
    with TemporaryDirectory(prefix="capture") as folder:
        for name in _NAMES:
            Path(folder, name).symlink_to(stand_in)
        path = str(Path(folder, "socket"))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen()
        serving: list[threading.Thread] = []
        accepting = threading.Thread(target=_accept, args=(listener, options, gathered, serving), daemon=True)
        accepting.start()
        try:
            result.exit_code = _run(command, _environment(stand_in, folder, path, environment or {}), output)
        finally:
            listener.close()
        for one in serving:
            one.join(_LAST_WORDS)
    return result


def library() -> Path:
    """The library that stands in for CUDA. Raises ``CaptureError`` where it was not built."""
    for folder in sys.modules[__package__].__path__:  # an editable install has what is compiled in a folder of its own
        if (found := Path(folder, _LIBRARY)).exists():
            return found
    raise CaptureError(f"{_LIBRARY} was not built: programs are captured on Linux, where the package is installed anew")


def _environment(stand_in: Path, folder: str, path: str, more: Mapping[str, str]) -> dict[str, str]:
    found = {**os.environ, **_PYTHON, **more, _SOCKET: path}
    for name, value, separator in (("LD_PRELOAD", str(stand_in), " "), ("LD_LIBRARY_PATH", folder, ":")):
        found[name] = separator.join(filter(None, (value, found.get(name))))
    return found


def _run(command: Sequence[str], environment: Mapping[str, str], output: int | None) -> int:
    """The exit code, negative for a signal. Ctrl-C is the program's to answer."""
    try:
        process = subprocess.Popen(list(command), env=environment, stdout=output)
    except OSError as error:
        raise CaptureError(f"{command[0]} cannot be started: {error.strerror}") from None
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)


def _accept(listener: socket.socket, options: Options, gathered: _Gathered, serving: list[threading.Thread]) -> None:
    with suppress(OSError):  # it was closed: the program has ended
        while True:
            connection, _ = listener.accept()
            serving.append(threading.Thread(target=_serve, args=(connection, options, gathered), daemon=True))
            serving[-1].start()


def _serve(connection: socket.socket, options: Options, gathered: _Gathered) -> None:
    server = Server(options, gathered.launched, gathered.said)
    files = [server.arena.file]
    try:
        with connection, connection.makefile("rb") as requests:
            while len(header := requests.read(_HEADER.size)) == _HEADER.size:
                operation, size = _HEADER.unpack(header)
                if len(request := requests.read(size)) < size:
                    break
                status, payload = server.answer(operation, request)
                message = _HEADER.pack(status, len(payload)) + payload
                sent = socket.send_fds(connection, [message], files) if files else 0
                connection.sendall(message[sent:])
                files = []
    except OSError:
        pass  # the process has ended
    finally:
        server.end()
        server.arena.close()
