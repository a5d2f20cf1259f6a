"""The record of one run: what was verified and measured, on what, by which code. Written and read as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeVar

from . import compact
from .errors import BadName, WorkbenchError, check_name

SCHEMA_VERSION = 1


class Verdict(StrEnum):
    """How a stage fared. The kinds from `out_of_bounds` on carry the name of the emulator's finding."""

    PASS = "pass"
    UNSUPPORTED = "unsupported"
    MISMATCH = "mismatch"
    INPUT_CHANGED = "input_changed"
    WEAK_CHECK = "weak_check"
    NOT_DETERMINISTIC = "not_deterministic"
    STALE = "stale"
    OPERATION_ERROR = "operation_error"
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    ILLEGAL_ACCESS = "illegal_access"
    TIMEOUT = "timeout"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    TAMPERING = "tampering"
    UNTESTED = "untested"
    OUT_OF_BOUNDS = "out_of_bounds"
    MISALIGNED = "misaligned"
    INDEX_OVERFLOW = "index_overflow"
    UNINITIALISED = "uninitialised"
    HEAP_MISUSE = "heap_misuse"
    READ_ONLY = "read_only"
    IN_FLIGHT = "in_flight"
    ACCUMULATOR_IN_FLIGHT = "accumulator_in_flight"
    RACE = "race"
    PROXY_FENCE = "proxy_fence"
    WGMMA_FENCE = "wgmma_fence"
    TENSOR_MEMORY = "tensor_memory"
    REGISTER_MISUSE = "register_misuse"
    DEADLOCK = "deadlock"
    LIVELOCK = "livelock"
    MBARRIER_MISUSE = "mbarrier_misuse"
    BARRIER_MISUSE = "barrier_misuse"
    DIVERGENT_COLLECTIVE = "divergent_collective"
    TRAP = "trap"
    ASSERTION = "assertion"
    DESCRIPTOR = "descriptor"
    BAD_OPERAND = "bad_operand"
    RESOURCES = "resources"
    EXITED_WITH_WORK = "exited_with_work"


HAZARDS = frozenset(list(Verdict)[list(Verdict).index(Verdict.OUT_OF_BOUNDS) :]) - {Verdict.RESOURCES}
"""Verdicts that name what is wrong with a kernel, whatever its answers were."""


class ResultsError(WorkbenchError, ValueError):
    """A results file cannot be read; the message says which part is wrong."""


@dataclass
class WrongElement:
    """One element beyond its bound. `got` and `expected` are written as text, so that NaN survives JSON."""

    output: str
    index: list[int]
    got: str
    expected: str
    bound: float


CELL_CODES = ".123456789abcdefghi"
"""How much of a cell is wrong: nothing; one to nine ninths; one to nine ninths with unwritten ones among them."""


@dataclass
class WrongCells:
    """Where the wrong elements of an output are: a matrix cut into cells, with one of `CELL_CODES` for each.

    `shape` is that of the output; `cell` the rows and columns of a cell, fewer at the lower and right edge; `cells` has
    a text for every row of cells. Shares are rounded up, so that one wrong element shows. Unwritten is what holds the
    bits of memory to which nobody has written. Raises ResultsError for cells that do not cover the matrix."""

    problem: str
    output: str
    shape: list[int]
    cell: list[int]
    wrong_count: int
    unwritten_count: int
    cells: list[str]

    def __post_init__(self) -> None:
        whole = (math.prod(self.shape[:-1]), self.shape[-1]) if self.shape else (0, 0)
        if len(self.cell) != 2 or min(*self.cell, *whole) < 1:
            raise ResultsError(f"wrong elements of {self.output}: no matrix of {self.shape} in cells of {self.cell}")
        rows, columns = (-(-extent // step) for extent, step in zip(whole, self.cell, strict=True))
        if [len(row) for row in self.cells] != [columns] * rows or not set("".join(self.cells)) <= set(CELL_CODES):
            raise ResultsError(f"wrong elements of {self.output}: not {rows} rows of {columns} cells")


@dataclass
class Hazard:
    """A finding of the emulator, for programs. `code` is its kind and `cause` the engine's own, finer word.

    `file` and `line` are where it is, `other_file` and `other_line` where the other access is, or where the work was
    started that it is about; a line is 0 where there is none. `block` and `thread` are positions (x, y, z), empty where
    the hazard is nobody's in particular. `array` and `index` name the element where memory is concerned."""

    code: str
    cause: str
    message: str
    advice: str = ""
    file: str = ""
    line: int = 0
    other_file: str = ""
    other_line: int = 0
    instruction: str = ""
    block: list[int] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    warp: int | None = None
    lane: int | None = None
    array: str = ""
    index: int | None = None
    severity: str = "error"


class Fault(WorkbenchError):
    """A launch that went wrong. `verdict` names the kind; the message says what, where and what to do.

    `hazards` has the same for programs, where the emulator found it."""

    def __init__(self, verdict: Verdict, message: str, hazards: Sequence[Hazard] = ()) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.code = str(verdict)
        self.hazards = tuple(hazards)

    def __reduce__(self) -> tuple[type[Fault], tuple[Verdict, str, tuple[Hazard, ...]]]:
        return Fault, (self.verdict, str(self), self.hazards)  # it comes out of worker processes


@dataclass
class Failure:
    """Why a stage failed, for one problem: evidence and how to see it again.

    `smallest` says that smaller problems were tried and passed, as far as time allowed. `looks_like` is what the wrong
    result resembles, `map` shows its wrong elements as `#`, and `cells` in more detail; all three may be of a larger
    problem, which `looks_like` and `cells` name. `hazards` are what the emulator found."""

    verdict: Verdict
    problem: str
    message: str
    replay: str
    wrong: list[WrongElement] = field(default_factory=list)
    wrong_count: int = 0
    element_count: int = 0
    looks_like: str = ""
    map: str = ""
    cells: WrongCells | None = None
    hazards: list[Hazard] = field(default_factory=list)
    smallest: bool = False


@dataclass
class Untested:
    """A condition of a kernel that came out one way in every problem that was solved in the emulator.

    `text` is how the PTX computes it: `argument 2` is the third one of the kernel. `outcome` is `never true` or `never
    false`. `depends_on` says on what: parameters, blocks (how many), grid (which block), block (its shape), thread,
    loop, data, clock, device. `is_bound`: it asks how far a thread or a loop goes, and is no failure with `--strict`.
    """

    file: str
    line: int
    text: str
    outcome: str
    depends_on: list[str] = field(default_factory=list)
    is_bound: bool = False


@dataclass
class Verification:
    """What was tried before anything was timed. Counts are of problems; `worst_error` is the largest error / bound.

    `wrong_rejected` is how many answers of broken kernels the comparison was given and rejected, as it has to. `date`
    is when that was, where it was before the run: exactly this code had passed then, on this device. `examples` is how
    many problems were asked for, where these are not as many as the run's. `untested` are conditions of the kernels
    that came out one way in all of them."""

    verdict: Verdict
    seed: int
    problems: int = 0
    tiers: dict[str, int] = field(default_factory=dict)
    covered: dict[str, dict[str, int]] = field(default_factory=dict)
    unsupported: dict[str, int] = field(default_factory=dict)
    worst_error: float = 0.0
    wrong_rejected: int = 0
    seconds: float = 0.0
    failure: Failure | None = None
    date: str = ""
    examples: int = 0
    untested: list[Untested] = field(default_factory=list)

    @property
    def refused(self) -> float:
        """The share of the problems that were drawn which the stage does not take."""
        refused = sum(self.unsupported.values())
        return refused / (refused + self.problems) if refused and not self.failure else 0.0


@dataclass
class Resources:
    """What one compiled variant takes of a multiprocessor: bytes, registers a thread, resident blocks and warps."""

    variant: str
    kernel: str
    registers: int
    static_shared: int
    dynamic_shared: int
    spill_bytes: int
    block_threads: int
    blocks_per_sm: int
    occupancy: float
    limiter: str


@dataclass
class Timing:
    """Samples of one contestant in microseconds: `cold` with the L2 flushed before each, `sustained` back to back.

    `version` is that of a library; `solves` is False for a yardstick, like a copy, that computes something else.
    `replayed`: the sustained launches were too short for the host to keep up, and came from a CUDA graph."""

    name: str
    cold_us: list[float]
    sustained_us: list[float] = field(default_factory=list)
    version: str = ""
    solves: bool = True
    replayed: bool = False


@dataclass
class Conditions:
    """What the device did while it was measured: SM and memory clock in MHz, power in W, temperature in C.

    `clock_steady`: the SM clock had settled before the first sample. `launch_overhead_us`: a cold sample of a kernel
    that does nothing, 0 where that was not measured."""

    sm_clock_mhz: list[int] = field(default_factory=list)
    memory_clock_mhz: list[int] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)
    temperature_c: list[int] = field(default_factory=list)
    throttle_reasons: list[str] = field(default_factory=list)
    clock_steady: bool = True
    launch_overhead_us: float = 0.0


@dataclass
class Measurement:
    """One problem timed: the stage and the vendor's library interleaved. `roofline_us` is the physical lower limit.

    `binary_sha256` is of the cubin that was launched, `effort` what decided how many samples were taken; records made
    before these were kept have neither. `rejected` says of baselines, by name, why they were left out. `dtype` is the
    type whose peak bounds the time, and empty in old records. `judged` says how the answer was judged where NumPy did
    not solve the whole problem."""

    problem: str
    label: str
    flops: int
    bytes: int
    roofline_us: float
    roofline_by: str
    timing: Timing
    baselines: list[Timing] = field(default_factory=list)
    conditions: Conditions = field(default_factory=Conditions)
    binary_sha256: str = ""
    effort: dict[str, float] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    dtype: str = ""
    judged: str = ""


@dataclass
class StageResult:
    """Everything about one stage in one run. `untimed` says for each problem label why it has no measurement.

    `depends_sha256` is of what its launches depend on beside the source: `workbench.records.versions.surroundings`."""

    operation: str
    stage: str
    idea: str
    source: str
    source_sha256: str
    verification: Verification
    resources: list[Resources] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    untimed: dict[str, str] = field(default_factory=dict)
    depends_sha256: str = ""


@dataclass
class PeerResult:
    """Another implementation of an operation than its stages, timed like one, once a problem: `timing` of each
    measurement is its own. Its answer to each was verified. `untimed` is as in StageResult."""

    operation: str
    name: str
    version: str
    measurements: list[Measurement] = field(default_factory=list)
    untimed: dict[str, str] = field(default_factory=dict)


@dataclass
class HostTiming:
    """A library on the CPU on one problem: microseconds by the host's clock, to be compared with no time of a GPU."""

    operation: str
    name: str
    version: str
    problem: str
    label: str
    flops: int
    bytes: int
    samples_us: list[float]


@dataclass
class Agreement:
    """Two devices solved the same problems: bit-equal in the exact tier, both within the bound in the bounded one.

    `tiers` counts agreeing problems by tier; `disagreement` describes the first problem that differs, else it is empty.
    """

    operation: str
    stage: str
    devices: list[str]
    seed: int
    problems: int = 0
    tiers: dict[str, int] = field(default_factory=dict)
    disagreement: str = ""


@dataclass
class DeviceInfo:
    """The device a run used. Peaks are queried or derived, with their formula in `peak_formulas`.

    `chip` tells chips of one model apart without naming them: the beginning of the SHA-256 of the UUID."""

    kind: str
    name: str
    architecture: str
    sm_count: int
    memory_bytes: int = 0
    l2_bytes: int = 0
    driver: str = ""
    chip: str = ""
    sm_clock_mhz: int = 0
    memory_clock_mhz: int = 0
    power_limit_w: float = 0.0
    peak_bytes_per_s: float = 0.0
    peak_flops: dict[str, float] = field(default_factory=dict)
    peak_formulas: dict[str, str] = field(default_factory=dict)


@dataclass
class Environment:
    """Where and with what a run was made; `dirty` says that the checkout had uncommitted changes.

    `code_sha256` is of the workbench's own Python, `cuda` the version of the compiler of the kernels. `protections` are
    those of the process in which the Python code of stages ran: Landlock and its version, a filter of system calls,
    namespaces."""

    date: str
    commit: str
    dirty: bool
    host: str
    python: str
    packages: dict[str, str]
    code_sha256: str = ""
    cuda: str = ""
    protections: list[str] = field(default_factory=list)


class Record:
    """A dataclass with a `schema` field that is kept as a JSON file."""

    def save(self, path: Path) -> None:
        """Write the record as JSON; the file is replaced in one step, so that it is never seen half written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(compact.encoded(dataclasses.asdict(self), path, sort_keys=True))  # type: ignore[call-overload]
            temporary.replace(path)
        except OSError as error:  # a full disk is no error of a file that anybody could look up
            raise type(error)(error.errno, error.strerror, str(path)) from None
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a record from a file. Raises ResultsError as `parse` does, and where it cannot be read."""
        return cls.parse(_text(path), str(path))

    @classmethod
    def parse(cls, text: str, name: str) -> Self:
        """A record from JSON; `name` is what messages call it.

        Raises ResultsError for what is not JSON, another schema, or a missing or mistyped field."""
        return _build(cls, _data(text, name), Path(name).name)


def _text(path: Path) -> str:
    try:
        return compact.read_text(path)
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ResultsError(f"{path} is not JSON: {error}") from None


def _data(text: str, name: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ResultsError(f"{name} is not JSON: {error}") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema is None and isinstance(data, dict) and isinstance(data.get("result"), dict):
        return _data(json.dumps(data["result"]), name)  # what a command has printed
    if schema != SCHEMA_VERSION:
        raise ResultsError(f"{name} has results schema {schema}; this version reads schema {SCHEMA_VERSION}")
    return typing.cast(dict[str, Any], data)


@dataclass
class Run(Record):
    """One run of the workbench; `finished` is False until it has been through all stages that it was asked for."""

    device: DeviceInfo
    environment: Environment
    seed: int
    examples: int
    stages: list[StageResult] = field(default_factory=list)
    peers: list[PeerResult] = field(default_factory=list)
    host: list[HostTiming] = field(default_factory=list)
    finished: bool = True
    schema: int = SCHEMA_VERSION


@dataclass
class Runs(Record):
    """What several runs found, the newest first: of one operation, or of all where `operation` is empty."""

    runs: list[Run]
    operation: str = ""
    schema: int = SCHEMA_VERSION

    @classmethod
    def parse(cls, text: str, name: str) -> Self:
        """As for every record; one run by itself is read, too."""
        data = _data(text, name)
        if "runs" in data:
            return _build(cls, data, Path(name).name)
        return cls([_build(Run, data, Path(name).name)])


@dataclass
class AgreementRun(Record):
    """Every stage that was solved on two devices, in one environment."""

    device: DeviceInfo
    environment: Environment
    stages: list[Agreement] = field(default_factory=list)
    schema: int = SCHEMA_VERSION


T = TypeVar("T")

RENAMED = {"floor_us": "roofline_us", "floor_by": "roofline_by"}
"""Fields of records from before they had the names of today."""


@functools.cache
def _fields(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of a dataclass's fields, and those without a default."""
    fields = dataclasses.fields(kind)
    required = (f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING)
    return typing.get_type_hints(kind), frozenset(required)


def _build(kind: type[T], data: Any, where: str) -> T:
    """`data` (parsed JSON) as an instance of a dataclass, container or scalar type; checks every field."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return typing.cast(T, None if data is None else _build(args[0], data, where))
    if origin is list and isinstance(data, list):
        if args[0] in (float, str, int) and all(type(item) is args[0] for item in data):
            if args[0] is float and not all(map(math.isfinite, data)):
                raise ResultsError(f"{where} has a number that is not finite")
            return typing.cast(T, data)  # thousands of samples
        return typing.cast(T, [_build(args[0], item, f"{where}[{i}]") for i, item in enumerate(data)])
    if origin is dict and isinstance(data, dict):
        return typing.cast(T, {key: _build(args[1], value, f"{where}.{key}") for key, value in data.items()})
    if dataclasses.is_dataclass(kind) and isinstance(data, dict):
        hints, required = _fields(kind)
        data = {RENAMED.get(key, key): value for key, value in data.items()}
        unknown = set(data) - set(hints)
        if unknown:
            raise ResultsError(f"{where} has unknown fields: {', '.join(sorted(unknown))}")
        missing = required - set(data)
        if missing:
            raise ResultsError(f"{where} lacks {', '.join(sorted(missing))}")
        made = kind(**{key: _build(hints[key], value, f"{where}.{key}") for key, value in data.items()})
        _check_names(made, where)
        return typing.cast(T, made)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and data in tuple(kind):
        return kind(data)
    if kind is float and type(data) in (int, float):
        with contextlib.suppress(OverflowError):  # an integer of hundreds of digits
            return typing.cast(T, float(data))
    if isinstance(kind, type) and type(data) is kind:
        return data
    raise ResultsError(f"{where} is {type(data).__name__}, not {getattr(kind, '__name__', kind)}")


def _check_names(made: Any, where: str) -> None:
    """What a record calls operations and stages is joined to paths. Raises ResultsError."""
    for name in ("operation", "stage"):
        value = getattr(made, name, "")
        if value:
            try:
                check_name(value, f"{where}: {name}")
            except BadName as error:
                raise ResultsError(str(error)) from None
