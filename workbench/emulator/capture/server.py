"""Answers what the library in a captured process asks: one server a process.

`Operation` and the fields of each request are those of client/connection.hpp."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path

from ..architectures import PORTABLE_CLUSTER, DeviceLimits
from ..compiler import CompileError, CompilerUnavailable
from ..decode import UnsupportedInstruction
from ..execution import Checks, Prepared, prepare, run
from ..findings import Finding, FindingKind
from ..launch_checks import ArgumentError, LaunchError, StructBytes, shared_bytes_of
from ..mangled import kernel_name_of, matches
from ..memory import BYTES, ELEMENT_TYPES, FIRST_ADDRESS, SWIZZLES, Allocation, PixelBox, TensorMap, tensor_bytes
from ..program import Entry, Program
from ..ptx import PtxSyntaxError
from ..source import DamagedData, Image, holds_images, images
from ..standalone import MOST_FINDINGS
from ..statistics import KernelFault, Statistics
from .arena import ARENA_BYTES, Arena
from .concurrency import Concurrency, Moment
from .device import TOTAL_MEMORY, attributes

_SPACES = {0: "device", 1: "managed", 2: "pinned", 5: "texture"}
_PAGE = 4096
_MOST_ROWS = 4096
_MOST_SHAPES = 4096
_CHANGES = b"changes memory"
_INVALID_VALUE, _OUT_OF_MEMORY, _INVALID_CONFIGURATION, _NO_IMAGE, _INVALID_PTX, _NOT_FOUND = 1, 2, 9, 209, 218, 500
_NOT_SUPPORTED = 801
_TILED, _WIDE = 0, 2  # how a tensor map is made
_MAP_ALIGN = 64

_ERRORS = {
    FindingKind.OUT_OF_BOUNDS: 700,
    FindingKind.READ_ONLY: 700,
    FindingKind.MISALIGNED: 716,
    FindingKind.ASSERTION: 710,
    FindingKind.TRAP: 719,
    FindingKind.DEADLOCK: 702,
    FindingKind.LIVELOCK: 702,
}
"""What a device would report at the next call, by what stopped a launch."""


class Operation(IntEnum):
    """What is asked."""

    HELLO = 1
    MODULE = 2
    KERNEL = 3
    VARIABLE = 4
    ALLOCATE = 5
    RELEASE = 6
    WRITTEN = 7
    COPIED = 8
    CHECK_WRITTEN = 9
    LAUNCH = 10
    OCCUPANCY = 11
    FINDING = 12
    SOURCE = 13
    TENSOR_MAP = 14


class Fields:
    """The fields of a request, one after the other."""

    def __init__(self, payload: bytes) -> None:
        self._payload, self._at = payload, 0

    def number(self) -> int:
        """A number of 64 bits."""
        return self.numbers(1)[0]

    def numbers(self, count: int) -> tuple[int, ...]:
        """Several numbers."""
        at, self._at = self._at, self._at + 8 * count
        return struct.unpack_from(f"<{count}Q", self._payload, at)

    def data(self) -> bytes:
        """Bytes behind their length."""
        size = self.number()
        self._at += size
        return self._payload[self._at - size : self._at]

    def text(self) -> str:
        """A text behind its length."""
        return self.data().decode(errors="replace")


def _packed(*values: int | bytes | str) -> bytes:
    parts = []
    for value in values:
        if isinstance(value, int):
            parts.append(struct.pack("<Q", value))
        else:
            raw = value.encode() if isinstance(value, str) else value
            parts.append(struct.pack("<Q", len(raw)) + raw)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Options:
    """How launches are executed: as in `workbench.emulator.launch`.

    ``kernel``: only kernels of this name are checked, others are executed without; ``sample``: of each kernel so many
    launches are checked. ``threads`` of this machine execute blocks."""

    limits: DeviceLimits
    seed: int = 0
    strict: bool = False
    suppress: tuple[str, ...] = ()
    max_seconds: float | None = None
    kernel: str | None = None
    sample: int | None = None
    max_warp_instructions: int = 1_000_000_000
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch that was executed, or refused with a message; or a copy beside launches, with what races with it."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    findings: tuple[Finding, ...] = ()
    warp_instructions: int = 0
    refused: str = ""
    site: str = ""
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Something that the host did wrong; ``site`` has the addresses that it was done from."""

    kind: str
    message: str
    site: str


_Arguments = list[bytes | StructBytes]
_Shape = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, bool]


class _Refused(Exception):
    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status


@dataclass
class _Module:
    programs: list[Program]
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class _Output:
    """What a launch has stored in an allocation that nothing has read since."""

    kernel: str
    nbytes: int
    site: str


@dataclass
class Server:
    """The device of one process: its memory, its modules, and what came of its launches."""

    options: Options
    launched: Callable[[Launched], None]
    said: Callable[[HostEvent], None]
    arena: Arena = field(default_factory=Arena)
    _modules: list[_Module] = field(default_factory=list)
    _kernels: list[Entry] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)
    _repeated: dict[object, bytes] = field(default_factory=dict)
    _shapes: dict[object, Prepared] = field(default_factory=dict)  # launches as they were prepared last
    _sources: dict[str, str] = field(default_factory=dict)
    _concurrency: Concurrency = field(init=False)
    _outputs: dict[int, _Output] = field(default_factory=dict)
    _has_pools: bool = False
    _tensor_maps: dict[bytes, TensorMap] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._concurrency = Concurrency(self.arena)

    def answer(self, operation: int, payload: bytes) -> tuple[int, bytes]:
        """A status, which is a ``cudaError_t``, and what goes with it."""
        fields = Fields(payload)
        try:
            return 0, _ANSWERS[Operation(operation)](self, fields)
        except _Refused as error:
            return error.status, _packed(0, "", str(error))
        except MemoryError:
            return _OUT_OF_MEMORY, b""

    def end(self) -> None:
        """The process has ended."""
        for output in self._outputs.values():
            self._say_output(output)

    def _hello(self, fields: Fields) -> bytes:
        fields.text()
        self._has_pools = bool(fields.number())
        limits = self.options.limits
        found = attributes(limits)
        listed = [number for pair in found.items() for number in pair]
        return _packed(FIRST_ADDRESS, ARENA_BYTES, f"{limits.name} (emulated)", TOTAL_MEMORY, len(found), *listed)

    def _module(self, fields: Fields) -> bytes:
        given = [fields.data() for _ in range(fields.number())]
        self._modules.append(_module_of(given, self.options.limits.arch, self._sources))
        return _packed(len(self._modules) - 1)

    def _kernel(self, fields: Fields) -> bytes:
        module, name = self._modules[fields.number()], fields.text()
        program = next((one for one in module.programs if name in one.entries), None)
        if program is None:
            raise self._missing(name, module)
        try:
            entry = program.entries[name]
        except (PtxSyntaxError, UnsupportedInstruction, CompileError, CompilerUnavailable) as error:
            raise self._missing(name, module, str(error)) from None
        self._kernels.append(entry)
        limits = self.options.limits
        registers = program.registers_per_thread.get(entry.name) or min(entry.register_count, 64)
        threads = entry.max_threads or limits.max_threads_per_block
        versions = [int("".join(filter(str.isdigit, name[:6]))) for name in (program.target, limits.arch)]
        with_host = any(".sys." in f"{instruction.opcode}." for instruction in entry.instructions)
        parameters = [number for p in entry.parameters for number in (p.offset, p.size)]
        return _packed(
            len(self._kernels) - 1,
            entry.parameter_bytes,
            *(registers, entry.static_shared_bytes, entry.local_bytes, threads, *versions),
            *(entry.cluster or (0, 0, 0)),
            int(with_host),
            len(entry.parameters),
            *parameters,
            str(kernel_name_of(name)),
        )

    def _missing(self, name: str, module: _Module, reason: str = "") -> _Refused:
        shown = kernel_name_of(name).name
        why = reason or module.why_not or "its module has no such kernel"
        self.launched(Launched(shown, (), (), refused=f"{shown} cannot be executed: {why}"))
        return _Refused(_NO_IMAGE if module.why_not else _INVALID_PTX if reason else _NOT_FOUND)

    def _variable(self, fields: Fields) -> bytes:
        module, name = self._modules[fields.number()], fields.text()
        for program in module.programs:
            if name in program.variables:
                found = program.variable(name, self.arena)
                return _packed(found.address, found.nbytes)
        raise _Refused(_NOT_FOUND)

    def _allocate(self, fields: Fields) -> bytes:
        nbytes, space = fields.numbers(2)
        on_host = _SPACES[space] != "device"
        align = _PAGE if on_host else 256
        allocation = self.arena.allocate(nbytes, align=align, element_size=1)
        allocation.name = f"{_SPACES[space]} memory of {nbytes} bytes"
        if on_host:
            self.arena.share(allocation)
        return _packed(allocation.address)

    def _release(self, fields: Fields) -> bytes:
        if (allocation := self.arena.find(fields.number())) is not None:
            if (output := self._outputs.pop(allocation.address, None)) is not None:
                self._say_output(output)
            self.arena.free(allocation)
        return b""

    def _written(self, fields: Fields) -> bytes:
        box = fields.numbers(4)
        self.arena.stored(*box)
        return self._copy(fields, box, None)

    def _copied(self, fields: Fields) -> bytes:
        target, source = fields.numbers(4), fields.numbers(4)
        self._read(source[0])
        self.arena.copy_state(target, source)
        return self._copy(fields, target, source)

    def _check_written(self, fields: Fields) -> bytes:
        box = fields.numbers(4)
        self._read(box[0])
        return _packed(self.arena.unwritten(*box)) + self._copy(fields, None, box)

    def _copy(self, fields: Fields, to: tuple[int, ...] | None, source: tuple[int, ...] | None) -> bytes:
        function, site, moment = fields.text(), fields.text(), _moment(fields)
        stored, read = (() if box is None else _rows(*box) for box in (to, source))
        for label, statistics in self._concurrency.copy(function, stored, read, moment):
            self.launched(Launched(label, (), (), tuple(statistics.findings), site=site, is_copy=True))
        return b""

    def _launch(self, fields: Fields) -> bytes:
        kernel, *extents, shared, _cooperative, non_portable = fields.numbers(13)
        entry, grid, block, cluster = self._kernels[kernel], *(tuple(extents[i : i + 3]) for i in (0, 3, 6))
        parameters, site, moment = fields.data(), fields.text(), _moment(fields)
        name = str(kernel_name_of(entry.name))
        arguments = [self._with_tensor_maps(parameters[p.offset : p.offset + p.size]) for p in entry.parameters]
        shape = grid, block, cluster, shared, bool(non_portable)
        key = entry, shape, parameters
        if self._changes_nothing(key, entry, shape, arguments):
            self.launched(Launched(name, grid, block, site=site))
            return _packed(0, "")
        given = self._given(parameters)
        unwritten = {allocation.address: self.arena.left_unwritten(allocation) for allocation in given}
        try:
            with self.arena.unset_known():
                statistics, stopped = self._executed(entry, shape, arguments, moment)
        except (LaunchError, ArgumentError) as error:
            self.launched(Launched(name, grid, block, refused=str(error), site=site))
            raise _Refused(_INVALID_CONFIGURATION, str(error)) from None
        if key not in self._repeated and not statistics.findings and not statistics.output:
            self._repeated[key] = b""
        counted = statistics.warp_instructions
        self.launched(Launched(name, grid, block, tuple(statistics.findings), counted, site=site))
        for allocation in given:
            first = self._outputs.pop(allocation.address, None)
            if self.arena.left_unwritten(allocation) < unwritten[allocation.address]:
                self._outputs[allocation.address] = _Output(name, allocation.nbytes, site)
            elif first is not None and first.kernel == name:
                self._outputs[allocation.address] = first
        ended = next((_ERRORS[f.kind] for f in reversed(statistics.findings) if f.kind in _ERRORS), 0)
        return _packed(ended if stopped else 0, statistics.output)

    def _given(self, parameters: bytes) -> list[Allocation]:
        """The device's memory that pointers among the parameters lie in."""
        if self._has_pools:
            return []
        words = struct.unpack(f"<{len(parameters) // 8}Q", parameters[: len(parameters) // 8 * 8])
        found = {a.address: a for word in words if word >= FIRST_ADDRESS and (a := self.arena.find(word)) is not None}
        return [allocation for allocation in found.values() if allocation.name.startswith("device ")]

    def _read(self, address: int) -> None:
        if (allocation := self.arena.find(address)) is not None:
            self._outputs.pop(allocation.address, None)

    def _say_output(self, output: _Output) -> None:
        stored = f"the launch of {output.kernel} stores into {output.nbytes} bytes of device memory that nothing reads"
        self.said(HostEvent("unread_output", f"{stored} afterwards: copy them to the host", output.site))

    def _changes_nothing(self, key: object, entry: Entry, shape: _Shape, arguments: _Arguments) -> bool:
        """Whether a launch that has been checked before leaves memory as it is. It has been executed then.

        That is tried once, without checks: loops that repeat a kernel for the sake of its time take no time then."""
        before = self._repeated.get(key, _CHANGES)
        if before == _CHANGES:
            return False
        now = self.arena.digest()
        if before and now == before:
            return True
        self._repeated[key] = _CHANGES
        if not now:
            return False
        saved = self.arena.saved()
        (done,) = run([self._prepared(entry, shape, arguments, Checks.NONE)])
        if done.findings or self.arena.digest() != now:
            self.arena.restore(saved)
            return False
        self._repeated[key] = now
        return True

    def _prepared(self, entry: Entry, shape: _Shape, arguments: _Arguments, checks: Checks) -> Prepared:
        options = self.options
        if (before := self._shapes.get((entry, shape, checks))) is not None:
            return before.again(arguments)
        grid, block, cluster, shared, non_portable = shape
        limits = options.limits
        if non_portable and limits.max_cluster_blocks == PORTABLE_CLUSTER:
            limits = replace(limits, max_cluster_blocks=2 * PORTABLE_CLUSTER)
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        found = self._shapes[entry, shape, checks] = prepare(
            entry,
            grid,
            block,
            arguments,
            memory=self.arena,
            cluster=cluster,
            shared_bytes=shared,
            threads=options.threads,
            seed=options.seed,
            limits=limits,
            max_warp_instructions=options.max_warp_instructions,
            max_seconds=options.max_seconds,
            strict=options.strict,
            suppress=options.suppress,
            checks=checks,
            max_findings=MOST_FINDINGS,
        )
        return found

    def _executed(self, entry: Entry, shape: _Shape, arguments: _Arguments, moment: Moment) -> tuple[Statistics, bool]:
        launch = self._prepared(entry, shape, arguments, Checks.ALL if self._is_checked(entry) else Checks.NONE)
        done, copies = self._concurrency.execute(launch, moment)
        for label, found in copies:
            self.launched(Launched(label, (), (), tuple(found.findings), is_copy=True))
        try:
            launch.rules.check(done)
        except KernelFault:
            return done, True
        return done, False

    def _is_checked(self, entry: Entry) -> bool:
        wanted, most = self.options.kernel, self.options.sample
        self._counts[entry.name] += 1
        named = wanted is None or matches(kernel_name_of(entry.name), wanted)
        return named and (most is None or self._counts[entry.name] <= most)

    def _occupancy(self, fields: Fields) -> bytes:
        kernel, threads, shared = fields.numbers(3)
        entry = self._kernels[kernel]
        registers = entry.program.registers_per_thread.get(entry.name)
        return _packed(self.options.limits.blocks_per_sm(max(threads, 1), shared_bytes_of(entry, shared), registers))

    def _finding(self, fields: Fields) -> bytes:
        self.said(HostEvent(fields.text(), fields.text(), fields.text()))
        return b""

    def _source(self, fields: Fields) -> bytes:
        name = fields.text()
        self._sources[name] = fields.text()
        return b""

    def _tensor_map(self, fields: Fields) -> bytes:
        how, element_type, interleave, swizzle, fill, rank, address = fields.numbers(7)
        sizes, strides, steps = fields.numbers(rank), fields.numbers(rank - 1), fields.numbers(rank)
        box: PixelBox | tuple[int, ...]
        if how == _TILED:
            box = fields.numbers(rank)
        else:
            channels, pixels, corners = fields.numbers(3)
            lower, upper = (tuple(_signed(number) for number in fields.numbers(corners)) for _ in range(2))
            box = PixelBox(lower, upper, channels, pixels, wide=how == _WIDE)
        types = {number: (name, nbytes) for name, (number, nbytes) in ELEMENT_TYPES.items()}
        if element_type not in types or interleave or swizzle >= len(SWIZZLES):
            raise _Refused(_NOT_SUPPORTED)
        name, nbytes = types[element_type]
        try:
            made = TensorMap(
                *(address, nbytes, sizes, strides, box, steps, SWIZZLES[swizzle]),
                nan_fill=bool(fill),
                element_type=name,
            )
        except ValueError as error:
            raise _Refused(_INVALID_VALUE, str(error)) from None
        raw = tensor_bytes(made)
        self._tensor_maps[raw] = made
        return _packed(raw)

    def _with_tensor_maps(self, argument: bytes) -> bytes | StructBytes:
        """A parameter with the tensor maps in it: bytes that have been encoded here."""
        places = range(0, len(argument) - BYTES + 1, _MAP_ALIGN) if self._tensor_maps else ()
        known = [(at, self._tensor_maps.get(argument[at : at + BYTES])) for at in places]
        found = tuple((at, tensor) for at, tensor in known if tensor is not None)
        return StructBytes(argument, found) if found else argument


def _signed(number: int) -> int:
    return number - (number >> 63 << 64)


def _moment(fields: Fields) -> Moment:
    stream, number, known = fields.numbers(3)
    *pairs, early = fields.numbers(2 * known + 1)
    ports = fields.numbers(3 * early)
    return Moment(
        *(stream, number, dict(zip(pairs[::2], pairs[1::2], strict=True))),
        {(of, at): port for of, at, port in zip(ports[::3], ports[1::3], ports[2::3], strict=True)} if early else {},
    )


def _rows(address: int, pitch: int, width: int, rows: int) -> list[tuple[int, int]]:
    """A box as addresses and sizes; what lies between its rows is left out unless there are very many."""
    if pitch == width or rows > _MOST_ROWS:
        return [(address, (rows - 1) * pitch + width)]
    return [(address + row * pitch, width) for row in range(rows)]


def _module_of(given: list[bytes], arch: str, sources: Mapping[str, str]) -> _Module:
    """The PTX of images that the device runs; without any, why not."""
    try:
        texts = [raw for raw in given if not holds_images(raw)]
        found = [image for raw in given if holds_images(raw) for image in images(raw)]
        texts += [image.contents for image in _newest(found, arch)]
        if texts:
            return _Module([_program(text.rstrip(b"\0").decode(errors="replace"), arch, sources) for text in texts])
    except (DamagedData, CompilerUnavailable, PtxSyntaxError, ValueError) as error:
        return _Module([], str(error))
    targets = sorted({one.target for one in found if one.is_ptx})
    if targets:
        held = " and ".join(f"sm_{number}{suffix}" for number, suffix in targets)
        return _Module([], f"the program holds PTX for {held} and none for {arch}: choose another --arch")
    listed = sorted({f"sm_{one.architecture}" for one in found if one.architecture})
    held = f"machine code for {', '.join(listed)}" if listed else "machine code"
    return _Module([], f"the program holds {held} and no PTX for {arch}: add -gencode arch=compute_90,code=compute_90")


def _newest(found: list[Image], arch: str) -> Iterator[Image]:
    """Of each kernel's PTX, the newest that the architecture runs."""
    version = int(arch[3:].rstrip("af"))
    fitting = [
        one for one in found if one.is_ptx and (one.target[0] <= version and (not one.target[1] or _same(one, arch)))
    ]
    newest: dict[tuple[str, ...], Image] = {}
    for one in sorted(fitting, key=lambda image: image.target):
        newest[tuple(sorted(Program.signatures(one.contents.decode(errors="replace"))))] = one
    yield from newest.values()


def _same(image: Image, arch: str) -> bool:
    return f"sm_{image.target[0]}{image.target[1]}" == arch


def _program(text: str, arch: str, sources: Mapping[str, str]) -> Program:
    """PTX with the texts of the sources that it names: those that the process has compiled, and files."""
    program = Program.from_ptx(text, arch=arch)
    for line in text.splitlines():
        if line.lstrip().startswith(".file"):
            name = line.partition('"')[2].partition('"')[0]
            if name in sources:
                program.sources[name] = sources[name]
            elif name and name not in program.sources and Path(name).is_file():
                program.sources[name] = Path(name).read_text(errors="replace")
    return program


_ANSWERS: dict[Operation, Callable[[Server, Fields], bytes]] = {
    Operation.HELLO: Server._hello,
    Operation.MODULE: Server._module,
    Operation.KERNEL: Server._kernel,
    Operation.VARIABLE: Server._variable,
    Operation.ALLOCATE: Server._allocate,
    Operation.RELEASE: Server._release,
    Operation.WRITTEN: Server._written,
    Operation.COPIED: Server._copied,
    Operation.CHECK_WRITTEN: Server._check_written,
    Operation.LAUNCH: Server._launch,
    Operation.OCCUPANCY: Server._occupancy,
    Operation.FINDING: Server._finding,
    Operation.SOURCE: Server._source,
    Operation.TENSOR_MAP: Server._tensor_map,
}
