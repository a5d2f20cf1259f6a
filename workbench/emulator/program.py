"""A PTX module, ready to be launched."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .allocation import Allocation
from .decode import Layout, decode
from .inline import function_addresses, inline_calls
from .memory import Memory
from .table import DecodedEntry

__all__ = ["Entry", "Program", "Signature"]

_MOST_VARIABLE_BYTES = 1 << 30


@dataclass(eq=False, slots=True)
class Signature:
    """What a launch of a kernel is checked against.

    ``static_shared_bytes``: shared memory that it declares; ``max_threads``: what ``__launch_bounds__`` promises, or
    None; ``required_block``: the block it must be launched with, or None; ``cluster``: the cluster it is compiled
    for, or None; ``cooperative``: whether it may wait for its whole grid, as ``this_grid().sync()`` of cooperative
    groups does; ``uses_reserved_shared``: whether it uses the shared memory reserved for the system, as cooperative
    groups do for large tiles.
    """

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
    declared; ``register_count``: virtual registers, more than a GPU would need.
    """

    register_limit: int | None
    register_count: int
    program: Program = field(repr=False)
    instructions: list[ptx.Instruction] = field(repr=False)
    decoded: DecodedEntry = field(repr=False)
    shared_variables: tuple[tuple[ptx.Variable, int], ...] = field(repr=False)
    engine_program: _engine.Program = field(repr=False)  # the decoded rows as the engine keeps them
    local_bytes: int
    constant_pool: tuple[tuple[object, ...], npt.NDArray[np.uint8]] | None = field(default=None, repr=False)
    allowed: tuple[tuple[str, str, int], ...] | None = field(default=None, repr=False)  # by comments; see Rules
    lines: list[int] | None = field(default=None, repr=False)  # of each row; see line_numbers


@dataclass(eq=False, slots=True)
class Program:
    """A parsed and decoded PTX module.

    ``entries`` holds its kernels by name, ``variables`` its global and constant variables, ``sources`` texts of CUDA
    sources by file name, from which findings quote lines, ``registers_per_thread`` what the compiler reported of
    kernels, where it is known, ``functions`` the addresses that stand for functions in pointers to them.
    """

    entries: dict[str, Entry]
    variables: dict[str, ptx.Variable]
    sources: dict[str, str]
    registers_per_thread: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict, repr=False)
    _named: tuple[str, ...] = field(default=(), repr=False)  # the variables that kernels name

    @classmethod
    def from_ptx(
        cls, text: str, source_name: str | None = None, *, sources: Mapping[str, str] | None = None
    ) -> Program:
        """Parses and decodes a module.

        ``source_name`` names the CUDA source where the PTX does not; ``sources`` maps file names (with or without
        directories) to their text. Raises ``PtxSyntaxError`` with the line of the PTX, or ``UnsupportedInstruction``
        with the line of the CUDA source.
        """
        with _nothing_collected():
            return cls._from_ptx(text, source_name, dict(sources or {}))

    @classmethod
    def _from_ptx(cls, text: str, source_name: str | None, sources: dict[str, str]) -> Program:
        module = ptx.parse(text, source_name)
        variables = {v.name: v for v in module.variables.values() if v.space in ("global", "const")}
        if (total := sum(v.size for v in variables.values())) > _MOST_VARIABLE_BYTES:
            raise ptx.PtxSyntaxError(f"the variables have {total} bytes; {_MOST_VARIABLE_BYTES} are allowed", 1)
        program = cls({}, variables, sources, functions=function_addresses(module))
        for function in module.functions.values():
            if function.is_entry and function.defined:
                program.entries[function.name] = _entry(program, module, function)
        named = {c.name for e in program.entries.values() for c in e.decoded.constants if c.kind == "global"}
        program._named = tuple(name for name in variables if name in named)
        return program

    @staticmethod
    def signatures(text: str) -> dict[str, Signature]:
        """What launches of a module's kernels are checked against, by name, without decoding what the kernels do.

        Raises ``PtxSyntaxError`` for what is wrong outside of their bodies.
        """
        module = ptx.parse(text, bodies=False)
        kernels = [function for function in module.functions.values() if function.is_entry and function.defined]
        return {kernel.name: _signature(kernel, module) for kernel in kernels}

    def load(self, memory: Memory) -> dict[str, Allocation]:
        """The variables that kernels name in a memory, put there with their initial values by the first call."""
        loaded = memory.modules.get(self)
        if loaded is None:
            loaded = memory.modules[self] = {}
            self._put(self._named, loaded, memory)
        return loaded

    def variable(self, name: str, memory: Memory) -> Allocation:
        """Where a ``__device__`` or ``__constant__`` variable lies; ``name`` is as in the source or in the PTX."""
        found = [v.name for v in self.variables.values() if name in (v.name, v.readable_name)]
        if len(found) != 1:
            raise KeyError(f"{'no variable is' if not found else 'several variables are'} called {name}")
        loaded = self.load(memory)
        self._put(found, loaded, memory)
        return loaded[found[0]]

    def _put(self, names: Sequence[str], loaded: dict[str, Allocation], memory: Memory) -> None:
        """Variables, and those whose addresses they hold."""
        new = [name for name in names if name not in loaded]
        for name in new:
            loaded[name] = _place(self.variables[name], memory)
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
    allocation.data[:] = 0
    if variable.initial is not None:
        allocation.data[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
    allocation.written = None
    return allocation


def _entry(program: Program, module: ptx.Module, function: ptx.Function) -> Entry:
    function = inline_calls(function, module)
    static, dynamic = _in_shared(module, function.variables.values())
    shared, shared_bytes = _offsets(static)
    local, local_bytes = _offsets([v for v in function.variables.values() if v.space == "local"])
    layout = Layout(
        {variable.name: offset for variable, offset in shared},
        frozenset(variable.name for variable in dynamic),
        {variable.name: offset for variable, offset in local},
        frozenset(program.variables),
        {parameter.name: parameter.offset for parameter in function.parameters},
        program.functions,
    )
    decoded = decode(function, layout)
    specials = " ".join(c.name for c in decoded.constants if c.kind == "special")
    return Entry(
        function.name,
        function.parameters,
        shared_bytes,
        _largest_align(dynamic),
        *_bounds(function),
        *_of_cooperative_groups(specials),
        _register_limit(function.directives),
        len(function.registers),
        program,
        function.instructions,
        decoded,
        tuple(shared),
        _engine.Program(decoded.rows, decoded.operands, decoded.register_bytes, decoded.special_offset, decoded.unset),
        local_bytes,
    )


def _signature(kernel: ptx.Function, module: ptx.Module) -> Signature:
    """From functions whose bodies have been passed over."""
    reached = _reached(kernel, module)
    static, dynamic = _in_shared(module, [variable for f in reached for variable in f.variables.values()])
    return Signature(
        kernel.name,
        kernel.parameters,
        _offsets(static)[1],
        _largest_align(dynamic),
        *_bounds(kernel),
        *_of_cooperative_groups("".join(f.body for f in reached)),
    )


def _reached(kernel: ptx.Function, module: ptx.Module) -> list[ptx.Function]:
    """The kernel, and the functions that are named in its body or in that of one of them."""
    reached = [kernel]
    others = [function for function in module.functions.values() if function.defined and not function.is_entry]
    for function in reached:  # which grows
        named = [f for f in others if re.search(rf"(?<![\w$]){re.escape(f.name)}(?![\w$])", function.body)]
        others = [f for f in others if all(f is not n for n in named)]
        reached += named
    return reached


def _in_shared(module: ptx.Module, variables: Iterable[ptx.Variable]) -> tuple[list[ptx.Variable], list[ptx.Variable]]:
    """The variables of a module and of a kernel that lie in static and in dynamic shared memory."""
    in_shared = [v for v in (*module.variables.values(), *variables) if v.space == "shared"]
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
