"""One case of an operation: a problem makes its own inputs and knows its reference and its error bound."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache, lru_cache
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from .arrays import Array, Arrays
from .conversions import whole_of_nan
from .default_controls import default_controls
from .distributions import (
    ORDERS,
    SCALES,
    WITHOUT_NUMBERS,
    Distribution,
    NonFinite,
    distributed,
    divisors,
    same_numbers,
    small_numbers,
    st,
    truths,
    whole_numbers,
    with_and_without,
    with_signed_zeros,
)
from .dtypes import DTYPES, SPELLINGS, DType
from .errors import WrongUsage
from .parts import Axis, Part, parts_of_axes


class ProblemError(WrongUsage, ValueError):
    """A problem text or a field of a problem is not valid; the message says what would be valid."""


def text(value: Any) -> str:
    """A value as `parsed` reads it: `64`, `1e-6`, `true`, the value of a StrEnum, else the name of a member."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value.value if isinstance(value, str) else value.name.lower()
    if isinstance(value, float):
        return re.sub(r"e([+-])0", r"e\1", repr(value)).replace("e+", "e")
    return str(value)


def values_of(default: Any) -> tuple[str, ...]:
    """The texts of all values that a field with this default can have; nothing where there is no list of them."""
    if isinstance(default, bool):
        return "false", "true"
    return tuple(map(text, type(default))) if isinstance(default, Enum) else ()


def parsed(name: str, default: Any, given: str) -> Any:
    """The value that a text gives to a field with this default. Raises ProblemError."""
    if isinstance(default, bool):
        if given.lower() not in ("true", "false"):
            raise ProblemError(f"{name} is {given!r}; it has to be true or false")
        return given.lower() == "true"
    if isinstance(default, Enum):
        return _member(name, default, given)
    if isinstance(default, int):
        try:
            return int(given)
        except ValueError:
            raise ProblemError(f"{name} is {given!r}; it has to be a whole number") from None
    if isinstance(default, float):
        try:
            return float(given)
        except ValueError:
            raise ProblemError(f"{name} is {given!r}; it has to be a number") from None
    return given


def checked(name: str, default: Any, value: Any, choices: tuple[str, ...] | None, allowed: tuple[float, float]) -> Any:
    """The value as the field keeps it, of the type of its default. Raises ProblemError for one that is not allowed."""
    if choices is not None:
        if value not in choices and isinstance(value, str) and value in SPELLINGS:
            value = SPELLINGS[value].name
        if value not in choices:
            raise ProblemError(f"{name} is {value!r}; it has to be one of {', '.join(choices)}")
        return value
    if isinstance(default, bool):
        if not isinstance(value, bool | np.bool_):
            raise ProblemError(f"{name} is {value!r}; it has to be True or False")
        return value if isinstance(value, bool) else bool(value)
    if isinstance(default, Enum):
        return value if isinstance(value, type(default)) else _member(name, default, value)
    if isinstance(default, int):
        return _in_range(name, _whole(name, value), allowed)
    if isinstance(default, float):
        return _in_range(name, _real(name, value), allowed)
    if isinstance(default, str) and (not isinstance(value, str) or set(value) & set(",= ")):
        raise ProblemError(f"{name} is {value!r}; it has to be a word without spaces, commas and equals signs")
    return value


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool | np.bool_ | Enum) or not isinstance(value, int | np.integer):
        raise ProblemError(f"{name} is {value!r}; it has to be a whole number")
    return value if isinstance(value, int) else int(value)


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool | np.bool_ | Enum) or not isinstance(value, int | float | np.integer | np.floating):
        raise ProblemError(f"{name} is {value!r}; it has to be a number")
    if not math.isfinite(value):
        raise ProblemError(f"{name} is {value}; it has to be finite")
    return value if type(value) is float else float(value)


def _in_range(name: str, value: Any, allowed: tuple[float, float]) -> Any:
    least, most = allowed
    if value < least:
        raise ProblemError(f"{name} is {text(value)}; it has to be at least {text(least)}")
    if value > most:
        raise ProblemError(f"{name} is {text(value)}; it has to be at most {text(most)}")
    return value


def _member(name: str, default: Enum, given: Any) -> Enum:
    kind = type(default)
    for member in kind:
        if text(member) == given or (isinstance(given, str) and given.lower() == member.name.lower()):
            return member
    raise ProblemError(f"{name} is {given!r}; it has to be one of {', '.join(map(text, kind))}")


class Tier(StrEnum):
    """How a problem is judged.

    `exact` needs bit-equal results, on inputs for which every product and sum is representable. `bounded` needs an
    error within the a-priori bound. `comparative` needs an error of at most twice that of a NumPy model in the same
    precision, and the operation's invariants."""

    EXACT = "exact"
    BOUNDED = "bounded"
    COMPARATIVE = "comparative"


SLOW_FLOPS, SLOW_BYTES = 2e11, 2e10
"""Operations and bytes a second of a slow kernel: less than the naive stages reach on an H200 in their worst case."""


@dataclass(frozen=True)
class Cost:
    """The least work a problem needs: floating-point operations, and bytes moved when each operand moves once."""

    flops: int
    bytes: int

    @property
    def slow_seconds(self) -> float:
        """The time in seconds that a first, naive kernel may take on a GPU."""
        return self.flops / SLOW_FLOPS + self.bytes / SLOW_BYTES


@dataclass(frozen=True)
class Size:
    """How large the problems of a device may be: largest extent of a dimension, and of the work in scalar steps."""

    extent: int
    work: int


@dataclass(frozen=True)
class Invariant:
    """A property of the answers to a problem, besides their error: rows that sum to 1, causality, linearity.

    `holds(first, second, bound)` says whether the property holds. `first` and `second` are outputs in float64 by name,
    and `bound` is the error that `first` may have. `second` is the answer to the inputs that `related` makes from the
    problem's own; without `related` it is `first`. Where elements of `second` belong to other places of `first`,
    `moved` puts arrays like outputs there. Then `bound` is also what `second` may have, element by element, if that is
    more."""

    name: str
    holds: Callable[[Arrays, Arrays, Arrays], bool]
    related: Callable[[Arrays], Arrays] | None = None
    moved: Callable[[Arrays], Arrays] | None = None


@dataclass(frozen=True)
class Problem(ABC):
    """One concrete case of an operation. A subclass adds its sizes, dtypes and layouts as fields with defaults.

    Fields hold a whole number, a real number, a bool, a word or a member of an enumeration. The text form is
    `field=value,...`, `m=64,eps=1e-6,causal=true`; fields at their default may be left out."""

    tier: Tier = Tier.BOUNDED
    seed: int = 0
    distribution: Distribution = Distribution.NORMAL

    tiers: ClassVar[tuple[Tier, ...]] = (Tier.EXACT, Tier.BOUNDED)
    """The tiers in which every random problem is judged. A problem's own `tier` has to be one of them: if
    `bounded` is not, declare the field again, as `tier: Tier = Tier.EXACT`."""

    not_exact: ClassVar[str] = ""
    """The reason why no inputs make every product and sum representable, if `exact` is not one of the tiers."""

    elementwise: ClassVar[tuple[str, ...]] = ()
    """Outputs whose elements are independent results, not parts of a row: the comparative tier takes the error of
    each relative to its own size."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Fields that hold one of several fixed words."""

    extents: ClassVar[tuple[str, ...]] = ()
    """Fields that hold a size >= 1, in the order of the short text form `64x32x16`."""

    later: ClassVar[tuple[str, ...]] = ()
    """Fields that texts name only where they are not at their defaults, and classes of problems not at all: they came
    later, and what was written before stays as it is."""

    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """The least and the largest value of fields that hold a number, and of the elements of inputs of integer types.
    Without one, sizes are at least 1, other whole numbers at least 0, real numbers anything finite, and elements
    anything that their type holds."""

    non_finite: ClassVar[NonFinite | str] = NonFinite.PROPAGATE
    """What must hold if inputs are NaN or infinite."""

    distributed: ClassVar[tuple[str, ...] | None] = None
    """The inputs that are drawn in every distribution; none where it is empty. The default is all inputs; but none if
    the class has its own `inputs` or a comparative tier, because then only the class knows which values are allowed."""

    drawn_by: ClassVar[tuple[str, ...]] = ()
    """Fields besides `distribution`, `tier` and `seed` that only say how inputs are drawn. No stage is told of them."""

    scales: ClassVar[tuple[int, int]] = SCALES
    """The exponents of the powers of two that inputs are multiplied by; smaller ones than the first as well, down to
    the smallest normal number, unless both are 0. With the largest no intermediate result of a
    right kernel may overflow fp32: the answer has to be defined. What overflows the type of the output is defined: it
    is the reference rounded to that type, an infinity."""

    def __post_init__(self) -> None:
        for name, default, choices, limits in self._allowed():
            given = getattr(self, name)
            value = checked(name, default, given, choices, limits)
            if value is not given:
                object.__setattr__(self, name, value)
        if self.tier not in self.tiers:
            why = f" ({self.not_exact})" if self.tier is Tier.EXACT and self.not_exact else ""
            allowed = ", ".join(self.tiers)
            raise ProblemError(f"tier is {str(self.tier)!r}; of this operation it has to be one of {allowed}{why}")
        if self.distribution in WITHOUT_NUMBERS and self.non_finite == NonFinite.UNDEFINED:
            raise ProblemError("what NaN and infinities do is undefined for this operation: no inputs have them")
        if problem := self.check():
            raise ProblemError(problem)

    @classmethod
    @cache
    def _allowed(cls) -> list[tuple[str, Any, tuple[str, ...] | None, tuple[float, float]]]:
        """Each field with its default, its words and its range."""
        found = []
        for f in dataclasses.fields(cls):
            least = 1 if f.name in cls.extents else 0 if isinstance(f.default, int) else -math.inf
            found.append((f.name, f.default, cls.choices.get(f.name), cls.ranges.get(f.name, (least, math.inf))))
        return found

    def check(self) -> str | None:
        """The reason why this combination of allowed fields is not allowed, or None if it is allowed."""
        return None

    @classmethod
    def of_inputs(cls) -> tuple[str, ...]:
        """The fields on which its inputs depend, and nothing else."""
        return (*OF_ALL, *cls.drawn_by)

    @classmethod
    def words(cls) -> dict[str, tuple[str, ...]]:
        """The fields that hold one of a few values (words, enumerations, bools), with the text of each value."""
        found = dict(cls.choices)
        for f in dataclasses.fields(cls):
            if f.name not in ("tier", "distribution", *cls.later, *found) and (texts := values_of(f.default)):
                found[f.name] = texts
        return found

    @classmethod
    def parse(cls, text: str) -> Self:
        """The problem that `text` describes, for example `m=64,n=32,k=7,dtype=bf16` or `64x32x7,dtype=bf16`.

        Raises ProblemError for an empty text, an unknown field, one that is given twice or a value that is not allowed.
        """
        defaults = {f.name: f.default for f in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        given: dict[str, Any]
        parts = list(filter(None, (p.strip() for p in text.split(","))))
        if not parts:
            raise ProblemError(f"there is no problem in {text!r}; write one like {cls()}")
        for part in parts:
            name, equals, value = (s.strip() for s in part.partition("="))
            if not equals:
                sizes = part.split("x")
                if len(sizes) != len(cls.extents):
                    short = "x".join(cls.extents)
                    raise ProblemError(f"{part!r} is neither field=value nor sizes written {short}")
                given = {n: parsed(n, 0, s) for n, s in zip(cls.extents, sizes, strict=True)}
            elif name not in defaults:
                near = difflib.get_close_matches(name, defaults, 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise ProblemError(f"unknown field {name!r}{hint}; the fields are {', '.join(defaults)}")
            else:
                given = {name: parsed(name, defaults[name], value)}
            if twice := given.keys() & values.keys():
                raise ProblemError(f"{' and '.join(sorted(twice))} is given twice; once is enough")
            values |= given
        return cls(**values)

    def text(self, name: str) -> str:
        """The value of a field as `parse` takes it."""
        return text(getattr(self, name))

    def __str__(self) -> str:
        always = {*self.extents, "tier", "seed", *self.choices}
        parts = []
        for f in sorted(dataclasses.fields(self), key=lambda f: f.name in OF_ALL):
            value = getattr(self, f.name)
            whole = isinstance(value, int) and not isinstance(value, bool | Enum)
            if f.name in ("distribution", *self.later) and value == f.default:
                continue
            if f.name in always or value != f.default or not whole:
                parts.append(f"{f.name}={text(value)}")
        return ",".join(parts)

    def with_tier(self, tier: Tier) -> Self:
        """The same problem judged by another tier (which also draws other inputs)."""
        return dataclasses.replace(self, tier=tier)

    def rng(self) -> np.random.Generator:
        """The generator from which all inputs of this problem come."""
        return self.generator(self.seed, tuple(Tier).index(self.tier))

    @staticmethod
    def generator(*seed: int) -> np.random.Generator:
        """A generator of random numbers: NumPy's, or, where inputs are drawn on a device, one that is called alike."""
        made: np.random.Generator = _generators[-1](list(seed))
        return made

    @property
    @abstractmethod
    def label(self) -> str:
        """Short name of size and types for tables, without tier and seed: `4096x4096x4096 bf16 nt`."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """The arrays of the problem by name, inputs and outputs."""

    def inputs(self) -> Arrays:
        """Values of the arrays that are given, rounded to their storage type; the same ones for the same problem."""
        rng, arrays, limits = self.rng(), self.arrays(), self.limits()
        drawn = {
            name: draw_values(rng, self.tier, array.shape, array.dtype, limits.get(name))
            for name, array in arrays.items()
            if array.given
        }
        for name, step in self.exact_steps().items() if self.tier is Tier.EXACT else ():
            drawn[name] = (drawn[name].astype(np.float32) * step).astype(drawn[name].dtype)
        return drawn

    def limits(self) -> dict[str, tuple[int, int]]:
        """The least and the largest element of each input of an integer type, as `ranges` or the type has them."""
        found = {}
        for name, dtype in ((n, a.dtype) for n, a in self.arrays().items() if a.given and a.dtype.numpy.kind in "iu"):
            most = np.iinfo(dtype.numpy)
            low, high = self.range_of(name) or (most.min, most.max)
            found[name] = (math.ceil(max(low, int(most.min))), math.floor(min(high, int(most.max))))
        return found

    def range_of(self, name: str) -> tuple[float, float] | None:
        """The least and the largest element that an input may have, if not all that its type holds."""
        return self.ranges.get(name)

    def exact_steps(self) -> Mapping[str, int]:
        """By input, a number of which its elements are multiples in the exact tier: by default none has one."""
        return {}

    def given(self) -> Arrays:
        """The inputs as `distribution` has them: what a stage is judged on.

        The exact tier keeps its small integers: there zeros have signs, NaN and infinities are put among them, and
        where the class has no `inputs` of its own they come in one of `ORDERS`. Without real numbers all is exact."""
        drawn, kind = self.inputs(), self.distribution
        if kind is Distribution.NORMAL or not self.distributed_inputs():
            return drawn
        arrays, rng = self.arrays(), np.random.default_rng([self.seed, 10 + tuple(Tier).index(self.tier)])
        names = [n for n in self.distributed_inputs() if arrays[n].dtype.is_float and n in drawn]
        if kind in WITHOUT_NUMBERS:
            turn = self.seed + (self.tier is Tier.EXACT)
            names, zeros = with_and_without(kind, {name: drawn[name] for name in names}, turn, rng)
            drawn |= zeros
        whole, limits = self.tier is Tier.EXACT, self.limits()
        integers = [n for n in self.distributed_inputs() if n in limits and n in drawn]
        for name in integers if not whole or self.exact_has(kind) else ():
            most = small_numbers(limits[name]) if whole and not self.of_integers else limits[name]
            drawn[name] = whole_numbers(drawn[name], arrays[name].dtype, kind, most, rng, divisors(self))
        for name in (n for n in self.distributed_inputs() if arrays[n].dtype.numpy.kind == "b" and n in drawn):
            drawn[name] = truths(drawn[name], kind, rng)
        for name in names:
            if not whole or (self.exact_has(kind) and (kind is not Distribution.ZEROS or self.drawn_plainly)):
                scales = (0, 0) if whole else self.scales
                drawn[name] = distributed(drawn[name], arrays[name].dtype, kind, scales, rng, self.seed)
            elif kind is Distribution.ZEROS:
                drawn[name] = with_signed_zeros(drawn[name], rng)
        if kind is Distribution.SAME and (not whole or self.exact_has(kind)):
            alike = [n for n in integers if limits[n] == limits[integers[0]]]
            drawn |= same_numbers(arrays, [*names, *alike], drawn)
        return drawn

    @property
    def of_integers(self) -> bool:
        """Whether no array has real numbers, so that what is computed is exact, modulo 2^bits of the type."""
        return all(array.dtype.numpy.kind in "iub" for array in self.arrays().values())

    def exact_has(self, kind: Distribution) -> bool:
        """Whether inputs of the exact tier can be of this kind."""
        orders = kind in ORDERS or self.of_integers
        return kind in (Distribution.ZEROS, *WITHOUT_NUMBERS) or (orders and self.drawn_plainly)

    @property
    def drawn_plainly(self) -> bool:
        """Whether any numbers will do as inputs: the class has no `inputs` of its own, and the exact tier no steps."""
        return type(self).inputs is Problem.inputs and not (self.tier is Tier.EXACT and self.exact_steps())

    def distributed_inputs(self) -> tuple[str, ...]:
        """The inputs that are drawn in every distribution, see `distributed`."""
        if self.distributed is not None:
            return self.distributed
        if not self.drawn_plainly or Tier.COMPARATIVE in self.tiers:
            return ()
        return tuple(n for n, a in self.arrays().items() if a.given)

    def distributions(self) -> tuple[Distribution, ...]:
        """Those in which the problem may be drawn."""
        if not self.distributed_inputs():
            return (Distribution.NORMAL,)
        arrays = self.arrays()
        whole = any(a.output and a.dtype.numpy.kind in "iu" for a in arrays.values())
        undefined = self.non_finite == NonFinite.UNDEFINED or (whole and not whole_of_nan(type(self)))
        types = [arrays[name].dtype for name in self.distributed_inputs()]
        real = any(dtype.is_float for dtype in types)
        without = (
            *(WITHOUT_NUMBERS if undefined or not real else ()),
            *(() if real else (Distribution.SUBNORMAL, Distribution.BINADE)),
            *((Distribution.SCALED, Distribution.WIDE) if all(dtype.numpy.kind == "b" for dtype in types) else ()),
            *((Distribution.SAME,) if len(set(types)) == len(types) else ()),
        )
        return tuple(d for d in Distribution if d not in without)

    def prepare(self, inputs: Arrays) -> Arrays:
        """The values of the arrays that are `prepared`, made on the host before the launch: tables that depend on the
        problem alone, or weights packed in another order. The time that takes is not measured."""
        return {}

    @abstractmethod
    def reference(self, inputs: Arrays) -> Arrays:
        """The result for `inputs`, by output name, in float64 (or in integers, where the output is one)."""

    def model(self, inputs: Arrays, *, backwards: bool = False) -> Arrays | None:
        """The result as a right kernel would compute it, in NumPy. Sums are in the kernel's precision, in any order.
        Intermediate results are rounded where the kernel rounds them; the final result is not. With `backwards`, every
        sum runs from its last term to its first.

        The comparative tier measures its error; and in the exact tier both orders have to give the reference. Where
        there is none, the reference itself is evaluated in fp32 to check the exact tier."""
        return None

    def magnitudes(self, inputs: Arrays, expected: Arrays) -> Arrays:
        """By output name: the size of the terms of which an element of `expected`, the reference, is the sum. Where
        they cancel, it is as inexact as they are large. The comparative tier takes that of others from themselves."""
        return {}

    @property
    def addends(self) -> int:
        """Terms of which an element is the sum in fp32. Where these are subnormal, each is rounded to a multiple of the
        smallest number, whatever the size of the result is: the comparative tier allows for that."""
        return 1

    def invariants(self) -> tuple[Invariant, ...]:
        """The properties of right answers besides their error."""
        return ()

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        """Largest permitted absolute error for each element of each output, float64, in the bounded tier."""
        raise NotImplementedError("an operation with a bounded tier has to define bound()")

    @property
    def bound_by_default(self) -> bool:
        """Whether nobody has derived the bound, so that it knows nothing of terms that cancel, underflow or jump."""
        return False

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        """Answers a broken kernel would give (all zeros, dropped tail ...): every one of them must be rejected.

        Variants that happen to be right for this problem (transposing a symmetric result, say) are left out. Without
        a definition of its own an operation has those of `default_controls`."""
        return default_controls(self.arrays(), inputs, expected)

    def axes(self) -> tuple[Axis, ...]:
        """The extents whose places do not depend on each other. The answer to a large problem is judged by NumPy at
        some of these places: many of the first extent, some of the others. Without any extent, NumPy judges the whole
        answer, which takes long."""
        return ()

    def drawn_parts(self, rng: np.random.Generator, stratum: int) -> list[Part]:
        """Parts by which the answer to a large problem is judged, as `parts_of_axes` draws them. A problem may draw
        others."""
        return parts_of_axes(self, self.axes(), rng, stratum)

    @property
    def terms(self) -> int:
        """How many terms each element of the output sums up; 0 if it is not a sum; then `probe` is not called."""
        return 0

    def probe(self, order: np.ndarray[Any, Any]) -> Arrays:
        """Inputs for which element e of the (flattened) output is 1, made by term `order[e]` alone, or 0 where that
        is -1. No term occurs twice in `order`."""
        raise NotImplementedError

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """Work of the problem."""

    @property
    def compute_dtype(self) -> str:
        """The type whose peak rate limits the time: that of the field `dtype`, otherwise of the first input."""
        named = getattr(self, "dtype", None)
        if isinstance(named, str) and named in DTYPES:
            return named
        return next((array.dtype.name for array in self.arrays().values() if array.given), "")


_generators: list[Callable[[list[int]], Any]] = [np.random.default_rng]


@contextlib.contextmanager
def drawing_by(generator: Callable[[list[int]], Any]) -> Iterator[None]:
    """Let problems draw their inputs from generators that this makes of a seed, such as those of a device."""
    _generators.append(generator)
    try:
        yield
    finally:
        _generators.pop()


OF_ALL = ("distribution", "tier", "seed")
"""Fields that all problems have."""

P = TypeVar("P", bound=Problem)

DRAWN = 16_777_259
"""Most random numbers drawn for one array; a prime, so that rows do not repeat in step with the block."""


def draw_values(
    rng: np.random.Generator, tier: Tier, shape: tuple[int, ...], dtype: DType, limits: tuple[int, int] | None = None
) -> np.ndarray[Any, Any]:
    """Input values rounded to `dtype`: zero-mean normal numbers; integers in [-2, 2] in the exact tier and for integer
    types (unsigned ones up to 4, bool any), or others between the `limits`; scales of 1/4 to 4.

    Small integers keep every product and partial sum of up to 2^22 terms representable in an fp32 accumulator.
    Arrays of more than `DRAWN` elements repeat a block of that many: drawing gigabytes takes longer than using them.
    The generator of a device draws all of them, and rounds to types that its arrays do not have."""
    count = min(math.prod(shape), getattr(rng, "most", DRAWN))
    if dtype.is_scale:
        drawn: np.ndarray[Any, Any] = np.exp2(rng.integers(-2, 3, count))
    elif dtype.numpy.kind == "b":
        drawn = rng.integers(0, 2, count)
    elif not dtype.is_float:
        first, last = small_numbers(limits or ((0, 4) if dtype.numpy.kind == "u" else (-2, 2)))
        drawn = rng.integers(first, last + 1, count)
    elif tier is Tier.EXACT:
        drawn = rng.integers(-2, 3, count)
    else:
        drawn = rng.standard_normal(count, dtype=np.float32)
    rounded = rng.rounded(drawn, dtype) if hasattr(rng, "rounded") else drawn.astype(dtype.numpy)
    return rounded.reshape(shape) if count == math.prod(shape) else np.resize(rounded, shape)


@lru_cache  # drawing takes far less time from a strategy that is there already
def extents(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[int]:
    """Extents of a dimension: tiny ones, beside multiples of `edges` and powers of two, anything to the limit."""
    near = {e * f + d for e in edges for f in (1, 2, 3) for d in (-1, 0, 1)}
    powers = {2**i + d for i in range(size.extent.bit_length()) for d in (-1, 0, 1)}
    return st.one_of(
        st.integers(1, min(17, size.extent)),
        st.sampled_from([e for e in sorted({*near, *powers}) if 1 <= e <= size.extent]),
        st.integers(1, size.extent),
    )
