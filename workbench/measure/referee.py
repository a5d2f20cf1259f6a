"""Who judges the answers to large problems: a process with a CUDA context of its own, where no kernel of a stage runs.

It draws the inputs on the device and keeps them. Parts of the problem, drawn at random, are solved by NumPy, and the
whole problem by CuPy. A stage's process gets a copy of the inputs, and lends its answers."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from ..devices import lending
from ..devices.worker import Broken, Ended, Late, Worker
from ..judge import drawn as drawing
from ..judge import whole
from ..judge.case import Comparison, quiet
from ..judge.drawn import ALONE, STRATUM, Drawn, dense
from ..judge.whole import Whole
from ..model.arrays import Array, Arrays
from ..model.distributions import Distribution
from ..model.dtypes import DType
from ..model.parts import Part
from ..model.problem import Problem, Tier, drawing_by
from ..model.results import Failure, Verdict

LARGE_ELEMENTS, LARGE_FLOPS = 1 << 22, 1 << 32
"""Elements of all arrays, and operations, from which on a problem is large: NumPy alone would take seconds."""

WHOLLY_AHEAD = 4
"""Problems that are solved wholly before an answer is there: more might not fit into memory."""

SECONDS = 300.0
"""Longest that anything may take that the referee is asked."""

Answer = Mapping[str, "lending.Lent | np.ndarray[Any, Any]"]
"""The storage of outputs: lent by another process, or on the host."""


class Unprepared(Exception):
    """The referee cannot judge the problem; the message says why."""


def suits(problem: Problem) -> bool:
    """Whether a problem is large, and one that a referee can judge."""
    arrays = problem.arrays().values()
    if sum(array.size for array in arrays) < LARGE_ELEMENTS and problem.cost.flops < LARGE_FLOPS:
        return False
    plain = not any(array.inout or (array.output and array.padded) for array in arrays)
    return plain and problem.tier is not Tier.EXACT and problem.distribution is Distribution.NORMAL


@dataclass
class _Prepared:
    """A problem on the device, and what is known of its answer."""

    problem: Problem
    arrays: Mapping[str, Array]
    storage: dict[str, Any]
    parts: list[Part]
    drawn: Future[Drawn]
    constant: list[str]
    whole: Whole | None = None
    alone: str = ""
    """Why there is no reference of the whole answer."""
    checked: bool = False


@dataclass
class Judge:
    """In the process: the problems that are prepared, the least recently used first."""

    xp: Any
    generator: Callable[[Any], Any]
    most_bytes: int
    secret: int = field(default_factory=lambda: secrets.randbits(31))
    prepared: dict[Problem, _Prepared] = field(default_factory=dict)
    lent: list[Any] = field(default_factory=list)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    @classmethod
    def on_gpu(cls) -> Judge:
        """On the current CUDA device, of whose memory it takes a third."""
        import cupy

        total = cupy.cuda.Device().mem_info[1]
        return cls(cupy, DeviceGenerator, total // 3)

    def prepare(self, problem: Problem) -> _Prepared:
        """Draw the inputs, and begin to solve drawn parts of the problem. Raises Unprepared."""
        if problem in self.prepared:
            self.prepared[problem] = self.prepared.pop(problem)
            return self.prepared[problem]
        self._make_room()
        own = dataclasses.replace(problem, seed=problem.seed ^ self.secret)
        rng = np.random.default_rng(secrets.randbits(64))
        parts = own.drawn_parts(rng, STRATUM)
        if not parts:
            raise Unprepared("the operation does not say which of its places are independent")
        arrays = own.arrays()
        storage = self._storage(own, arrays)
        fetched = {id(part): self._fetch(arrays, storage, part) for part in parts}
        solved = self.pool.submit(_solved, own, parts, fetched)
        self._free()
        constant = [name for name, a in arrays.items() if a.given and self._is_constant(a, storage[name])]
        self.prepared[problem] = _Prepared(own, arrays, storage, parts, solved, constant)
        return self.prepared[problem]

    def compare(self, problem: Problem, answer: Answer) -> list[tuple[str, Comparison, bool]]:
        """An answer compared at drawn places, and wholly where there is a reference of that: by output, and whether
        only drawn places were looked at. Raises Unprepared."""
        prepared = self.prepare(problem)
        self._check(prepared)
        storage = {name: self._held(memory) for name, memory in answer.items()}
        outputs = {n: a for n, a in prepared.arrays.items() if a.output}
        drawn = _drawn(prepared).compare(lambda part: self._fetch(outputs, storage, part))
        found = [(name, compared, True) for name, compared in drawn.items()]
        if prepared.whole:
            wholly = prepared.whole.compare(storage, self.xp)
            found = [(name, compared, False) for name, compared in wholly.items()] + found
        storage.clear()
        self._free()
        return found

    def said(self, problem: Problem) -> str:
        """How answers to the problem are judged. Raises Unprepared."""
        prepared = self.prepare(problem)
        self._check(prepared)
        count = _drawn(prepared).elements
        if prepared.whole:
            return f"whole answer by CuPy in float64, {count:,} elements drawn by NumPy"
        return f"{count:,} elements drawn by NumPy alone: {prepared.alone}"

    def lend(self, problem: Problem) -> Answer:
        """A copy of the inputs, for a process that runs kernels, until `release`."""
        prepared = self.prepare(problem)
        copies = {name: memory.copy() for name, memory in prepared.storage.items()}
        if self.xp is np:
            return {name: memory.view(prepared.arrays[name].dtype.storage) for name, memory in copies.items()}
        self.lent += copies.values()
        return {name: lending.lend(memory) for name, memory in copies.items()}

    def release(self) -> None:
        """Take back what was lent."""
        self.lent.clear()
        self._free()

    def _storage(self, own: Problem, arrays: Mapping[str, Array]) -> dict[str, Any]:
        """The inputs in memory of the device, drawn there where the operation's code lets that be."""
        with quiet(own):
            try:
                with drawing_by(self.generator):
                    given: Mapping[str, Any] = own.given()
            except Exception:  # of many kinds: whatever arrays of the device do not have
                given = own.given()
            on_device = {name: self._uploaded(arrays[name], values) for name, values in given.items()}
            storage = {name: whole.packed(arrays[name], values, self.xp) for name, values in on_device.items()}
            del given, on_device
            if prepared := [name for name, array in arrays.items() if array.prepared]:
                values = own.prepare(_OnHost(lambda name: self._on_host(arrays[name], storage[name], None)))
                for name in prepared:
                    storage[name] = whole.packed(arrays[name], self._uploaded(arrays[name], values[name]), self.xp)
        self._free()
        return storage

    def _uploaded(self, array: Array, values: Any) -> Any:
        if isinstance(values, np.ndarray) and array.dtype.is_float and array.dtype.itemsize == 1:
            values = values.astype(np.float32)
        return self.xp.asarray(values)

    def _fetch(self, arrays: Mapping[str, Array], storage: Mapping[str, Any], part: Part) -> Arrays:
        """What belongs to a part, on the host, in the arrays' own types."""
        return {n: self._on_host(array, storage[n], part.index.get(n)) for n, array in arrays.items() if n in storage}

    def _on_host(self, array: Array, storage: Any, index: Any) -> np.ndarray[Any, Any]:
        bits = whole.strided(array, array.dtype.unpacked(storage), np.dtype(f"u{array.dtype.itemsize}"), self.xp)
        chosen = bits if index is None else bits[index]
        host: np.ndarray[Any, Any] = chosen.get() if hasattr(chosen, "get") else np.array(chosen)
        return host.view(array.dtype.numpy)

    def _is_constant(self, array: Array, storage: Any) -> bool:
        """Whether the first elements are equal: arithmetic on such inputs draws less power and is faster."""
        first = storage[: min(array.nbytes, 4096 * array.dtype.itemsize)]
        host = first.get() if hasattr(first, "get") else np.array(first)
        elements = host.reshape(-1, array.dtype.itemsize)
        return len(elements) > 16 and bool((elements == elements[0]).all())

    def _check(self, prepared: _Prepared) -> None:
        """Solve the whole problem on the device, and hold that against NumPy at the drawn places. Raises Unprepared."""
        if prepared.checked and (prepared.whole or prepared.alone):
            return
        problem = prepared.problem
        try:
            inputs = {
                name: whole.wide(array, whole.values_of(array, prepared.storage[name], self.xp))
                for name, array in prepared.arrays.items()
                if array.given
            }
            with quiet(problem):
                prepared.whole = Whole.of(problem, inputs, lambda: _drawn(prepared))
                if not prepared.checked and (reason := _drawn(prepared).differs(lambda p: _reference(prepared, p))):
                    raise Unprepared(f"the reference that CuPy computes is not NumPy's: {reason}")
        except Exception as error:  # of many kinds: a library that is missing, or no memory, or what CuPy does not have
            prepared.whole = None
            prepared.alone = _why(error)
            self._free()
            if not dense(problem, prepared.parts, STRATUM):
                raise Unprepared(f"{prepared.alone}, and drawn places do not touch every tile") from None
            if not prepared.checked:
                self._draw_more(prepared)
        prepared.checked = True
        self._free()

    def _draw_more(self, prepared: _Prepared) -> None:
        parts = prepared.problem.drawn_parts(np.random.default_rng(secrets.randbits(64)), ALONE)
        fetched = {id(part): self._fetch(prepared.arrays, prepared.storage, part) for part in parts}
        prepared.parts, prepared.drawn = parts, self.pool.submit(_solved, prepared.problem, parts, fetched)

    def _held(self, memory: Any) -> Any:
        if isinstance(memory, lending.Lent):
            with lending.borrowed(memory) as theirs:
                return theirs.copy()  # the memory that is compared is this process's own
        return self.xp.asarray(memory.view(np.uint8))

    def _make_room(self) -> None:
        """Forget references, and then problems, until they take no more memory than they may."""
        for prepared in list(self.prepared.values()):
            if self._bytes() <= self.most_bytes:
                return
            prepared.whole = None
        for problem in list(self.prepared)[:-1]:
            if self._bytes() <= self.most_bytes:
                return
            del self.prepared[problem]
        self._free()

    def _bytes(self) -> int:
        held = (sum(int(m.nbytes) for m in p.storage.values()) for p in self.prepared.values())
        return sum(held) + sum(p.whole.nbytes for p in self.prepared.values() if p.whole)

    def _free(self) -> None:
        """Give unused memory back where that is much: to ask the device for it again takes long."""
        if self.xp is not np and (pool := self.xp.get_default_memory_pool()).total_bytes() > self.most_bytes:
            pool.free_all_blocks()


class _OnHost(dict[str, Any]):
    """Inputs that are copied to the host when they are asked for."""

    def __init__(self, fetch: Callable[[str], Any]) -> None:
        super().__init__()
        self._fetch = fetch

    def __missing__(self, name: str) -> Any:
        self[name] = self._fetch(name)
        return self[name]


def _solved(problem: Problem, parts: list[Part], fetched: Mapping[int, Arrays]) -> Drawn:
    with quiet(problem):
        return Drawn.of(problem, parts, lambda part: fetched[id(part)])


def _drawn(prepared: _Prepared) -> Drawn:
    """The parts that were drawn, solved. Raises Unprepared."""
    try:
        return prepared.drawn.result()
    except Exception as error:  # of the operation's own code: whoever judges without a referee says what is wrong
        raise Unprepared(f"NumPy cannot solve what was drawn ({_why(error)})") from None


def _reference(prepared: _Prepared, part: Part) -> Arrays:
    assert prepared.whole
    return drawing.on_host(part, prepared.whole.expected)


def _why(error: Exception) -> str:
    if isinstance(error, Unprepared):
        return str(error)
    first = (str(error).strip() or repr(error)).splitlines()[0]
    return f"CuPy cannot solve it ({type(error).__name__}: {first[:200]})"


def _prepare(judge: Judge, problem: Problem) -> list[str]:
    return judge.prepare(problem).constant


class Referee:
    """The process, which is started when it is first asked. Ask it from any thread."""

    def __init__(self, start: Callable[[], Judge] = Judge.on_gpu) -> None:
        self._worker = Worker(start, expected=(Unprepared,))
        self._thread = ThreadPoolExecutor(1)  # the process ends with the thread that has started it
        self._refused: dict[Problem, str] = {}
        self._preparing: list[Future[str]] = []
        self._broken = ""

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._thread.submit(self._ask_there, function, *arguments).result()

    def _ask_there(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """In the thread of the process."""
        if self._broken:
            raise Unprepared(self._broken)
        try:
            return self._worker.ask(function, *arguments, seconds=SECONDS)
        except (Late, Ended, Broken) as error:
            self._broken = f"the process that judges is not there: {error}"
            self._worker.kill()
            raise Unprepared(self._broken) from None

    def refuses(self, problem: Problem) -> str:
        """Why the referee does not judge a problem, or nothing; it begins to prepare those that it does."""
        return self._thread.submit(self._refuses_there, problem).result()

    def _refuses_there(self, problem: Problem) -> str:
        if problem not in self._refused:
            try:
                if not suits(problem):
                    return "it is small"
                self._ask_there(_prepare, problem)
                return ""
            except Unprepared as error:
                self._refused[problem] = str(error)
        return self._refused[problem]

    def expect(self, problems: Sequence[Problem]) -> None:
        """Begin to prepare problems, and then to solve the first ones wholly: see `wait`."""
        for step, some in ((self._refuses_there, problems), (self._solved_there, problems[:WHOLLY_AHEAD])):
            self._preparing += [self._thread.submit(step, problem) for problem in some]

    def _solved_there(self, problem: Problem) -> str:
        with contextlib.suppress(Unprepared):  # whoever times says why
            return "" if self._refuses_there(problem) else self._ask_there(Judge.said, problem)
        return ""

    def wait(self) -> None:
        """Until the referee uses the device no longer for what is expected, so that times can be taken."""
        while self._preparing:
            self._preparing.pop().result()

    def constant(self, problem: Problem) -> list[str]:
        """The inputs that hold one value only. Raises Unprepared."""
        found: list[str] = self._ask(_prepare, problem)
        return found

    def said(self, problem: Problem) -> str:
        """How answers to the problem are judged. Raises Unprepared."""
        found: str = self._ask(Judge.said, problem)
        return found

    @contextlib.contextmanager
    def inputs(self, problem: Problem) -> Iterator[Answer]:
        """The inputs, lent until the body ends. Raises Unprepared."""
        try:
            yield self._ask(Judge.lend, problem)
        finally:
            with contextlib.suppress(Unprepared):
                self._ask(Judge.release)

    def judge(self, problem: Problem, answer: Answer) -> Failure | None:
        """What is wrong with an answer. Raises Unprepared."""
        for name, found, partly in self._ask(Judge.compare, problem, dict(answer)):
            if found.wrong_count:
                of = f"{found.element_count} elements of {name}" + (" at drawn places" if partly else "")
                message = f"{found.wrong_count} of {of} are wrong"
                failure = Failure(Verdict.MISMATCH, str(problem), message, "", found.wrong)
                failure.wrong_count, failure.element_count = found.wrong_count, found.element_count
                return failure
        return None

    def close(self) -> None:
        """End the process."""
        self._worker.kill()


_referees: list[Referee] = []


def of_gpu() -> Referee:
    """The referee of this process."""
    if not _referees:
        _referees.append(Referee())
        atexit.register(_referees[0].close)
    return _referees[0]


# ------------------- random numbers that are drawn on a device, by a generator that problems call as they call NumPy's


MIX = """
__device__ unsigned long long mixed(unsigned long long x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
"""
"""Numbers of 64 bits that nothing tells from random ones, of a counter. Source: Steele, Lea and Flood, Fast Splittable
Pseudorandom Number Generators, 2014 (SplitMix64)."""

NORMAL = """
  unsigned long long bits = mixed(seed + i);
  float u = ((bits >> 40) + 1) * 5.9604645e-8f, v = (bits & 0xffffff) * 5.9604645e-8f;
  z = sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
"""
"""Source: Box and Muller, A Note on the Generation of Random Normal Deviates, 1958."""

UNIFORM = "z = (mixed(seed + i) >> 11) * 1.1102230246251565e-16;"
INTEGER = "z = low + (long long)(mixed(seed + i) % (unsigned long long)(high - low));"


@cache
def _kernel(arguments: str, result: str, body: str) -> Any:
    import cupy

    return cupy.ElementwiseKernel(arguments, result, body, f"drawn_{result.split()[0]}", preamble=MIX)


class DeviceGenerator:
    """What problems use of `numpy.random.Generator`, with arrays of CuPy. Whatever else is asked for is missing."""

    most = 1 << 62
    """Elements of an array that are drawn: all of them."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._state = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])

    def _drawn(self, size: Any, dtype: Any, arguments: str, result: str, body: str, *values: Any) -> Any:
        import cupy

        shape = (size,) if isinstance(size, int | np.integer) else tuple(size)
        made = cupy.empty(shape, dtype)
        _kernel(f"uint64 seed{arguments}", result, body)(np.uint64(self._state), *values, made)
        self._state = (self._state + math.prod(shape)) % (1 << 64)
        return made

    def standard_normal(self, size: Any, dtype: Any = np.float64) -> Any:
        """Normally distributed numbers, of the resolution of fp32."""
        return self._drawn(size, np.float32, "", "float32 z", NORMAL).astype(dtype, copy=False)

    def random(self, size: Any, dtype: Any = np.float64) -> Any:
        """Numbers from 0 to 1."""
        return self._drawn(size, np.float64, "", "float64 z", UNIFORM).astype(dtype, copy=False)

    def uniform(self, low: float, high: float, size: Any = None) -> Any:
        """Numbers from low to high; one alone is a number of Python."""
        drawn = self.random(1 if size is None else size) * (high - low) + low
        return float(drawn[0]) if size is None else drawn

    def integers(self, low: int, high: int, size: Any, dtype: Any = np.int64) -> Any:
        """Whole numbers from low on, below high."""
        bounds = (np.int64(low), np.int64(high))
        drawn = self._drawn(size, np.int64, ", int64 low, int64 high", "int64 z", INTEGER, *bounds)
        return drawn.astype(dtype, copy=False)

    def rounded(self, values: Any, dtype: DType) -> Any:
        """Numbers rounded to a type; fp32 where CuPy has no such type."""
        import cupy

        return whole.rounded(dtype, values, cupy)
