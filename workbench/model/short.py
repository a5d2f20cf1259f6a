"""The short form of an operation: arrays as text and a NumPy function. It makes the same `Problem` and `Operation`."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .arrays import Array, Arrays, element_bytes
from .distributions import NonFinite, st
from .dtypes import DTYPES, FLOATS, FP32, FP64, SPELLINGS, DType, dtype_of
from .operation import Operation
from .problem import OF_ALL, Cost, Problem, ProblemError, Size, Tier, extents

Answer = Any
"""One output, a tuple of them in the order of the text, or a dict."""

ACCUMULATION = 4.0
"""Constant of the bound, as in `dot_products`."""

TRIES = 8
"""How often a problem is drawn again that the operation's check refuses, before Hypothesis gives the example up."""

Range = tuple[float, float] | Callable[[Any], tuple[float, float]]
"""The least and the largest value; of the elements of an input also what gives them for a problem."""

MANY = 2**16
"""Extents above which a counter of 16 bits and a grid along y end."""

LIKE = 8
"""How many results at least say how large results of a problem are: of fewer, all may be sums that cancel."""


@dataclass(frozen=True)
class ArrayText:
    """One array of the text: `x: rows columns dtype`."""

    name: str
    extents: tuple[str, ...]
    dtype: str


@dataclass(frozen=True)
class Declaration:
    """What the text and the arguments of `simple_operation` say."""

    name: str
    arrays: dict[str, ArrayText]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: Callable[..., Answer]
    terms: str
    flops: Callable[[Any], int] | None
    draw: Callable[..., Arrays] | None
    bound: Callable[[Any, Arrays, Arrays], Arrays] | None
    controls: Callable[[Any, Arrays, Arrays], dict[str, Arrays]] | None
    check: Callable[[Any], bool | str | None] | None
    ranges: Mapping[str, Range]
    """Of elements of inputs."""
    drawn: frozenset[str]
    """Fields that have a strategy of their own."""

    @property
    def extents(self) -> tuple[str, ...]:
        """The names of all extents, in the order in which they come."""
        names = (e for array in self.arrays.values() for e in array.extents if not e.isdigit())
        return tuple(dict.fromkeys(names))

    @property
    def packed(self) -> set[str]:
        """The extents of rows of which two elements are a byte."""
        known = (
            a for a in self.arrays.values() if a.dtype in SPELLINGS and dtype_of(a.dtype).packing > 1 and a.extents
        )
        return {a.extents[-1] for a in known if not a.extents[-1].isdigit()}

    def solved(self, values: Mapping[str, Any], problem: Problem) -> Arrays:
        """The function's outputs, by name. Raises ValueError for what is none."""
        wanted = inspect.signature(self.function).parameters
        given = {n: values[n] if n in values else getattr(problem, n) for n in wanted}
        answer = self.function(**given)
        if isinstance(answer, dict):
            return answer
        answers = answer if isinstance(answer, tuple) else (answer,)
        if len(answers) != len(self.outputs):
            raise ValueError(f"the function of {self.name} returns {len(answers)} of {len(self.outputs)} outputs")
        return dict(zip(self.outputs, map(np.asarray, answers), strict=True))


class ShortProblem(Problem):
    """A problem of an operation in short form."""

    declaration: ClassVar[Declaration]

    def check(self) -> str | None:
        for name, array in self.declaration.arrays.items():
            packing = self.type_of(array).packing
            if packing > 1 and array.extents and self._extent(array.extents[-1]) % packing:
                last = array.extents[-1]
                return f"{last}={self._extent(last)} is not valid: rows of {name} ({array.dtype}) begin at whole bytes"
        found = self.declaration.check(self) if self.declaration.check else None
        if found is None or found is True or (not isinstance(found, str) and found):
            return None
        names = [f.name for f in dataclasses.fields(self) if f.name not in OF_ALL]
        problem = ",".join(f"{name}={self.text(name)}" for name in names)
        why = f": {found}" if isinstance(found, str) and found else f", by the check of {self.declaration.name}"
        return f"{problem} is not valid{why}"

    def _extent(self, name: str) -> int:
        return int(name) if name.isdigit() else int(getattr(self, name))

    def type_of(self, array: ArrayText) -> DType:
        """The type of an array, which a field names where the text does not."""
        return dtype_of(array.dtype if array.dtype in SPELLINGS else getattr(self, array.dtype))

    @property
    def label(self) -> str:
        sizes = "x".join(str(getattr(self, name)) for name in self.extents)
        named = ((f.name, self.text(f.name)) for f in self._others())
        return " ".join([sizes, *(text if name in self.choices else f"{name}={text}" for name, text in named)])

    def _others(self) -> list[dataclasses.Field[Any]]:
        return [f for f in dataclasses.fields(self) if f.name not in (*OF_ALL, *self.extents)]

    def arrays(self) -> dict[str, Array]:
        return dict(self._arrays)

    @cached_property
    def _arrays(self) -> dict[str, Array]:
        made, outputs, inputs = {}, self.declaration.outputs, self.declaration.inputs
        for name, text in self.declaration.arrays.items():
            both = name in outputs and name in inputs
            shape = tuple(map(self._extent, text.extents))
            made[name] = Array(shape, self.type_of(text), output=name in outputs, inout=both)
        return made

    @property
    def drawn_plainly(self) -> bool:
        return not self.declaration.draw

    def range_of(self, name: str) -> tuple[float, float] | None:
        said = self.declaration.ranges.get(name)
        return said(self) if callable(said) else said

    def inputs(self) -> Arrays:
        drawn = super().inputs()
        return drawn | (self.declaration.draw(self, self.rng()) if self.declaration.draw else {})

    def reference(self, inputs: Arrays) -> Arrays:
        return self.declaration.solved({n: _wide(v, np.float64) for n, v in inputs.items()}, self)

    def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays | None:
        # the order is NumPy's, which is not that of the reference's BLAS and sums in float64 either
        single = {n: _wide(v, np.float64 if v.dtype == np.float64 else np.float32) for n, v in inputs.items()}
        single |= {n: v.view(_AsInCpp) for n, v in single.items() if v.dtype.kind in "iu"}
        return self.declaration.solved(single, self)

    @property
    def reduced(self) -> int:
        """How many terms the longest sum of an output has."""
        return math.prod(map(self._extent, self.declaration.terms.split()))

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        if self.declaration.bound:
            return self.declaration.bound(self, inputs, expected)
        types = {name: array.dtype for name, array in self.arrays().items()}
        others = self._others_like(inputs, LIKE - min(values.size for values in expected.values()))
        return {
            name: default_bound(values, self.reduced, types[name], [other[name] for other in others])
            for name, values in expected.items()
        }

    @property
    def bound_by_default(self) -> bool:
        return self.declaration.bound is None

    def _others_like(self, inputs: Arrays, count: int) -> list[Arrays]:
        """Results for so many other inputs of the same sizes: zero-mean ones with random signs, others drawn anew."""
        found, arrays = [], self.arrays()
        for rng in (np.random.default_rng([self.seed, number]) for number in range(count)):
            other = inputs | (self.declaration.draw(self, rng) if self.declaration.draw else {})
            for name in (n for n in self.distributed_inputs() if arrays[n].dtype.is_float and n in other):
                other[name] = np.where(rng.random(other[name].shape) < 0.5, -other[name], other[name])
            with np.errstate(all="ignore"):
                found.append(self.reference(other))
        return found

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        more = self.declaration.controls(self, inputs, expected) if self.declaration.controls else {}
        return super().negative_controls(inputs, expected) | more

    @property
    def cost(self) -> Cost:
        arrays = self.arrays()
        elements = sum(array.size for array in arrays.values() if array.given)
        flops = self.declaration.flops(self) if self.declaration.flops else 2 * elements
        return Cost(flops, element_bytes(arrays.values()))

    def __reduce__(self) -> Any:
        return _again, (type(self).__module__, self.declaration.name, str(self))


_classes: dict[tuple[str, str], type[ShortProblem]] = {}


def _again(module: str, name: str, text: str) -> ShortProblem:
    """A problem in another process, where its class is made as its module is imported."""
    importlib.import_module(module)
    return _classes[module, name].parse(text)


def _wide(values: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """Real numbers in this type; narrow integers as int32, as C++ computes with them."""
    if values.dtype.kind in "iu":
        return values.astype(np.int32) if values.dtype.itemsize < 4 else values
    return values if values.dtype.kind == "b" else values.astype(dtype)


class _AsInCpp(np.ndarray[Any, Any]):
    """Integers that become fp32 where they meet it, as in C++; NumPy computes both in fp64 then."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: tuple[Any, ...] = (), **named: Any) -> Any:
        single = np.float32 if any(getattr(value, "dtype", None) == np.float32 for value in inputs) else None

        def plain(value: Any, dtype: Any = None) -> Any:
            return np.asarray(value, dtype) if isinstance(value, _AsInCpp) else value

        named |= {"out": tuple(map(plain, out))} if out else {}
        made = getattr(ufunc, method)(*(plain(value, single) for value in inputs), **named)
        return made.view(_AsInCpp) if isinstance(made, np.ndarray) and made.dtype.kind in "iu" else made


def default_bound(
    expected: np.ndarray[Any, Any], terms: int, out: DType, others: Sequence[np.ndarray[Any, Any]] = ()
) -> np.ndarray[Any, Any]:
    """The bound of sums of `terms` numbers of zero mean, and a few operations more, in fp32: one rounding of the result
    and c u (sqrt(terms) + 4) of its size, which is at least the root mean square of all results and of `others`, which
    are results of other inputs like these.

    The growth with sqrt(terms) is that of `dot_products`. Where results are sums that cancel to much less than their
    like, it is not enough: give a bound of your own."""
    if not out.is_float:
        return np.zeros(expected.shape)
    accumulator = FP64 if out is FP64 else FP32
    results = np.concatenate([np.ravel(values) for values in (expected, *others)])
    finite = np.abs(results[np.isfinite(results)])
    size = np.sqrt(np.mean(finite**2)) if finite.size else 0.0
    error = ACCUMULATION * accumulator.unit_roundoff * (math.sqrt(terms) + 4) * np.maximum(np.abs(expected), size)
    error += ACCUMULATION * (math.sqrt(terms) + 4) * accumulator.smallest  # of each product that underflows
    bound: np.ndarray[Any, Any] = out.unit_roundoff * (np.abs(expected) + error) + error + out.smallest
    return bound


_ARRAY = re.compile(r"\s*(\w+)\s*:\s*([\w ]+?)\s*")


def _parsed(text: str) -> tuple[dict[str, ArrayText], tuple[str, ...], tuple[str, ...]]:
    """The arrays of a text, and which of them are inputs and outputs. Raises ValueError."""
    sides = text.split("->")
    if len(sides) != 2:
        raise ValueError(f"{text!r} has to name inputs, then `->`, then outputs")
    arrays: dict[str, ArrayText] = {}
    names: list[tuple[str, ...]] = []
    for side in sides:
        here = []
        for part in filter(str.strip, re.split(r"[,;\n]", side)):
            found = _ARRAY.fullmatch(part)
            if not found:
                raise ValueError(f"{part.strip()!r} has to be an array like `x: rows columns dtype`")
            name, (*sizes, dtype) = found[1], found[2].split()
            made = ArrayText(name, tuple(sizes), dtype)
            if arrays.setdefault(name, made) != made:
                raise ValueError(f"{name} is declared twice, and not the same")
            here.append(name)
        if not here:
            raise ValueError(f"{text!r} has to name an array on both sides of `->`")
        names.append(tuple(here))
    return arrays, names[0], names[1]


IN_EMULATOR, ON_GPU = Size(extent=1_000, work=20_000), Size(extent=20_000, work=4_000_000)
"""How large problems are where a declaration does not say."""


def simple_operation(
    name: str,
    arrays: str,
    *,
    summary: str = "",
    fields: Mapping[str, Any] | None = None,
    dtypes: Mapping[str, Sequence[str]] | None = None,
    ranges: Mapping[str, Range] | None = None,
    check: Callable[[Any], bool | str | None] | None = None,
    terms: str = "",
    tiers: tuple[Tier, ...] = (),
    not_exact: str = "",
    non_finite: str = NonFinite.PROPAGATE,
    distributed: tuple[str, ...] | None = None,
    scales: tuple[int, int] = Problem.scales,
    suite: Sequence[str] = (),
    draw: Callable[..., Arrays] | None = None,
    strategies: Mapping[str, st.SearchStrategy[Any]] | None = None,
    bound: Callable[[Any, Arrays, Arrays], Arrays] | None = None,
    controls: Callable[[Any, Arrays, Arrays], dict[str, Arrays]] | None = None,
    flops: Callable[[Any], int] | None = None,
    metric: str = "GB/s",
    emulator_size: Size = IN_EMULATOR,
    cuda_size: Size = ON_GPU,
) -> Callable[[Callable[..., Answer]], Operation[Any]]:
    """Declare an operation in a few lines: the decorated function is its definition, and the operation takes its place.

    The function gets inputs and those fields that its parameters name. It returns the outputs in the order of `arrays`.
    Inputs of real numbers come in float64; to check precision, the function is called again with float32. It has to
    compute in the type of its inputs: `x.sum(axis=1)`, not `x.astype(np.float64).sum(axis=1)`. Integers of 8 and 16
    bits come as int32, as C++ computes with them, others in their type. What an output's type cannot hold is reduced
    modulo 2^bits, as it is on a device.

    - `name`: the name in specs and paths: `"topk"`.
    - `arrays`: inputs and outputs, each with its extents and its type: `"x: rows columns dtype -> y: rows k fp32"`. An
      extent is a field or a number. A type is one of `DTYPES`, or a field that names one; such a field is called
      `dtype` or `..._type`, or is in `dtypes`. In the kernel it is a macro: `dtype` is `DTYPE`. An array on both sides
      is input and output.
    - `summary`: one line for lists: `"largest elements of rows"`. The default is the first line of the docstring.
    - `fields`: further fields with their defaults: `{"eps": 1e-6, "causal": False}`.
    - `dtypes`: the types that a type field may have: `{"dtype": ("bf16", "fp32")}`. The default is bf16, fp16 and fp32.
    - `ranges`: limits of fields, and of elements of inputs of integer types: `{"eps": (0.0, 1e-3), "index": lambda p:
      (0, p.rows - 1)}`. Some problems have the limits, powers of two and what is next to these. The default of inputs
      is all that their type holds.
    - `check`: whether a combination of fields is valid: `lambda p: p.k <= p.columns`. It returns True or False, or
      the reason as text; None is valid. Random problems are valid, and an invalid one that is asked for is an error.
    - `terms`: the extents of the longest sum: `"columns"`. The default bound grows with their product.
    - `tiers`: the tiers: `(Tier.COMPARATIVE,)`. The default is exact and bounded, without exact where `not_exact`.
    - `not_exact`: why no inputs have exact results: `"tanh is rounded"`. The default is that some have.
    - `non_finite`: what NaN and infinities do: `"undefined"`. The default is that they propagate.
    - `distributed`: inputs that come in every distribution (zeros, large, subnormal): `("x",)`. The default is all but
      those of type bool, none with `draw`.
    - `scales`: powers of two between which inputs are scaled: `(-8, 8)`.
    - `suite`: problems that are timed, as text: `("4096x1024,dtype=bf16",)`.
    - `draw`: another way to draw inputs: `lambda p, rng: {"x": rng.random((p.rows, p.columns))}`.
    - `strategies`: strategies of Hypothesis for fields: `{"k": st.integers(1, 8)}`.
    - `bound`: the largest error of each element of an output: `lambda p, inputs, expected: {"y": 1e-6 *
      np.abs(expected["y"])}`.
    - `controls`: further wrong answers, which the bound has to reject: `lambda p, inputs, expected: {"unsorted": {"y":
      expected["y"][:, ::-1]}}`.
    - `flops`: the number of operations: `lambda p: 2 * p.rows * p.columns`. The default is two for each element.
    - `metric`: how speed is shown: `"TFLOP/s"`.
    - `emulator_size`, `cuda_size`: how large random problems are in the emulator and on a GPU: `Size(extent=300,
      work=20_000)`.

    Raises ValueError for a text that cannot be read, and for a name that is no type, extent or field.

    >>> import numpy as np
    >>> from workbench import simple_operation
    >>> @simple_operation("largest", "x: rows columns fp32 -> y: rows k fp32", check=lambda p: p.k <= p.columns)
    ... def largest(x, k):
    ...     return -np.sort(-x, axis=1)[:, :k]
    >>> largest.problem(rows=2, columns=3, k=4)
    Traceback (most recent call last):
    workbench.model.problem.ProblemError: rows=2,columns=3,k=4 is not valid, by the check of largest"""

    def declare(function: Callable[..., Answer]) -> Operation[Any]:
        parsed = _parsed(arrays)
        of_elements = {n: r for n, r in (ranges or {}).items() if n in parsed[0]}
        of_fields: Any = {n: r for n, r in (ranges or {}).items() if n not in parsed[0]}
        own = frozenset(strategies or ())
        made = Declaration(name, *parsed, function, terms, flops, draw, bound, controls, check, of_elements, own)
        types = _type_fields(made, fields or {}, dtypes or {})
        judged = {"tiers": tiers or _usual_tiers(not_exact), "not_exact": not_exact, "ranges": of_fields}
        holds = {**judged, "non_finite": NonFinite(non_finite), "distributed": distributed, "scales": scales}
        problem = _problem_class(made, fields or {}, types, function.__module__, holds)
        return Operation(
            name=name,
            summary=summary or (function.__doc__ or name).strip().splitlines()[0].rstrip("."),
            problem=problem,
            problems=_strategy(problem, dict(strategies or {})),
            suite=tuple(problem.parse(text) for text in suite),
            defines=lambda p: {t.upper(): dtype_of(getattr(p, t)).cuda for t in types},
            emulator_size=emulator_size,
            cuda_size=cuda_size,
            metric=metric,
            longest=MANY,
            drawn_anywhere=_drawn_anywhere(problem),
        )

    return declare


def _usual_tiers(not_exact: str) -> tuple[Tier, ...]:
    return (Tier.BOUNDED,) if not_exact else (Tier.EXACT, Tier.BOUNDED)


def _type_fields(
    made: Declaration, others: Mapping[str, Any], dtypes: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """The fields that name a type, with the types that they may have. Raises ValueError for one that is unknown."""
    used = dict.fromkeys(array.dtype for array in made.arrays.values() if array.dtype not in SPELLINGS)
    for name in used:
        if name in dtypes or re.fullmatch(r"(\w*_)?d?type(_\w*)?", name):
            continue
        if name in made.extents or name in others:
            raise ValueError(f"{name} is an extent or a field; an array ends with its type, such as {name} fp32")
        meant = difflib.get_close_matches(name, SPELLINGS, 1, 0.5)
        said = f"did you mean {SPELLINGS[meant[0]]}?" if meant else f"the types are {', '.join(DTYPES)}"
        raise ValueError(
            f"{name} is no type; {said} A field that names a type is called dtype, or is in dtypes: "
            f"dtypes={{{name!r}: ('bf16', 'fp32')}}"
        )
    found = {name: tuple(dtypes.get(name, FLOATS)) for name in used}
    for allowed in found.values():
        for name in allowed:
            dtype_of(name)
    if twice := set(found) & (set(made.extents) | set(others)):
        raise ValueError(f"{', '.join(sorted(twice))} is an extent or a field, and cannot name a type as well")
    return found


def _problem_class(
    made: Declaration,
    others: Mapping[str, Any],
    types: Mapping[str, tuple[str, ...]],
    module: str,
    holds: Mapping[str, Any],
) -> type[ShortProblem]:
    """The class with fields for extents, types and others; `holds` are attributes that are declared as they are."""
    defaults = {
        **dict.fromkeys(made.extents, 1),
        **dict.fromkeys(made.packed, 2),
        **{t: allowed[0] for t, allowed in types.items()},
        **others,
    }
    _check_function(made, defaults)
    tiers = holds["tiers"]
    space = {
        **holds,
        "declaration": made,
        "extents": made.extents,
        "choices": types,
        "__doc__": f"A problem of {made.name}.",
    }
    given: list[Any] = [("tier", Tier, Tier.BOUNDED if Tier.BOUNDED in tiers else tiers[0])]
    given += [(name, type(value), value) for name, value in defaults.items()]
    title = "".join(part.capitalize() for part in made.name.split("_")) + "Problem"
    problem: type[ShortProblem] = dataclasses.make_dataclass(
        title, given, bases=(ShortProblem,), namespace=space, frozen=True
    )
    problem.__module__ = module  # from Python 3.12 on, make_dataclass puts its caller's module there
    _classes[module, made.name] = problem
    try:
        problem()
    except ProblemError as error:
        raise ValueError(f"the defaults of {made.name} have to be a valid problem: {error}") from None
    return problem


def _drawn_anywhere(kind: type[ShortProblem]) -> dict[str, tuple[type, float, float]]:
    """The type, the least and the largest value of fields that have a finite range and no strategy of their own."""
    found = {}
    for f in (f for f in dataclasses.fields(kind) if type(f.default) in (int, float)):
        low, high = kind.ranges.get(f.name, (-math.inf, math.inf))
        if f.name not in (*kind.extents, *kind.declaration.drawn) and -math.inf < low <= high < math.inf:
            whole = type(f.default) is int
            found[f.name] = (type(f.default), *((math.ceil(low), math.floor(high)) if whole else (low, high)))
    return found


def _check_function(made: Declaration, defaults: Mapping[str, Any]) -> None:
    """Raises ValueError for a parameter that is neither an input nor a field, and for terms that are no extents."""
    for name in inspect.signature(made.function).parameters:
        if name not in (*made.inputs, *defaults):
            known = ", ".join((*made.inputs, *defaults))
            raise ValueError(f"the function of {made.name} asks for {name}; inputs and fields are {known}")
    for name in made.terms.split():
        if name not in made.extents and not name.isdigit():
            raise ValueError(f"terms of {made.name}: {name} is no extent; they are {', '.join(made.extents)}")


def _strategy(
    problem: type[ShortProblem], given: dict[str, st.SearchStrategy[Any]]
) -> Callable[[Size, tuple[int, ...]], st.SearchStrategy[ShortProblem]]:
    """Extents within the size, the first one as long as any; every type; fields at their default and beside it."""
    made = problem.declaration
    inner = {array.extents[-1] for array in made.arrays.values() if array.extents} & set(made.extents)

    def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[ShortProblem]:
        named = (*made.extents, *OF_ALL)
        near = {f.name: _near(problem, f) for f in dataclasses.fields(problem) if f.name not in named}
        others = {name: st.sampled_from(values) for name, values in near.items()} | given

        @st.composite
        def draw(d: st.DrawFn) -> ShortProblem:
            values: dict[str, Any] = {"seed": d(st.integers(0, 2**16))}
            aligned, left = d(st.booleans()), size.work
            for name in d(st.permutations(made.extents)):
                extent = d(extents(Size(max(1, min(size.extent, left)), size.work), edges))
                if aligned and name in inner:
                    extent = min(-(-extent // 8) * 8, max(8, left))
                low, high = problem.ranges.get(name, (1, math.inf))
                values[name] = int(min(max(extent, low), high))
                left = max(1, left // extent)
            return problem(**values | {name: d(strategy) for name, strategy in others.items()})

        @st.composite
        def valid(d: st.DrawFn) -> ShortProblem:
            for _ in range(TRIES - 1):
                with contextlib.suppress(ProblemError):
                    return d(draw())
            try:
                return d(draw())
            except ProblemError:
                from hypothesis import reject

                reject()

        return valid() if made.check or made.packed else draw()

    return problems


def _near(problem: type[ShortProblem], f: dataclasses.Field[Any]) -> list[Any]:
    """Values of a field that is no extent: all where they are few, else its default and one beside it."""
    if f.name in problem.choices:
        return list(problem.choices[f.name])
    if isinstance(f.default, bool):
        return [False, True]
    if isinstance(f.default, Enum):
        return list(type(f.default))
    if isinstance(f.default, float):
        low, high = problem.ranges.get(f.name, (-math.inf, math.inf))
        return [f.default, min(max(16 * f.default, low), high)]
    if isinstance(f.default, int):
        return [f.default, int(min(f.default + 1, problem.ranges.get(f.name, (0, math.inf))[1]))]
    return [f.default]
