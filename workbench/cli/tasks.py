"""What a task of KernelBench or gpu-mode is: what its text says, and what PyTorch says of its shapes."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..model.problem import Problem
from ..model.torch_task import Look, Seen, TaskError, TorchTask
from .new import CannotMake

KINDS = ("kernelbench", "gpumode")
"""What can be imported."""

NEEDED = {"kernelbench": ("Model", "get_inputs", "get_init_inputs"), "gpumode": ("generate_input", "ref_kernel")}
"""What the file of a task has to define."""

RESERVED = {*dir(Problem), "tier", "seed", "distribution"}
"""What fields of a problem cannot be called."""


@dataclass(frozen=True)
class Parsed:
    """What the text of a task says. `sizes` are whole numbers that may be extents, with their values; `suite` the sizes
    that are timed, `tried` others that the task has, `fixed` arguments that are no sizes. `tolerances` are relative and
    absolute, None where the task names none."""

    kind: str
    path: Path
    sizes: dict[str, int]
    suite: list[dict[str, int]]
    tried: list[dict[str, int]] = field(default_factory=list)
    fixed: dict[str, Any] = field(default_factory=dict)
    tolerances: tuple[float, float] | None = None
    about: str = ""


@dataclass(frozen=True)
class Looked:
    """What PyTorch says of a task: its arrays at its own sizes, each extent as an expression of the sizes of a problem
    or None, how many operations it takes, likewise, and whether inputs may be negative that the task draws positive."""

    sizes: dict[str, int]
    arrays: dict[str, Seen]
    shapes: dict[str, list[str | None]]
    flops: str | None
    signs: bool


# ------------------------------------------------------------------------------------------------ the text of a task


def parsed(kind: str, path: Path) -> Parsed:
    """Read the file of a KernelBench task, or the folder of one of gpu-mode. Raises CannotMake, OSError."""
    file = path if kind == "kernelbench" else path / "reference.py"
    if kind == "gpumode" and not path.is_dir():
        raise CannotMake(f"{path} is no folder; a gpu-mode task is a folder with a reference.py and a task.yml")
    if not file.is_file():
        wrong = f"{file} is a folder" if file.is_dir() else f"there is no file {file}"
        raise CannotMake(
            f"{wrong}; a {'KernelBench task is a .py' if kind == 'kernelbench' else 'gpu-mode task has one'}"
        )
    try:
        tree = ast.parse(file.read_text())
    except (SyntaxError, UnicodeDecodeError) as error:
        raise CannotMake(f"{file} is not Python: {error}") from None
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    if missing := [name for name in NEEDED[kind] if name not in defined]:
        others = [k for k in KINDS if k != kind and set(NEEDED[k]) <= defined]
        hint = f"; it is a task of {others[0]}: workbench import {others[0]} {path}" if others else ""
        raise CannotMake(f"{file} defines no {' and no '.join(missing)}, which a {kind} task has{hint}")
    judged = (
        n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name in ("Model", "ref_kernel")
    )
    first = _first_line(ast.get_docstring(next(judged)) or "")
    if kind == "gpumode":
        return _gpumode(file, path / "task.yml", tree, first)
    sizes = _constants(tree)
    return Parsed(kind, file, sizes, [sizes], about=first)


def _first_line(text: str) -> str:
    """What it says, without what could not be put into Python and CUDA C++."""
    lines = text.strip().splitlines()
    return re.sub(r"[^\w ,;:.+*/()=-]", " ", lines[0]).strip(" .") if lines else ""


def _constants(tree: ast.Module) -> dict[str, int]:
    """Whole numbers >= 1 that are assigned at the top of a file; elements of a tuple have its name and their place."""
    found: dict[str, int] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        elements = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        if isinstance(target, ast.Tuple):
            parts = {t.id: e for t, e in zip(target.elts, elements, strict=False) if isinstance(t, ast.Name)}
        elif isinstance(target, ast.Name):
            parts = {f"{target.id}_{i}": e for i, e in enumerate(elements)} or {target.id: value}
        else:
            continue
        for part, element in parts.items():
            whole = isinstance(element, ast.Constant) and type(element.value) is int and element.value >= 1
            if whole and part not in RESERVED:
                found[part] = element.value  # type: ignore[attr-defined]
    return found


def _gpumode(file: Path, settings: Path, tree: ast.Module, about: str) -> Parsed:
    if not settings.is_file():
        raise CannotMake(f"there is no file {settings}; a gpu-mode task has one, with its tests and benchmarks")
    try:
        import yaml
    except ImportError:
        raise CannotMake(f"{settings} is YAML, and PyYAML is not installed: pip install pyyaml") from None
    try:
        given = yaml.safe_load(settings.read_text())
    except yaml.YAMLError as error:
        raise CannotMake(f"{settings} is not YAML: {error}") from None
    cases: dict[str, list[dict[str, Any]]] = {}
    for part in ("tests", "benchmarks"):
        listed = given.get(part) if isinstance(given, dict) else None
        if not isinstance(listed, list) or not listed or not all(isinstance(case, dict) for case in listed):
            raise CannotMake(f"{settings} has no list of {part}, each a line like {{size: 1024, seed: 1}}")
        cases[part] = [{k: v for k, v in case.items() if k != "seed"} for case in listed]
    every = [*cases["benchmarks"], *cases["tests"]]
    first = every[0]
    sizes = {
        k: v
        for k, v in first.items()
        if type(v) is int and v >= 1 and k not in RESERVED and all(type(c.get(k)) is int for c in every)
    }
    fixed = {k: v for k, v in first.items() if k not in sizes}

    def of(part: str) -> list[dict[str, int]]:
        chosen = [
            {k: case[k] for k in sizes} for case in cases[part] if all(case.get(k) == v for k, v in fixed.items())
        ]
        return [case for i, case in enumerate(chosen) if case not in chosen[:i]]

    tolerances = _tolerances(tree)
    about = about or _first_line(str(given.get("description") or ""))
    return Parsed("gpumode", file, sizes, of("benchmarks"), of("tests"), fixed, tolerances, about)


def _tolerances(tree: ast.Module) -> tuple[float, float] | None:
    """`rtol` and `atol` of the task's own comparison, where it names them as numbers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            values = ((k.arg, k.value.value) for k in node.keywords if isinstance(k.value, ast.Constant))
            named = {name: float(value) for name, value in values if isinstance(value, int | float)}
            if "rtol" in named and "atol" in named:
                return named["rtol"], named["atol"]
    return None


# ------------------------------------------------------------------------------------------------ what PyTorch says


def looked(task: Parsed) -> Looked:
    """Find out shapes by trying other sizes, on a device where nothing is computed. Raises TaskError."""
    every = TorchTask(task.path, task.kind, task.sizes, task.fixed)
    own = dict(task.suite[0] if task.suite else task.sizes)
    base = every.look(tuple(own.values()))
    others = {name: [_tried(every, {**own, name: own[name] * k}) for k in (2, 3)] for name in own}
    steps = {name: [look for look in looks if look] for name, looks in others.items() if None not in looks}
    extents = {name: own[name] for name in steps if _is_extent(own[name], base, steps[name], "input")}
    extents |= {name: own[name] for name in steps if _is_extent(own[name], base, steps[name], "parameter")}
    shapes = _Shapes(every, own, base, steps)
    while unknown := shapes.unknown(extents):  # stays what it is in the task
        inner = [n for n in unknown if not _is_extent(own[n], base, steps[n], "input")]
        extents = {name: value for name, value in extents.items() if name not in (inner or unknown)}
    extents = {name: value for name, value in own.items() if name in extents}
    flops = _expression(extents, base.flops, {n: [look.flops for look in steps[n]] for n in extents})
    small = {name: min(value, 24) if name in extents else value for name, value in own.items()}
    signs = _may_be_negative(every, small)
    return Looked(extents, base.arrays, shapes.expressions(extents), flops if base.flops else None, signs)


@dataclass
class _Shapes:
    """Extents of arrays as expressions of sizes. `steps`: with one of them twice, three times as large."""

    task: TorchTask
    own: dict[str, int]
    base: Look
    steps: dict[str, list[Look]]

    def expressions(self, sizes: Mapping[str, int]) -> dict[str, list[str | None]]:
        """Every extent of every array, None where it is no expression of these sizes that is known here."""
        return {
            name: [self._of(name, at, sizes) for at in range(len(seen.shape))]
            for name, seen in self.base.arrays.items()
        }

    def unknown(self, sizes: Mapping[str, int]) -> list[str]:
        """The sizes on which an extent depends, nobody knows how; none where all are known."""
        for name, parts in self.expressions(sizes).items():
            for at, part in enumerate(parts):
                if part is None:
                    return self._on(name, at, sizes)
        return []

    def _on(self, name: str, at: int, sizes: Mapping[str, int]) -> list[str]:
        extent = self.base.arrays[name].shape[at]
        return [n for n in sizes if any(look.arrays[name].shape[at] != extent for look in self.steps[n])]

    def _of(self, name: str, at: int, sizes: Mapping[str, int]) -> str | None:
        extent, on = self.base.arrays[name].shape[at], self._on(name, at, sizes)
        found = _expression(
            {n: sizes[n] for n in on}, extent, {n: [look.arrays[name].shape[at] for look in self.steps[n]] for n in on}
        )
        return found or (self._divided(name, at, on[0]) if len(on) == 1 else None)

    def _divided(self, name: str, at: int, size: str) -> str | None:
        """(m * size + a) // s, as convolutions and pooling have it."""
        values = [*range(self.own[size], self.own[size] + 20), *range(8, 24)]
        looks = ((value, _tried(self.task, {**self.own, size: value})) for value in values)
        seen = [(value, look.arrays[name].shape[at]) for value, look in looks if look]
        for s, m in itertools.product(range(1, 9), range(1, 9)):
            first = seen[0][1] * s - m * seen[0][0]
            for a in range(first, first + s):
                if len(seen) >= 8 and all((m * value + a) // s == extent for value, extent in seen):
                    product = f"{m} * self.{size}" if m > 1 else f"self.{size}"
                    shifted = f"{product} {'+' if a > 0 else '-'} {abs(a)}" if a else product
                    return f"({shifted}) // {s}" if s > 1 else shifted
        return None


def _is_extent(value: int, base: Look, steps: Sequence[Look], role: str) -> bool:
    """Whether a size of this value is an extent of an array of this role, also twice and three times as large."""
    given = ((name, at) for name, s in base.arrays.items() if s.role == role for at in range(len(s.shape)))
    wanted = [value, 2 * value, 3 * value]
    return any([look.arrays[name].shape[at] for look in (base, *steps)] == wanted for name, at in given)


def _tried(task: TorchTask, sizes: Mapping[str, int]) -> Look | None:
    try:
        return task.look(tuple(sizes.values()))
    except TaskError:
        return None


def _expression(sizes: Mapping[str, int], value: int, changed: Mapping[str, Sequence[int]]) -> str | None:
    """The value as a product of sizes, from what it is with each of them twice and three times as large; None where it
    is none."""
    factors: list[str] = []
    left = value
    for name, own in sizes.items():
        power = next((k for k in range(4) if [value * 2**k, value * 3**k] == list(changed[name])), None)
        if power is None or left % own**power:
            return None
        left //= own**power
        factors += [f"self.{name}"] * power
    return " * ".join(([str(left)] if left != 1 or not factors else []) + factors)


class _Sizes:
    """A problem as a task needs it."""

    def __init__(self, sizes: Mapping[str, int], seed: int) -> None:
        self.__dict__.update(sizes)
        self.seed = seed


def _may_be_negative(task: TorchTask, sizes: Mapping[str, int]) -> bool:
    """Whether all that the task draws is positive, and the answers are finite where it is not."""
    import numpy as np

    problem = _Sizes(sizes, 1)
    try:
        seen = task.seen(task.at(problem))
        drawn = task.inputs(problem)
        inputs = [drawn[n] for n, s in seen.items() if s.role == "input" and drawn[n].dtype.kind not in "iub"]
        if not inputs or any((values.astype(np.float64) < 0).any() for values in inputs):
            return False
        answers = task.run(problem, task.inputs(problem, signs=True))
    except (TaskError, RuntimeError, ValueError, IndexError):
        return False
    return all(np.isfinite(values).all() for values in answers.values())
