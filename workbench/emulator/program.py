"""A PTX module, ready to be launched."""

from __future__ import annotations

import gc
import re
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .architectures import DEFAULT, chosen
from .decode import ALLOCA, ALLOCA_BYTES, Layout, decode
from .memory import HEAP, Allocation, Memory
from .table import DecodedEntry

_MOST_VARIABLE_BYTES = 1 << 30


@dataclass(eq=False, slots=True)
class Signature:
    """What a launch of a kernel is checked against.

    ``static_shared_bytes``: shared memory that it declares; ``max_threads``: what ``__launch_bounds__`` promises, or
    None; ``required_block``: the block it must be launched with, or None; ``cluster``: the cluster it is compiled
    for, or None; ``cooperative``: whether it may wait for its whole grid, as ``this_grid().sync()`` of cooperative
    groups does; ``uses_reserved_shared``: whether it uses the shared memory reserved for the system, as cooperative
    groups do for large tiles."""

    name: str
    parameters: tuple[ptx.Parameter, ...]
    static_shared_bytes: int
    dynamic_shared_align: int
    max_threads: int | None
    required_block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None
    cooperative: bool
    uses_reserved_shared: bool

    @property
    def parameter_bytes(self) -> int:
        """Size of the parameter buffer."""
        return max((p.offset + p.size for p in self.parameters), default=0)

    @property
    def dynamic_shared_offset(self) -> int:
        """Where dynamic shared memory begins in a block's shared memory."""
        return _align(self.static_shared_bytes, self.dynamic_shared_align)


@dataclass(eq=False, slots=True)
class Entry(Signature):
    """A kernel of a program.

    ``register_limit``: registers of a thread that ``.maxnreg`` or launch bounds allow, or None where neither is
    declared; ``registers_fixed``: whether ptxas knows by them what a thread holds at first, without which it ignores
    ``setmaxnreg``; ``register_count``: virtual registers, more than a GPU would need."""

    register_limit: int | None
    registers_fixed: bool
    register_count: int
    program: Program = field(repr=False)
    instructions: list[ptx.Instruction] = field(repr=False)
    decoded: DecodedEntry = field(repr=False)
    shared_variables: tuple[tuple[ptx.Variable, int], ...] = field(repr=False)
    engine_program: _engine.Program = field(repr=False)  # the decoded rows as the engine keeps them
    local_bytes: int
    constant_pool: tuple[tuple[object, ...], npt.NDArray[np.uint8]] | None = field(default=None, repr=False)
    allowed: tuple[tuple[str, str, int], ...] | None = field(default=None, repr=False)  # by comments; see Rules
    lines: npt.NDArray[np.int32] | None = field(default=None, repr=False)  # of each row; see line_numbers
    early_returns: list[int] | None = field(default=None, repr=False)  # rows; see early_returns
    suppressed: tuple[object, npt.NDArray[np.int32]] | None = field(default=None, repr=False)  # see Rules
    traps: bool | None = field(default=None, repr=False)  # whether an instruction is a trap; see Beside

    def __getstate__(self) -> dict[str, object]:
        """All but what the engine has made of it."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "engine_program"}

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.engine_program = _of_engine(self.decoded)


class Entries(Mapping[str, Entry]):
    """The kernels of a program by name, each decoded when it is first asked for.

    Asking raises ``PtxSyntaxError`` or ``UnsupportedInstruction`` for what is wrong with that kernel."""

    def __init__(self, names: Iterable[str], decode: Callable[[str], Entry]) -> None:
        self.kernels = tuple(names)
        self._decode = decode
        self._decoded: dict[str, Entry] = {}
        self._aliases: dict[str, str] = {}

    def __getstate__(self) -> dict[str, object]:
        """With all kernels decoded."""
        return {
            "kernels": self.kernels,
            "_decoded": {name: self[name] for name in self.kernels},
            "_aliases": self._aliases,
        }

    def alias(self, name: str, kernel: str) -> None:
        """Another name for a kernel, such as ``scale<float>`` for its mangled one."""
        self._aliases[name] = kernel

    def __getitem__(self, name: str) -> Entry:
        kernel = self._aliases.get(name, name)
        if kernel not in self._decoded:
            if kernel not in self.kernels:
                raise KeyError(name)
            self._decoded[kernel] = self._decode(kernel)
        return self._decoded[kernel]

    def __contains__(self, name: object) -> bool:
        return name in self._aliases or name in self.kernels

    def __iter__(self) -> Iterator[str]:
        return iter((*self.kernels, *self._aliases))

    def __len__(self) -> int:
        return len(self.kernels) + len(self._aliases)


@dataclass(eq=False, slots=True)
class Program:
    """A PTX module.

    ``entries`` has its kernels by name, ``variables`` its global and constant variables, ``sources`` texts of CUDA
    sources by file name, from which findings quote lines, ``registers_per_thread`` what the compiler reported of
    kernels, where it is known, ``functions`` the addresses that stand for functions in pointers to them, ``templates``
    kernels of the source that are templates, with the instances that its host code launches, ``arch`` the architecture
    whose limits hold for launches, ``target`` the one that the PTX is for. ``replicas``: lanes that store to one place
    of shared memory hold the same value, up to rounding, as in what Triton generates. ``unoptimised`` gives the program
    of the same source without optimisation, None where there is none, and ``notes`` say what a user should know of how
    it was compiled."""

    entries: Entries
    variables: dict[str, ptx.Variable]
    sources: dict[str, str]
    registers_per_thread: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict, repr=False)
    templates: dict[str, list[str]] = field(default_factory=dict, repr=False)
    examples: dict[str, str] = field(default_factory=dict, repr=False)  # of instances of templates, by kernel
    arch: str = DEFAULT
    target: str = DEFAULT
    replicas: bool = False
    unoptimised: Callable[[], Program] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @classmethod
    def from_ptx(
        cls,
        text: str,
        source_name: str | None = None,
        *,
        sources: Mapping[str, str] | None = None,
        check: Callable[[str, str], None] | None = None,
        arch: str | None = None,
    ) -> Program:
        """Parses a module. A kernel is decoded when it is first asked for, and at once where it is the only one.

        ``source_name`` names the CUDA source where the PTX does not; ``sources`` maps file names (with or without
        directories) to their text. Raises ``PtxSyntaxError`` with the line of the PTX, or ``UnsupportedInstruction``
        with the line of the CUDA source, and so does ``entries`` for a kernel that is one of several. ``check`` is
        called with the PTX of each kernel that has been decoded, everything else in it blank, and the architecture.
        ``arch`` is that of the device, such as ``sm_80``; None stands for the one nearest to the module's ``.target``.
        Raises ``ArchitectureError`` where there is no such device, or PTX of that target does not run there."""
        module = ptx.parse(asm_at_its_first_line(text, sources or {}), source_name, bodies=False)
        variables = {v.name: v for v in module.variables.values() if v.space in ("global", "const")}
        if (total := sum(v.size for v in variables.values())) > _MOST_VARIABLE_BYTES:
            raise ptx.PtxSyntaxError(f"the variables have {total} bytes; {_MOST_VARIABLE_BYTES} are allowed", 1)
        if not {"malloc", "free"}.isdisjoint(module.functions):
            variables[HEAP] = ptx.Variable(HEAP, "global", "b8", 16, 0)
        target, device = chosen(module.target, None), chosen(module.target, arch)
        kernels = {f.name: f for f in module.functions.values() if f.is_entry and f.defined}

        def decoded(name: str) -> Entry:
            with _nothing_collected():
                module.read_reached(kernels[name])
                entry = _entry(program, module, kernels[name], target)
            if check is not None:
                check(module.text_of(kernels[name]), device)
            return entry

        program = cls(Entries(kernels, decoded), variables, dict(sources or {}), functions=module.addresses())
        program.arch, program.target = device, module.target
        for name in kernels if len(kernels) == 1 else ():
            program.entries[name]
        return program

    @staticmethod
    def signatures(text: str) -> dict[str, Signature]:
        """What launches of a module's kernels are checked against, by name, without decoding what the kernels do.

        Raises ``PtxSyntaxError`` for what is wrong outside of their bodies."""
        module = ptx.parse(text, bodies=False)
        kernels = [function for function in module.functions.values() if function.is_entry and function.defined]
        return {kernel.name: _signature(kernel, module) for kernel in kernels}

    def load(self, memory: Memory, names: Iterable[str] = ()) -> dict[str, Allocation]:
        """The program's variables in a memory, where the first call that names one puts it with its initial value."""
        loaded = memory.modules.setdefault(self, {})
        wanted = set(names)
        self._put([name for name in self.variables if name in wanted], loaded, memory)
        return loaded

    def variable(self, name: str, memory: Memory) -> Allocation:
        """Where a ``__device__`` or ``__constant__`` variable lies; ``name`` is as in the source or in the PTX."""
        found = [v.name for v in self.variables.values() if name in (v.name, v.readable_name)]
        if len(found) != 1:
            raise KeyError(f"{'no variable is' if not found else 'several variables are'} called {name}")
        return self.load(memory, found)[found[0]]

    def _put(self, names: Sequence[str], loaded: dict[str, Allocation], memory: Memory) -> None:
        """Variables, and those whose addresses they hold."""
        new = [name for name in names if name not in loaded]
        for name in new:
            loaded[name] = memory.heap() if name == HEAP else _place(self.variables[name], memory)
            for _, symbol, _, _ in self.variables[name].relocations:
                if symbol in self.variables and symbol not in loaded and symbol not in new:
                    new.append(symbol)
        for name in new:
            for offset, symbol, addend, size in self.variables[name].relocations:
                address = loaded[symbol].address if symbol in loaded else self.functions[symbol]
                raw = ((address + addend) % 2**64).to_bytes(8, "little")[:size]
                loaded[name].data[offset : offset + size] = list(raw)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Without garbage collections, which would walk again and again through what is being built."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _place(variable: ptx.Variable, memory: Memory) -> Allocation:
    # of an array with initial values PTX knows bytes alone; what they are aligned to is the best guess at an element
    guessed = variable.type == "b8" and variable.align in (2, 4, 8) and variable.size % variable.align == 0
    allocation = memory.allocate(
        variable.size,
        variable.readable_name,
        align=max(variable.align, 16),
        element_size=variable.align if guessed else ptx.type_size(variable.type),
        writable=variable.space != "const",
    )
    allocation.is_constant = variable.space == "const"
    allocation.data[:] = 0
    if variable.initial is not None:
        allocation.data[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
    allocation.written = None
    return allocation


def _entry(program: Program, module: ptx.Module, function: ptx.Function, target: str) -> Entry:
    of_module = module.in_shared(function)
    if any(instruction.parts[0] == "call" for instruction in function.instructions):
        from .inline import inline_calls  # which few kernels need

        function = inline_calls(function, module)
    static, dynamic = _in_shared([*of_module, *function.variables.values()])
    shared, shared_bytes = _offsets(static)
    variables = [v for v in function.variables.values() if v.space == "local"]
    if any(instruction.parts[0] == "alloca" for instruction in function.instructions):
        variables.append(ptx.Variable(ALLOCA, "local", "b8", 16, ALLOCA_BYTES))
    local, local_bytes = _offsets(variables)
    layout = Layout(
        {variable.name: offset for variable, offset in shared},
        frozenset(variable.name for variable in dynamic),
        {variable.name: offset for variable, offset in local},
        frozenset(program.variables),
        {parameter.name: parameter.offset for parameter in function.parameters},
        program.functions,
    )
    decoded = decode(function, layout, target)
    specials = " ".join(c.name for c in decoded.constants if c.kind == "special")
    return Entry(
        function.name,
        function.parameters,
        shared_bytes,
        _largest_align(dynamic),
        *_bounds(function),
        *_of_cooperative_groups(specials),
        _register_limit(function.directives),
        not {"maxnreg", "minnctapersm"}.isdisjoint(function.directives),
        len(function.registers),
        program,
        function.instructions,
        decoded,
        tuple(shared),
        _of_engine(decoded),
        local_bytes,
    )


def _of_engine(decoded: DecodedEntry) -> _engine.Program:
    """The decoded rows as the engine keeps them."""
    return _engine.Program(
        decoded.rows, decoded.operands, decoded.register_bytes, decoded.special_offset, decoded.unset
    )


def _signature(kernel: ptx.Function, module: ptx.Module) -> Signature:
    """From functions whose bodies have not been read."""
    reached = module.reached(kernel)
    declared = [variable for f in reached for variable in module.shared_variables(f)]
    static, dynamic = _in_shared([*module.in_shared(kernel), *declared])
    return Signature(
        kernel.name,
        kernel.parameters,
        _offsets(static)[1],
        _largest_align(dynamic),
        *_bounds(kernel),
        *_of_cooperative_groups("".join(module.body(f) for f in reached)),
    )


def _in_shared(variables: Iterable[ptx.Variable]) -> tuple[list[ptx.Variable], list[ptx.Variable]]:
    """Of variables, those that lie in static and in dynamic shared memory."""
    in_shared = [v for v in variables if v.space == "shared"]
    dynamic = [variable for variable in in_shared if variable.external or not variable.size]
    return [variable for variable in in_shared if variable not in dynamic], dynamic


def _largest_align(dynamic: list[ptx.Variable]) -> int:
    return max((variable.align for variable in dynamic), default=16)


_Triple = tuple[int, int, int]


def _bounds(function: ptx.Function) -> tuple[int | None, _Triple | None, _Triple | None]:
    """Threads of a block at most, the block and the cluster that a kernel is compiled for."""
    directives = function.directives
    threads = _triple(directives.get("maxntid"))
    most = threads[0] * threads[1] * threads[2] if threads else None
    return most, _triple(directives.get("reqntid")), _triple(directives.get("reqnctapercluster"))


def _of_cooperative_groups(text: str) -> tuple[bool, bool]:
    """Whether a kernel that names these special registers is cooperative, and uses reserved shared memory."""
    return "%envreg" in text, "%reserved_smem_offset_" in text


_REGISTERS_OF_A_MULTIPROCESSOR, _MOST_REGISTERS = 65536, 255


def _register_limit(directives: Mapping[str, tuple[int, ...]]) -> int | None:
    """The most registers a thread may have, a multiple of 8."""
    if limit := directives.get("maxnreg"):
        return -(-limit[0] // 8) * 8
    block = _triple(directives.get("maxntid")) or _triple(directives.get("reqntid"))
    if block is None:
        return None
    (blocks,) = directives.get("minnctapersm") or (1,)
    warps = -(-block[0] * block[1] * block[2] // 32) * max(blocks, 1)
    return min(_MOST_REGISTERS + 1, _REGISTERS_OF_A_MULTIPROCESSOR // (32 * max(warps, 1))) // 8 * 8


def _offsets(variables: list[ptx.Variable]) -> tuple[list[tuple[ptx.Variable, int]], int]:
    """Variables one after the other, each at its alignment, and the bytes of all of them."""
    placed, end = [], 0
    for variable in variables:
        start = _align(end, variable.align)
        placed.append((variable, start))
        end = start + variable.size
    return placed, end


def _triple(numbers: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    if not numbers:
        return None
    padded = (*numbers, 1, 1)
    return padded[0], padded[1], padded[2]


def _align(value: int, align: int) -> int:
    return -(-value // align) * align


def line_numbers(entry: Entry) -> list[int]:
    """A number for each row of an entry, the same for rows that come from one line of the kernel's own file."""
    numbers: dict[tuple[str, int], int] = {}
    return [
        numbers.setdefault((place.file, place.line), len(numbers))
        for place in (kernel_line(entry.instructions[int(index)]) for index in entry.decoded.instructions)
    ]


def early_returns(entry: Entry) -> list[int]:
    """Rows of branches behind which a ``return`` stands in the source before the next barrier, or may stand.

    Threads that have returned need not come to a barrier: devices do not wait for them. Others have to."""
    rows = [(row, entry.instructions[int(index)]) for row, index in enumerate(entry.decoded.instructions)]
    barriers = [kernel_line(i) for _, i in rows if i.parts[0] in ("bar", "barrier") and "cluster" not in i.parts]
    if not barriers:
        return []

    def may_return(place: ptx.SourceLocation) -> bool:
        later = [barrier.line for barrier in barriers if barrier.file == place.file and barrier.line >= place.line]
        lines = ptx.text_of(place.file, entry.program.sources).splitlines()[place.line - 1 : min(later, default=0)]
        return place.line < 1 or not lines or any(re.search(r"\breturn\b", line) for line in lines)

    return [row for row, i in rows if i.parts[0] == "bra" and may_return(kernel_line(i))]


def kernel_line(instruction: ptx.Instruction) -> ptx.SourceLocation:
    """Where an instruction stands in the kernel's own file: what headers make of it is the calling line's."""
    places = (instruction.location, *instruction.location.inlined_at)
    return next(place for place in places if place.file == places[-1].file)


_BEGIN = "// begin inline asm"
_PLACE_OR_ASM = re.compile(rf"^[ \t]*\.loc[ \t]+(\d+)[ \t]+(\d+)[ \t]+(\d+)(.*)$|^[ \t]*{_BEGIN}", re.MULTILINE)
_ASM = re.compile(r"\b(?:asm|__asm__)\s*(?:(?:volatile|__volatile__)\s*)?\(")
_ASM_PART = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[()]', re.DOTALL)


def asm_at_its_first_line(text: str, sources: Mapping[str, str]) -> str:
    """PTX in which an asm statement over several lines has the place of its first.

    NVRTC 13.0 gives it that of one of its operands, as NVRTC 13.5 does not. Lines of the PTX keep their numbers.
    `sources` are texts of CUDA sources by file name; others are read where they exist."""
    if _BEGIN not in text:
        return text
    first = {number: _asm_lines(ptx.text_of(path, sources)) for number, path in ptx.source_files(text).items()}
    if not any(first.values()):
        return text
    last: re.Match[str] | None = None

    def placed(found: re.Match[str]) -> str:
        nonlocal last
        if found[1]:
            last = found
        elif last and (line := first.get(int(last[1]), {}).get(int(last[2]))):
            return f"\t.loc\t{last[1]} {line} {last[3]}{last[4]} {found[0].strip()}"
        return found[0]

    return _PLACE_OR_ASM.sub(placed, text)


def _asm_lines(text: str) -> dict[int, int]:
    """The first line of the asm statement that each line of one continues."""
    lines: dict[int, int] = {}
    ends = [match.start() for match in re.finditer("\n", text)]
    for statement in _ASM.finditer(text):
        depth, position = 1, statement.end()
        while depth and (part := _ASM_PART.search(text, position)):
            depth += {"(": 1, ")": -1}.get(part[0], 0)
            position = part.end()
        if not depth:
            first, final = (bisect(ends, place) + 1 for place in (statement.start(), position - 1))
            lines |= dict.fromkeys(range(first + 1, final + 1), first)
    return lines
