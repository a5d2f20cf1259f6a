"""One case of an operation: a problem makes its own inputs and knows its reference and its error bound."""

from __future__ import annotations

import dataclasses
import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from hypothesis import strategies as st

from .arrays import Array, Arrays
from .dtypes import FP32, DType
from .errors import WrongUsage


class Tier(StrEnum):
    """How a problem is judged: `exact` needs bit-equal results, `bounded` an error within the a-priori bound."""

    EXACT = "exact"
    BOUNDED = "bounded"


class ProblemError(WrongUsage, ValueError):
    """A problem text or field that makes no sense; the message says what would."""


SLOW_FLOPS, SLOW_BYTES = 2e11, 2e10
"""Operations and bytes a second of a slow kernel: less than the naive stages reach on an H200 in their worst case."""


@dataclass(frozen=True)
class Cost:
    """The least work a problem needs: floating-point operations, and bytes moved when each operand moves once."""

    flops: int
    bytes: int

    @property
    def slow_seconds(self) -> float:
        """What a first, naive kernel may well take on a GPU."""
        return self.flops / SLOW_FLOPS + self.bytes / SLOW_BYTES


@dataclass(frozen=True)
class Size:
    """How large the problems of a device may be: largest extent of a dimension, and of the work in scalar steps."""

    extent: int
    work: int


@dataclass(frozen=True)
class Problem(ABC):
    """One concrete case of an operation. A subclass adds its sizes, dtypes and layouts as fields with defaults.

    The text form is `field=value,...`; fields at their default may be left out.
    """

    tier: Tier = Tier.BOUNDED
    seed: int = 0

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Fields that hold one of a few words."""

    extents: ClassVar[tuple[str, ...]] = ()
    """Fields that hold a size >= 1, in the order of the short text form `64x32x16`."""

    def __post_init__(self) -> None:
        for name, allowed in {"tier": tuple(Tier), **self.choices}.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ProblemError(f"{name} is {value!r}; it has to be one of {', '.join(allowed)}")
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, bool) or (f.default.__class__ is int and not isinstance(value, int)):
                raise ProblemError(f"{f.name} is {value!r}; it has to be a whole number")
            if isinstance(value, int):
                least = 1 if f.name in self.extents else 0
                if value < least:
                    raise ProblemError(f"{f.name} is {value}; it has to be at least {least}")
        out, dtype = getattr(self, "out", None), getattr(self, "dtype", None)
        if "dtype" in self.choices and out not in (None, dtype, FP32.name):
            allowed_out = " or ".join(dict.fromkeys((str(dtype), FP32.name)))
            raise ProblemError(f"out is {out!r}; for dtype {dtype} it has to be {allowed_out}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The problem that `text` describes, for example `m=64,n=32,k=7,dtype=bf16` or `64x32x7,dtype=bf16`.

        Raises ProblemError for an empty text, an unknown field, one that is given twice or a value that is not allowed.
        """
        types = {f.name: f.default.__class__ for f in dataclasses.fields(cls)}
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
                given = {n: cls._whole(n, s) for n, s in zip(cls.extents, sizes, strict=True)}
            elif name not in types:
                near = difflib.get_close_matches(name, types, 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise ProblemError(f"unknown field {name!r}{hint}; the fields are {', '.join(types)}")
            else:
                given = {name: cls._whole(name, value) if types[name] is int else value}
            if twice := given.keys() & values.keys():
                raise ProblemError(f"{' and '.join(sorted(twice))} is given twice; once is enough")
            values |= given
        if "tier" in values and values["tier"] in tuple(Tier):
            values["tier"] = Tier(values["tier"])
        return cls(**values)

    @staticmethod
    def _whole(name: str, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise ProblemError(f"{name} is {text!r}; it has to be a whole number") from None

    def __str__(self) -> str:
        parts = []
        for f in sorted(dataclasses.fields(self), key=lambda f: f.name in ("tier", "seed")):
            value = getattr(self, f.name)
            if f.name in self.extents or value != f.default or f.name in ("tier", "seed", *self.choices):
                parts.append(f"{f.name}={value}")
        return ",".join(parts)

    def with_tier(self, tier: Tier) -> Self:
        """The same problem judged by another tier (which also draws other inputs)."""
        return dataclasses.replace(self, tier=tier)

    def rng(self) -> np.random.Generator:
        """The generator from which all inputs of this problem come."""
        return np.random.default_rng([self.seed, tuple(Tier).index(self.tier)])

    @property
    @abstractmethod
    def label(self) -> str:
        """Short name of size and types for tables, without tier and seed: `4096x4096x4096 bf16 nt`."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """The arrays of the problem by name, inputs and outputs."""

    def inputs(self) -> Arrays:
        """Values of the input arrays, already rounded to their storage type. The same problem gives the same inputs."""
        rng = self.rng()
        return {
            name: draw_values(rng, self.tier, array.shape, array.dtype)
            for name, array in self.arrays().items()
            if not array.output
        }

    @abstractmethod
    def reference(self, inputs: Arrays) -> Arrays:
        """The float64 result for `inputs`, by output name."""

    @abstractmethod
    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        """Largest permitted absolute error for each element of each output, float64, in the bounded tier."""

    @abstractmethod
    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        """Answers a broken kernel would give (all zeros, dropped tail ...): every one of them must be rejected.

        Variants that happen to be right for this problem (transposing a symmetric result, say) are left out.
        """

    @property
    def terms(self) -> int:
        """How many terms each element of the output sums up; 0 where it is no such sum, and `probe` is not asked."""
        return 0

    def probe(self, order: np.ndarray[Any, Any]) -> Arrays:
        """Inputs for which element e of the (flattened) output is 1, made by term `order[e]` alone, or 0 where that
        is -1. No term occurs twice in `order`."""
        raise NotImplementedError

    @property
    @abstractmethod
    def cost(self) -> Cost:
        """Work of the problem."""


P = TypeVar("P", bound=Problem)

DRAWN = 16_777_259
"""Most random numbers drawn for one array; a prime, so that rows do not repeat in step with the block."""


def draw_values(rng: np.random.Generator, tier: Tier, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Input values rounded to `dtype`: zero-mean normal for the bounded tier, integers in [-2, 2] for the exact one.

    Small integers keep every product and partial sum of up to 2^22 terms representable in an fp32 accumulator.
    Arrays of more than `DRAWN` elements repeat a block of that many: drawing gigabytes takes longer than using them.
    """
    count = min(math.prod(shape), DRAWN)
    drawn = rng.integers(-2, 3, count) if tier is Tier.EXACT else rng.standard_normal(count, dtype=np.float32)
    return np.resize(drawn.astype(dtype.numpy), shape)


@lru_cache  # drawing takes far less time from a strategy that is there already
def extents(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[int]:
    """Extents of a dimension: tiny ones, one off multiples of `edges`, powers of two, anything up to the limit."""
    near = sorted({e * f + d for e in edges for f in (1, 2, 3) for d in (-1, 0, 1)} | {2**i for i in range(11)})
    return st.one_of(
        st.integers(1, min(17, size.extent)),
        st.sampled_from([e for e in near if 1 <= e <= size.extent]),
        st.integers(1, size.extent),
    )
