"""Modules of stages: imported in a process of their own, and declared here as that process describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..model import plain
from ..model.declared import BadStage
from ..model.operation import Operation
from ..model.plain import OffSchema
from ..model.problem import Problem
from .host import Host, Remote

STAGE = re.compile(r"[A-Za-z0-9_.-]{1,100}")

MOST_STAGES, MOST_EDGE_CASES, MOST_VALUES, MOST_CODE = 1000, 1000, 10_000, 4 << 20

PARTS = (
    *("operation", "name", "source", "code", "idea", "parent", "track", "parameters", "space", "architecture"),
    *("specific", "alignment", "edge_cases", "deterministic", "text"),
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
