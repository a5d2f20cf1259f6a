"""Asks stages in a process of their own: nothing of their Python code runs in the process that judges them.

What they answer is plain data, which is checked and built here. A process that ends, is silent or says nonsense is the
fault of the stage that was asked, which is not asked again; the next stage gets another process."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..model.errors import BadStage
from ..model.launch import Plan, machine
from ..model.operation import Operation
from ..model.problem import Problem
from . import child, confine, plain
from .child import Forked, ForkServer
from .plain import OffSchema

START_SECONDS, ANSWER_SECONDS = 60.0, 10.0
"""How long importing the modules may take, and an answer."""

REMEMBERED = 4096
"""Answers that are kept."""

_starter = ThreadPoolExecutor(1)
"""Starts all processes: a process ends when the thread ends that started it, and this one lives to the end."""

_server = ForkServer()

_hosts: list[Host] = []


@dataclass(frozen=True)
class Answer:
    """What a stage says of a problem; each part is as it came, and is checked when it is read."""

    spec: str
    problem: Problem
    parts: Mapping[str, Any]

    def _part(self, name: str, what: str) -> Any:
        part = self.parts.get(name)
        if type(part) is not dict or len(part) != 1 or not {"value", "error"} & set(part):
            raise BadStage(f"{what} of {self.spec} gave no answer")
        if "error" in part:
            raise BadStage(f"{what} of {self.spec} fails:\n{_text(part['error'])}")
        return part["value"]

    def _checked(self, name: str, what: str, build: Callable[[Any], Any]) -> Any:
        value = self._part(name, what)
        try:
            return build(value)
        except OffSchema as error:
            raise BadStage(f"{what} of {self.spec} gives what cannot be used: {error}") from None

    def reason(self, name: str, what: str) -> str | None:
        """Why the stage does not take the problem. Raises BadStage."""
        reason: str | None = self._checked(
            name, what, lambda value: None if value is None else plain.text_of(value, "the reason")
        )
        return reason

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Raises BadStage."""
        sizes: dict[str, int] = self._checked("sizes", "sizes", lambda value: plain.sizes_of(value, "sizes"))
        return sizes

    @cached_property
    def plan(self) -> Plan:
        """Raises BadStage."""
        plan: Plan = self._checked("plan", "the launch", lambda value: plain.plan_of(value, self.problem.arrays()))
        return plan


def _text(given: Any) -> str:
    return given[: plain.MOST_TEXT] if type(given) is str else repr(given)[:200]


class Orphaned(BadStage):
    """The process of a stage ended together with the server that forked it. The stage may not be the cause."""


class Host:
    """The process of one module of stages, or, without one, of all stages that are declared beside their operations.

    `homes` are the modules of the operations by name, `known` the stages that other modules declare, by operation, each
    with its track; `others` are the other modules of stages, or without a module those of a project without operations.
    """

    def __init__(
        self,
        module: str,
        homes: Mapping[str, str],
        known: Mapping[str, list[tuple[str, str]]],
        others: Sequence[str] = (),
    ) -> None:
        self.module = module
        self._about: dict[str, Any] = {"ask": "begin", "module": module, "homes": dict(homes), "known": dict(known)}
        self._about["others"] = list(others)
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._connection: socket.socket | None = None
        self._answers: OrderedDict[Any, Answer] = OrderedDict()
        self._ended: dict[tuple[str, str], str] = {}
        self._lock = threading.RLock()
        self._description: dict[str, Any] = {}
        self._pid = os.getpid()
        self.held: tuple[str, ...] = ()
        """Which protections hold; the process says so before it imports a stage."""
        _hosts.append(self)

    def describe(self) -> list[Any]:
        """What the module of stages declares, as it came. Raises BadStage."""
        with self._lock:
            told = self._begun()
        stages = told.get("stages")
        return stages if type(stages) is list else []

    def solve(self, operation: str, stage: str, problem: Problem, parameters: Mapping[str, int], whole: bool) -> Answer:
        """What the stage says of the problem; all of it, also where it does not take it, with `whole`. Raises
        BadStage."""
        words = plain.words(problem)
        key = operation, stage, type(problem), tuple(words.values()), tuple(parameters.items()), machine()
        with self._lock:
            if (ended := self._ended.get((operation, stage))) is not None:
                raise BadStage(ended, ended=True)
            known = self._answers.get(key)
            if known and (not whole or "plan" in known.parts):
                return known
            question = {"ask": "solve", "operation": operation, "stage": stage, "problem": words, "whole": whole}
            question |= {"parameters": dict(parameters), "machine": dataclasses.asdict(machine())}
            try:
                told = self._asked(question)
            except BadStage as error:
                message = f"the Python code of {operation}:{stage} cannot be used: {error}"
                self._ended[operation, stage] = message
                raise BadStage(message, ended=True) from None
            if "trouble" in told:
                raise BadStage(f"the Python code of {operation}:{stage} cannot be used:\n{_text(told['trouble'])}")
            answer = self._answers[key] = Answer(f"{operation}:{stage}", problem, told)
            if len(self._answers) > REMEMBERED:
                self._answers.popitem(last=False)
            return answer

    def close(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process = self._process, None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if process is not None and self._pid == os.getpid():
            process.kill()
            process.wait()

    def _asked(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer; the second one where another stage may have ended the server. Raises BadStage."""
        with contextlib.suppress(Orphaned):
            self._begun()
            return self._exchange(question, ANSWER_SECONDS)
        self._begun()
        return self._exchange(question, ANSWER_SECONDS)

    def _begun(self) -> dict[str, Any]:
        """Start the process where there is none, and let it import. Raises BadStage."""
        if self._pid != os.getpid():  # forked: the process is the parent's
            self._pid, self._process, self._connection = os.getpid(), None, None
        if self._process is not None:
            return self._description
        _starter_of_this_process().submit(self._start).result()
        self.held = _held(self._receive(START_SECONDS))
        told = self._exchange(self._about | {"path": sys.path}, START_SECONDS)
        if "trouble" in told:
            self.close()
            raise BadStage(_text(told["trouble"]))
        self._description = told
        return told

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            if child.usable():
                strategies = any(home.partition(".")[0] != child.OURS for home in self._about["homes"].values())
                self._process = _server.fork(theirs, strategies)
            else:
                self._process = child.started("answer", theirs, child.environment())
        self._connection = ours

    def _exchange(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._connection is not None
        try:
            with contextlib.suppress(child.Closed):  # which is found out below
                child.send(self._connection, question)
        except BaseException:  # also when the user interrupts: half of a question may have been sent
            self.close()
            raise
        told = self._receive(seconds)
        if type(told) is not dict:
            self.close()
            raise BadStage("it sent what is no answer")
        return told

    def _receive(self, seconds: float) -> Any:
        assert self._connection is not None
        try:
            return child.receive(self._connection, seconds)
        except child.Silent:
            self.close()
            raise BadStage(f"it gave no answer within {seconds:.3g} s: a loop without end, or a wait") from None
        except child.Closed as error:
            raise self._how_it_ended(str(error)) from None
        except BaseException:  # also when the user interrupts: an answer to this question would be taken for another's
            self.close()
            raise

    def _how_it_ended(self, said: str) -> BadStage:
        assert self._process is not None
        process = self._process
        if said != "it has ended":
            self.close()
            return BadStage(said)
        try:
            code = process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.close()
            return BadStage("it closed its end of the connection")
        self.close()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        said = f"the process in which it ran {how}; a stage may not end it"
        return Orphaned(said) if isinstance(process, Forked) and process.orphaned else BadStage(said)


def _held(told: Any) -> tuple[str, ...]:
    return tuple(map(str, told)) if type(told) is list else ()


def protections(host: Host) -> tuple[str, ...]:
    """Which protections its process has here: names of `confine`."""
    with contextlib.suppress(BadStage, OSError):
        host.describe()
    return host.held


_starter_pid = os.getpid()


def _starter_of_this_process() -> ThreadPoolExecutor:
    global _starter, _starter_pid, _server
    if _starter_pid != os.getpid():  # forked: its thread and the server are the parent's
        _starter, _starter_pid, _server = ThreadPoolExecutor(1), os.getpid(), ForkServer()
    confine.hide()  # the inputs
    return _starter


def begin() -> None:
    """Let the server start, which takes a moment: somebody will soon be asked."""
    if child.usable():
        _starter_of_this_process().submit(lambda: _server.begin())  # of this process


@atexit.register
def _end() -> None:
    close_all()
    if _starter_pid == os.getpid():
        _server.close()


def close_all() -> None:
    """End all processes of stages: what is written after this, they cannot change."""
    for host in _hosts:
        with contextlib.suppress(OSError):
            host.close()


class Remote:
    """A function of a stage, which is called in the process of the stages.

    `local` is the same function in this process, where its module has been imported here; it is not called. `text` is
    that of the declaration."""

    def __init__(
        self, host: Host, spec: tuple[str, str], part: str, parameters: Mapping[str, int], local: Any, text: str = ""
    ) -> None:
        self._host, self._spec, self._part, self._parameters = host, spec, part, dict(parameters)
        self.local, self.text = local, text
        if local is not None:
            self.__wrapped__ = local  # whose source it is

    def __eq__(self, other: object) -> bool:
        """It is equal to the function that it stands for."""
        if isinstance(other, Remote):
            return (self._host, self._spec, self._part) == (other._host, other._spec, other._part)
        return self.local is not None and other is self.local

    def __hash__(self) -> int:
        return hash(self.local or (self._spec, self._part))

    def __reduce__(self) -> tuple[Any, ...]:
        """It travels as the function itself: its process stays here. Raises TypeError where there is no function."""
        if self.local is None:
            raise TypeError(f"{self._part} of {':'.join(self._spec)} is in a process of its own")
        return _itself, (self.local,)

    @property
    def module(self) -> str:
        """The module of stages that declares it; empty where that is the module of the operation."""
        return self._host.module

    def __call__(self, problem: Problem, size: Mapping[str, int] | None = None) -> Any:
        if size is None or self._part == "plan":  # with the sizes, which are made of the parameters
            size = {name: (size or self._parameters)[name] for name in self._parameters}
        made = self.ask(problem, size)
        alone = isinstance(made, Plan) and len(made.launches) == 1 and not made.scratch
        return made.launches[0] if alone else made

    def ask(self, problem: Problem, parameters: Mapping[str, int]) -> Any:
        """What the function says with these parameters. Raises BadStage."""
        whole = self._part in ("sizes", "plan")
        answer = self._host.solve(*self._spec, problem, parameters, whole)
        match self._part:
            case "accepts":
                return answer.reason("accepts", "supports")
            case "constraint":
                return answer.reason("constraint", "constraint")
            case "sizes":
                return answer.sizes
            case _:
                return answer.plan


def _itself(function: Any) -> Any:
    return function


# ---------------------------------------------------------- modules of stages, declared as their process describes them

STAGE = re.compile(r"[A-Za-z0-9_.-]{1,100}")

MOST_STAGES, MOST_EDGE_CASES, MOST_VALUES, MOST_CODE = 1000, 1000, 10_000, 4 << 20

PARTS = (
    *("operation", "name", "source", "code", "idea", "parent", "track", "parameters", "space", "architecture"),
    *("specific", "alignment", "edge_cases", "problem", "deterministic", "text"),
)


@dataclass(frozen=True)
class StageModule:
    """A module of stages, and the modules of the operations that there are."""

    name: str
    homes: Mapping[str, str]
    others: tuple[str, ...] = ()


def declare(module: StageModule, operations: Mapping[str, Operation[Any]]) -> None:
    """Declare the stages of a module. Raises BadStage, and what `Operation.stage` raises."""
    known = {name: [(s.name, s.track) for s in o.stages] for name, o in operations.items()}
    host = Host(module.name, module.homes, known, module.others)
    described = host.describe()
    if len(described) > MOST_STAGES:
        raise BadStage(f"it declares {len(described):,} stages; {MOST_STAGES:,} are allowed")
    for given in described:
        try:
            _declare(given, host, operations)
        except OffSchema as error:
            raise BadStage(f"a stage that it declares cannot be used: {error}") from None


def _declare(given: Any, host: Host, operations: Mapping[str, Operation[Any]]) -> None:
    if type(given) is not dict or set(given) != set(PARTS):
        raise OffSchema("it has other parts than a stage")
    texts = {n: plain.text_of(given[n], n, 10_000) for n in ("operation", "name", "source", "idea", "track")}
    if texts["operation"] not in operations or not STAGE.fullmatch(texts["name"]):
        raise OffSchema(f"{texts['operation'][:80]!r} has no stage that is called {texts['name'][:80]!r}")
    operation = operations[texts["operation"]]
    code = None if given["code"] is None else plain.text_of(given["code"], "code", MOST_CODE)
    parent = None if given["parent"] is None else plain.text_of(given["parent"], "parent")
    parameters = plain.sizes_of(given["parameters"], "parameters")
    spec, text = (operation.name, texts["name"]), plain.text_of(given["text"], "the declaration", MOST_CODE)

    def remote(part: str) -> Any:
        return Remote(host, spec, part, parameters, None, text)

    operation.stage(
        texts["name"],
        source=texts["source"],
        idea=texts["idea"],
        parent=parent,
        track=texts["track"] if parent is None and texts["track"] else None,
        code=code,
        supports=remote("accepts"),
        parameters=parameters,
        sizes=remote("sizes"),
        architecture=plain.whole(given["architecture"], "architecture"),
        specific=plain.flag(given["specific"], "specific"),
        alignment=_alignment(given["alignment"]),
        edge_cases=_edge_cases(given["edge_cases"], operation.problem),
        problem=next(iter(_edge_cases(given["problem"], operation.problem)), None),
        deterministic=plain.flag(given["deterministic"], "deterministic"),
        space=_space(given["space"]),
        constraint=remote("constraint"),
    )(remote("plan"))


def _alignment(given: Any) -> int:
    alignment = plain.whole(given, "alignment")
    if alignment not in {1 << bit for bit in range(9)}:
        raise OffSchema(f"alignment is {alignment}; it has to be 1, 2, 4 ... 256 bytes")
    return alignment


def _space(given: Any) -> dict[str, tuple[int, ...]]:
    if type(given) is not dict or len(given) > plain.MOST_SIZES:
        raise OffSchema("the space is no mapping, or too large")
    found = {}
    for name, values in given.items():
        if type(values) is not list or len(values) > MOST_VALUES:
            raise OffSchema("the values of a parameter are no list, or too many")
        found[name] = tuple(plain.whole(value, "a value of the space") for value in values)
    return found


def _edge_cases(given: Any, kind: type[Problem]) -> tuple[Problem, ...]:
    if type(given) is not list or len(given) > MOST_EDGE_CASES:
        raise OffSchema("the edge cases are no list, or too many")
    return tuple(plain.problem_of(kind, words, whole=True) for words in given)
