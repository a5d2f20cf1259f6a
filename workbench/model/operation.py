"""What an operation is: problems that make their own inputs, a reference, an error bound, a ladder of stages."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from hypothesis import strategies as st

from .declared import declared
from .dtypes import FP32, DType
from .errors import WrongUsage
from .launch import Array, Launch, Plan

Arrays = dict[str, np.ndarray[Any, Any]]

_HERE = Path(__file__).parents[1]
SOURCES = next(p for p in (_HERE / "cuda_src", _HERE.parent / "cuda_src") if p.is_dir() or p.parent != _HERE)
"""The workbench's own CUDA sources: inside the installed package, or beside it in a checkout."""

BUILT_IN = "workbench"
"""Where the workbench's own operations come from."""


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


def element_bytes(arrays: Iterable[Array]) -> int:
    """What the elements of all arrays take, without the padding between rows."""
    return sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)


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


@dataclass(frozen=True)
class Stage(Generic[P]):
    """One CUDA source that computes an operation, with the idea it adds over the stage before it.

    `source` is relative to the folder of the operation's sources. `parameters` are compile-time sizes: they become
    `-D` defines, `plan` gets them through the stage, and problems near their multiples are drawn on purpose.
    `sizes_for` gives those that depend on the problem: each choice is a variant compiled by itself. `accepts` returns
    why a problem cannot be taken, or None. `architecture` is the least compute capability times ten. Every array has to
    start at a multiple of `alignment` bytes. `edge_cases` are problems that random ones would hardly hit and that are
    always tried.
    Two launches on the same inputs have to give the same bits unless the stage is declared not `deterministic`.

    `space` holds the values that tuning may give to some of the parameters, their declared ones among them;
    `constraint` returns why the stage cannot solve a problem with these parameters, or None. It says what the
    static_asserts of the source say, and what would not fit on the device. `owner` is the operation, and `code` the
    source where that is no file.
    """

    operation: str
    name: str
    source: str
    idea: str
    plan_for: Callable[[P, Mapping[str, int]], Launch | Plan]
    accepts: Callable[[P], str | None] = lambda problem: None
    defines_for: Callable[[P], Mapping[str, str | int]] = lambda problem: {}
    parameters: Mapping[str, int] = field(default_factory=dict)
    sizes_for: Callable[[P, Mapping[str, int]], Mapping[str, int]] = lambda problem, size: {}
    architecture: int = 70
    alignment: int = 16
    edge_cases: tuple[P, ...] = ()
    deterministic: bool = True
    space: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constraint: Callable[[P, Mapping[str, int]], str | None] = lambda problem, size: None
    owner: Operation[P] | None = field(default=None, repr=False, compare=False)
    code: str | None = field(default=None, repr=False)

    @property
    def spec(self) -> str:
        """`operation:stage`, as the command line takes it."""
        return f"{self.operation}:{self.name}"

    @property
    def path(self) -> Path:
        """Absolute path of the CUDA source."""
        return self.sources / self.source

    @property
    def sources(self) -> Path:
        """The folder of the operation's CUDA sources, or the one in which `code` is kept."""
        if self.code is not None:
            from ..toolchain.compiler import kept_source

            return kept_source(self.code, self.source)
        return (self.owner.sources if self.owner else None) or SOURCES

    def supports(self, problem: P, architecture: int = 90) -> str | None:
        """Why the stage cannot take `problem` on a device of this compute capability, or None where it can.

        Raises BadOperation for what its functions raise.
        """
        if architecture < self.architecture:
            return f"needs compute capability {self.architecture / 10:.1f}, the device has {architecture / 10:.1f}"
        try:
            return self.accepts(problem) or self.constraint(problem, self.parameters)
        except Exception:
            with declared(f"supports of {self.spec}"):
                raise

    def beyond_limits(self, problem: P) -> str | None:
        """Why no device can launch the stage for a problem that it supports, or None: a grid that is too large, or
        numbers too large for the kernel's arguments.

        `supports` does not ask: that makes a plan, which may raise anything where the stage is wrong. A stage that is
        judged is to fail with what it does, not to be excused.
        """
        try:
            launches = self.plan(problem).launches
        except OverflowError as error:  # NumPy's, of a scalar
            return f"an argument does not hold its number: {error}"
        return next(filter(None, (launch.beyond_limits() for launch in launches)), None)

    def with_code(self, code: str) -> Self:
        """The same stage with other CUDA C++, given as a string, in the place of its source."""
        return dataclasses.replace(self, code=code)

    def with_parameters(self, parameters: Mapping[str, int]) -> Self:
        """The same stage with other values for some of its parameters. Raises ValueError for one it does not have."""
        if unknown := set(parameters) - set(self.parameters):
            raise ValueError(f"{self.spec} has no parameter {', '.join(sorted(unknown))}")
        return dataclasses.replace(self, parameters={**self.parameters, **parameters})

    def configurations(self) -> Iterator[dict[str, int]]:
        """Every combination of the values in `space`, also those that `constraint` rules out."""
        for values in itertools.product(*self.space.values()):
            yield dict(zip(self.space, values, strict=True))

    def sizes(self, problem: P) -> dict[str, int]:
        """The parameters, and the sizes that depend on `problem`."""
        return {**self.parameters, **self.sizes_for(problem, self.parameters)}

    def defines(self, problem: P) -> dict[str, str | int]:
        """The `-D` defines with which the source is compiled for `problem`."""
        return {**self.defines_for(problem), **self.sizes(problem)}

    def plan(self, problem: P) -> Plan:
        """The launches that solve `problem`."""
        made = self.plan_for(problem, self.sizes(problem))
        plan = Plan((made,)) if isinstance(made, Launch) else made
        return dataclasses.replace(plan, expected_seconds=problem.cost.slow_seconds)


@dataclass
class Operation(Generic[P]):
    """What is computed, and the ladder of stages that compute it. One at module level in a module of a project's
    `[tool.workbench]` is found by its `name`.

    `problem` is the class of its problems. `problems(size, edges)` is the Hypothesis strategy: `edges` are the sizes
    of the stage's tiles, so that extents at their multiples and one off are drawn often. `suite` holds the problems
    that are timed. `defines` are the defines that all stages share. `emulator_size` and `cuda_size` bound random
    problems. `metric` is the unit in which throughput is reported, `TFLOP/s` or `GB/s`. `fastest` names the stages that
    `workbench.ops` prefers, best first, where a later stage of the ladder was not measured to be faster: the same ones
    always, or a function that names those for a problem.

    `sources` is the folder of the CUDA sources and `origin` says where the operation comes from; who finds it sets
    them. None are the workbench's own sources.
    """

    name: str
    summary: str
    problem: type[P]
    problems: Callable[[Size, tuple[int, ...]], st.SearchStrategy[P]]
    suite: tuple[P, ...]
    defines: Callable[[P], Mapping[str, str | int]]
    emulator_size: Size
    cuda_size: Size
    metric: str = "TFLOP/s"
    fastest: tuple[str, ...] | Callable[[P], tuple[str, ...]] = ()
    stages: list[Stage[P]] = field(default_factory=list)
    sources: Path | None = None
    origin: str = BUILT_IN

    def stage(
        self,
        name: str,
        *,
        source: str = "",
        idea: str,
        code: str | None = None,
        supports: Callable[[P], str | None] = lambda problem: None,
        parameters: Mapping[str, int] | None = None,
        sizes: Callable[[P, Mapping[str, int]], Mapping[str, int]] = lambda problem, size: {},
        architecture: int = 70,
        alignment: int = 16,
        edge_cases: tuple[P, ...] = (),
        deterministic: bool = True,
        space: Mapping[str, tuple[int, ...]] | None = None,
        constraint: Callable[[P, Mapping[str, int]], str | None] = lambda problem, size: None,
    ) -> Callable[[Callable[[P, Mapping[str, int]], Launch | Plan]], Stage[P]]:
        """Declare the next stage of the ladder; the decorated function returns its launch for a problem.

        The function gets the problem and the stage's `parameters`, and the `sizes` that depend on both. The CUDA C++ is
        the file `source`, relative to the folder of the operation's sources, or the string `code`. Raises ValueError
        for a name that is taken, for neither or both of `source` and `code`, and for a `space` without the declared
        value of each of its parameters.
        """
        if bool(source) == (code is not None):
            raise ValueError(f"{self.name}:{name} has to have either a source, which is a file, or code, a string")

        def declare(plan_for: Callable[[P, Mapping[str, int]], Launch | Plan]) -> Stage[P]:
            if any(s.name == name for s in self.stages):
                raise ValueError(f"{self.name} already has a stage {name!r}")
            for parameter, values in (space or {}).items():
                if (parameters or {}).get(parameter) not in values:
                    raise ValueError(f"{self.name}:{name}: the space of {parameter} lacks its declared value")
            stage = Stage(
                operation=self.name,
                name=name,
                source=source or f"{name}.cu",
                idea=idea,
                code=code,
                plan_for=plan_for,
                accepts=supports,
                defines_for=self.defines,
                parameters=parameters or {},
                sizes_for=sizes,
                architecture=architecture,
                alignment=alignment,
                edge_cases=edge_cases,
                deterministic=deterministic,
                space=space or {},
                constraint=constraint,
                owner=self,
            )
            self.stages.append(stage)
            return stage

        return declare


@lru_cache  # drawing takes far less time from a strategy that is there already
def extents(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[int]:
    """Extents of a dimension: tiny ones, one off multiples of `edges`, powers of two, anything up to the limit."""
    near = sorted({e * f + d for e in edges for f in (1, 2, 3) for d in (-1, 0, 1)} | {2**i for i in range(11)})
    return st.one_of(
        st.integers(1, min(17, size.extent)),
        st.sampled_from([e for e in near if 1 <= e <= size.extent]),
        st.integers(1, size.extent),
    )
