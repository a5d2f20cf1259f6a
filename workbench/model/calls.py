"""An operation called as a function: what it makes of the caller's arrays, and who solves it."""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Protocol

import numpy as np

from .problem import Problem


@dataclass(frozen=True)
class ArraySpec:
    """Shape, strides in bytes, dtype and device number of an array. Views are those that NumPy, too, makes without a
    copy; they remember their `source`: the position of the argument, or the name of the output."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int = 0
    source: int | str = ""

    @classmethod
    def whole(cls, shape: tuple[int, ...], dtype: np.dtype[Any], device: int = 0, source: int | str = "") -> ArraySpec:
        """An array in row-major order, without gaps."""
        return cls(shape, row_major(shape, dtype.itemsize), dtype, device, source)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.dtype.itemsize

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last one, for strides that are not negative."""
        return sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)) + self.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether it is in row-major order without gaps; the stride of a dimension of one element does not matter."""
        whole = row_major(self.shape, self.itemsize)
        return all(n == 1 or a == b for n, a, b in zip(self.shape, self.strides, whole, strict=True))

    @property
    def T(self) -> ArraySpec:  # noqa: N802  # as in NumPy
        return self.transpose()

    def transpose(self, *axes: int) -> ArraySpec:
        """The dimensions in this order, without any in the reverse one."""
        order = axes or tuple(reversed(range(self.ndim)))
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"axes {axes} are not a permutation of {self.ndim} dimensions")
        return replace(self, shape=tuple(self.shape[i] for i in order), strides=tuple(self.strides[i] for i in order))

    def reshape(self, *shape: Any) -> ArraySpec:
        """The elements in another shape, in which one extent may be -1. Raises ValueError for an array with gaps, and
        for a shape of another size."""
        given = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if given == self.shape:
            return self
        known = math.prod(n for n in given if n != -1)
        wanted = tuple(self.size // known if n == -1 and known else n for n in given)
        if math.prod(wanted) != self.size or given.count(-1) > 1:
            raise ValueError(f"an array of shape {self.shape} cannot have the shape {given}")
        if not self.contiguous:
            raise ValueError(f"an array of shape {self.shape} and strides {self.strides} is not without gaps")
        return replace(self, shape=wanted, strides=row_major(wanted, self.itemsize))


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an array in row-major order, without gaps."""
    steps = [itemsize] * len(shape)
    for place in range(len(shape) - 2, -1, -1):
        steps[place] = steps[place + 1] * shape[place + 1]
    return tuple(steps)


@dataclass(frozen=True)
class Call:
    """A problem, and which of the caller's arrays are its inputs: views of them that need no copy.

    `finish` makes of the outputs, by name, what the caller gets, views again: by default the only one, or a named tuple
    of them in the order in which they are declared. `instead` is the same call as one of another operation, by its
    name, which solves it where all stages may."""

    problem: Problem
    inputs: Mapping[str, ArraySpec]
    finish: Callable[[dict[str, ArraySpec]], Any] | None = None
    instead: tuple[str, Call] | None = None


Key = tuple[Any, ...]
"""What calls of one class agree in: shapes, strides, dtypes, devices and alignment of their arrays, and options."""


class Ready(Protocol):
    """What is ready for a class of calls."""

    def launch(self, arrays: Sequence[Any], addresses: list[int], out: Any = None) -> Any:
        """Solve a call of this class. `addresses` are those of the arrays, and of `out` where it is given."""


class Solver(Protocol):
    """Who solves calls, and makes ready in `Function.ready` what solves later ones of their class."""

    def solve(self, function: Function, arrays: Sequence[Any], out: Any, options: Mapping[str, Any]) -> Any:
        """Solve the first call of a class."""

    def prepare(self, function: Function, arrays: Sequence[Any], out: Any, options: Mapping[str, Any]) -> Any:
        """Make ready what solves such calls, and return it."""


READERS: dict[type, Callable[[Sequence[Any]], tuple[Key, list[int]]]] = {}
"""By the type of arrays: the key of a call with these, and their addresses."""

HOT: dict[type, Callable[..., Any]] = {}
"""By the type of the first array: what makes a call of a class that is ready quickly. It is given the function, arrays,
`out` and options, and returns None for a call that it does not make."""


class Gradients(Protocol):
    """How autograd of PyTorch computes the gradients of a function's arrays: from that of its first result, the only
    one that has any."""

    def saved(
        self, arrays: Sequence[Any], results: Sequence[Any], wanted: Sequence[bool], options: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Any]:
        """What is kept of a call for the gradients of the arrays that are `wanted`: arrays and results, and anything
        that is none, such as options. Arrays that were left out may be missing at the end."""

    def solve(
        self, called: Callable[[str], Any], saved: Sequence[Any], kept: Any, gradient: Any, wanted: Sequence[bool]
    ) -> Sequence[Any]:
        """The gradients of the arrays in their order, None or anything for those that are not wanted. `called` gives
        the function of an operation."""


@dataclass(frozen=True)
class Gradient:
    """The operation that computes the gradients of another one's inputs.

    `takes` names what it is given, in the order of its arrays: inputs of the other one, `RESULT` for its result and
    `OF_RESULT` for the gradient of that. `gives` are the inputs whose gradients it returns. Options are handed on by
    name. The gradient of the result has the dtype of the first array that is taken. `result(n)` is the result n places
    behind the first."""

    operation: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]

    RESULT: ClassVar[str] = "result"
    OF_RESULT: ClassVar[str] = "gradient of the result"

    @classmethod
    def result(cls, place: int) -> str:
        """What `takes` calls the result at this place, from 0 on."""
        return f"{cls.RESULT} {place}" if place else cls.RESULT


class Function:
    """An operation as a function. `build` checks the arrays and options of a call and returns its `Call`.

    Its positional parameters are arrays, of which it gets an `ArraySpec` each, and its keyword-only ones are options:
    what it returns may depend on nothing else, since it is asked once for calls that agree in them. What was made ready
    for a class of calls is in `ready`, which another thread may add to at any time, under the `lock`. `gradient` says
    how the gradients of its arrays are computed, where they are, and `among` is the operation with the stages
    alone that may solve calls. `takes` is the signature of `build`.

    The way of a call whose class is known is short: its arrays are read, a dictionary has what is ready for them, and
    that allocates the results and calls the driver."""

    def __init__(
        self, operation: Any, build: Callable[..., Call], among: Any = None, solver: Solver | None = None
    ) -> None:
        functools.update_wrapper(self, build)
        self.operation, self.build, self.solver = operation, build, solver
        self.among = operation if among is None else among
        self.takes = signature = inspect.signature(build)
        kinds = [(p.name, p.kind is inspect.Parameter.KEYWORD_ONLY) for p in signature.parameters.values()]
        self.arrays = tuple(name for name, option in kinds if not option)
        self.options = tuple(name for name, option in kinds if option)
        out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
        self.__signature__ = signature.replace(
            parameters=[*signature.parameters.values(), out], return_annotation=inspect.Signature.empty
        )
        self.gradient: Gradient | Gradients | None = None
        self.ready: dict[Key, Ready] = {}
        self.lock = threading.Lock()

    def __call__(self, *arrays: Any, out: Any = None, **options: Any) -> Any:
        hot = HOT.get(type(arrays[0])) if arrays else None
        if hot is not None and (found := hot(self, arrays, out, options)) is not None:
            return found
        try:
            read = READERS[type(arrays[0])]
            key, addresses = read(arrays) if out is None else read((*arrays, *listed(out)))
            ready = self.ready[(key, *options.items()) if options else key]
        except (LookupError, AttributeError, TypeError, ValueError):  # no class that is known
            ready = None
        if ready is None:
            return self._solver().solve(self, arrays, out, options)
        return ready.launch(arrays, addresses, out)

    def prepare(self, *arrays: Any, out: Any = None, **options: Any) -> Any:
        """What a call with these arguments does, ready to be launched: `workbench.ops.Prepared`. Launches nothing."""
        return self._solver().prepare(self, arrays, out, options)

    def _solver(self) -> Solver:
        """Who solves calls. Raises RuntimeError where nobody can."""
        if self.solver is not None:
            return self.solver
        if not _solvers:
            name = self.operation.name
            raise RuntimeError(f"import workbench.ops to call {name}: it chooses the stage and launches it")
        return _solvers[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "ready": {}, "lock": None}  # what is ready belongs to this process

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.Lock())

    def __repr__(self) -> str:
        return f"<operation {self.operation.name}{self.__signature__}>"


def listed(out: Any) -> Sequence[Any]:
    """The arrays for results that a caller gives: one, or a tuple of them."""
    return out if isinstance(out, tuple) else (out,)


_solvers: list[Solver] = []


def solve_with(solver: Solver) -> None:
    """Name who solves all calls from now on: `workbench.ops`, which knows devices and tables."""
    _solvers[:] = [solver]


def results(call: Call, operation: str, outputs: dict[str, ArraySpec]) -> Any:
    """What the caller gets of these outputs."""
    if call.finish:
        return call.finish(outputs)
    return next(iter(outputs.values())) if len(outputs) == 1 else _named(operation, tuple(outputs))(**outputs)


@cache
def _named(operation: str, outputs: tuple[str, ...]) -> Any:
    return namedtuple(f"{operation}_outputs", outputs)  # its fields are known at run time only
