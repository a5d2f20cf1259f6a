"""An operation as a function where none is declared: what its problem is follows from the arrays that it is given.

A field of a problem is found by trying other values of it: an extent is what a dimension of an input is a multiple of,
a type what changes the dtype of one, a padding what moves its rows apart. What changes nothing is an option."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..model.arrays import Array
from ..model.calls import ArraySpec, Call, Function
from ..model.operation import Operation
from ..model.problem import Problem, ProblemError

TRIED = (2, 3, 4, 8, 12)
"""Values of an extent that tell what depends on it; some operations do not take all of them."""

RENAMED = {"out": "out_type"}
"""Options for fields whose name means something else in every function."""

Given = Mapping[str, ArraySpec]


@dataclass(frozen=True)
class Dimension:
    """A dimension of an input, which is `times` an extent."""

    array: str
    place: int
    times: int


def function_of(operation: Operation[Any]) -> Function:
    """The operation as a function of its inputs, in the order of their declaration, and of options: the fields that do
    not follow from the inputs."""
    inputs = tuple(name for name, array in operation.problem().arrays().items() if array.given)
    types, extents, paddings = _types(operation.problem), _extents(operation.problem), _paddings(operation.problem)
    follow = {*types, *extents, *paddings, *(f.name for f in dataclasses.fields(Problem))}
    fields = [f for f in dataclasses.fields(operation.problem) if f.name not in follow]

    named = {RENAMED.get(f.name, f.name): f for f in fields}

    def build(*arrays: ArraySpec, **options: Any) -> Call:
        given = dict(zip(inputs, arrays, strict=True))
        values = {named[name].name: value for name, value in options.items()}
        return Call(_problem(operation, given, values, types, extents, paddings), given)

    kind = inspect.Parameter
    build.fields = {name: f.name for name, f in named.items()}  # type: ignore[attr-defined]
    build.__name__ = build.__qualname__ = operation.name
    build.__doc__ = operation.summary
    build.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [kind(name, kind.POSITIONAL_OR_KEYWORD, annotation="Any") for name in inputs]
        + [kind(n, kind.KEYWORD_ONLY, default=f.default, annotation=_annotation(f.default)) for n, f in named.items()]
    )
    return Function(operation, build)


def _annotation(default: Any) -> str:
    return "str" if isinstance(default, Enum) else type(default).__name__


def _inputs(problem: Problem) -> dict[str, Array]:
    return {name: array for name, array in problem.arrays().items() if array.given}


def _with(problem: Problem, **values: Any) -> Problem | None:
    """The problem with other values, None where it does not have them."""
    try:
        return dataclasses.replace(problem, **values)
    except ProblemError:
        return None


def _types(kind: type[Problem]) -> dict[str, tuple[str, ...]]:
    """The fields on which dtypes of inputs depend, with their values."""
    problem = kind()
    before = {name: array.dtype for name, array in _inputs(problem).items()}

    def changes(name: str, value: Any) -> bool:
        other = _with(problem, **{name: value})
        return other is not None and {n: a.dtype for n, a in _inputs(other).items()} != before

    return {name: values for name, values in kind.choices.items() if any(changes(name, value) for value in values)}


def _extents(kind: type[Problem]) -> dict[str, list[Dimension]]:
    """The dimensions of inputs that are a multiple of an extent, or of another whole number, while all others are as
    they are by default."""
    problem = kind()
    before = _inputs(problem)
    found: dict[str, list[Dimension]] = {}
    for name in dict.fromkeys((*kind.extents, *_whole(kind))):
        others = [(value, made) for value in TRIED if (made := _with(problem, **{name: value}))]
        for value, other in others[:1]:
            for array, now in _inputs(other).items():
                if len(now.shape) != len(before[array].shape):  # a batch has one more
                    continue
                for place, (a, b) in enumerate(zip(before[array].shape, now.shape, strict=True)):
                    if a != b and b % value == 0:
                        found.setdefault(name, []).append(Dimension(array, place, b // value))
    return found


def _paddings(kind: type[Problem]) -> tuple[str, ...]:
    """The whole numbers that are no extents and on which strides of inputs depend, but no shape."""
    problem = kind()

    def pads(name: str, default: int) -> bool:
        other = _with(problem, **{name: default + 1})
        if other is None:
            return False
        before, now = _inputs(problem), _inputs(other)
        same = all(now[n].shape == array.shape for n, array in before.items())
        return same and any(now[n].element_strides != array.element_strides for n, array in before.items())

    return tuple(name for name, default in _whole(kind).items() if name not in kind.extents and pads(name, default))


def _whole(kind: type[Problem]) -> dict[str, int]:
    """The fields that hold whole numbers, with their defaults."""
    return {f.name: f.default for f in dataclasses.fields(kind) if type(f.default) is int and f.name != "seed"}


def _problem(
    operation: Operation[Any],
    given: Given,
    options: Mapping[str, Any],
    types: Mapping[str, Sequence[str]],
    extents: Mapping[str, Sequence[Dimension]],
    paddings: Sequence[str],
) -> Problem:
    """The problem whose inputs are these arrays. Raises TypeError and ValueError where there is none."""
    name = operation.name
    ranks = _inputs(operation.problem())
    for array, right in ranks.items():
        if given[array].ndim != len(right.shape):
            raise ValueError(f"{name}: {array} has shape {given[array].shape}, not {len(right.shape)} dimensions")
    sizes: dict[str, Any] = dict(options)
    for extent, dimensions in extents.items():
        first = dimensions[0]
        sizes[extent] = max(1, given[first.array].shape[first.place] // first.times)
    for chosen in itertools.product(*types.values()):
        made = _made(operation, {**sizes, **dict(zip(types, chosen, strict=True))})
        if made and all(a.dtype.numpy == given[n].dtype for n, a in _inputs(made).items()):
            padded = _padded(made, given, paddings)
            _check(name, padded, given)
            return padded
    dtypes = ", ".join(f"{array} {spec.dtype}" for array, spec in given.items())
    _made(operation, sizes, strict=True)
    wanted = [", ".join(f"{array} {right.dtype.numpy}" for array, right in ranks.items())]
    wanted += [f"{t} is one of {', '.join(values)}" for t, values in types.items()]
    raise TypeError(f"{name}: the arrays have dtypes {dtypes}; they have to be like {'; '.join(wanted)}")


def _made(operation: Operation[Any], values: Mapping[str, Any], strict: bool = False) -> Problem | None:
    """The problem with these fields; None where it cannot be, or with `strict` the ValueError that says why."""
    try:
        made: Problem = operation.problem(**values)
        return made
    except ProblemError as error:
        if strict:
            raise ValueError(f"{operation.name}: {error}") from None
        return None


def _steps(spec: ArraySpec, array: Array) -> Iterator[tuple[int, int, int]]:
    """Places of dimensions whose strides matter, with the array's stride in elements and that of the problem."""
    for place, (n, step, right) in enumerate(zip(spec.shape, spec.strides, array.element_strides, strict=True)):
        if n > 1:
            yield place, step // spec.itemsize, right


def _padded(problem: Problem, given: Given, paddings: Sequence[str]) -> Problem:
    """The problem with the paddings that the strides of the arrays need, one after the other."""
    for name in paddings:
        now = getattr(problem, name)
        other = _with(problem, **{name: now + 1})
        if other is None:
            continue
        more = _inputs(other)
        for array, before in _inputs(problem).items():
            wanted = [
                (step - right) // (after - right)
                for (_, step, right), (_, _, after) in zip(
                    _steps(given[array], before), _steps(given[array], more[array]), strict=True
                )
                if after != right
            ]
            if wanted and wanted[0] > 0:
                problem = _with(problem, **{name: now + wanted[0]}) or problem
                break
    return problem


def _check(name: str, problem: Problem, given: Given) -> None:
    """Raises ValueError where the inputs of a problem are not these arrays."""
    for array, right in _inputs(problem).items():
        spec = given[array]
        if spec.shape != right.shape:
            raise ValueError(f"{name}: {array} has shape {spec.shape}; with the others it has to be {right.shape}")
        if any(step != wanted for _, step, wanted in _steps(spec, right)):
            steps = tuple(step * spec.itemsize for step in right.element_strides)
            raise ValueError(f"{name}: {array} has strides {spec.strides} bytes; they have to be {steps}: copy it")
