"""A PTX module, ready to be launched."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .decode import DecodedEntry, Layout, decode
from .inline import function_addresses, inline_calls
from .memory import Allocation, Memory

__all__ = ["Entry", "Program"]

_MOST_VARIABLE_BYTES = 1 << 30


@dataclass(eq=False, slots=True)
class Entry:
    """A kernel of a program.

    ``static_shared_bytes``: shared memory that it declares; ``max_threads``: what ``__launch_bounds__`` promises, or
    None; ``required_block``: the block it must be launched with, or None; ``cluster``: the cluster it is compiled
    for, or None; ``register_limit``: registers of a thread that ``.maxnreg`` or launch bounds allow, or None where
    neither is declared; ``register_count``: virtual registers, more than a GPU would need.
    """

    name: str
    parameters: tuple[ptx.Parameter, ...]
    static_shared_bytes: int
    max_threads: int | None
    required_block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None
    register_limit: int | None
    register_count: int
    program: Program = field(repr=False)
    instructions: list[ptx.Instruction] = field(repr=False)
    decoded: DecodedEntry = field(repr=False)
    shared_variables: tuple[tuple[ptx.Variable, int], ...] = field(repr=False)
    engine_program: _engine.Program = field(repr=False)  # the decoded rows as the engine keeps them
    dynamic_shared_align: int
    local_bytes: int
    constant_pool: tuple[tuple[object, ...], npt.NDArray[np.uint8]] | None = field(default=None, repr=False)

    cooperative: bool = field(init=False)
    """Whether it may wait for its whole grid, as ``this_grid().sync()`` of cooperative groups does."""
    uses_reserved_shared: bool = field(init=False)
    """Whether it uses the shared memory reserved for the system, as cooperative groups do for large tiles."""
    parameter_bytes: int = field(init=False)
    """Size of the parameter buffer."""

    def __post_init__(self) -> None:
        specials = [c.name for c in self.decoded.constants if c.kind == "special"]
        self.cooperative = any(name.startswith("%envreg") for name in specials)
        self.uses_reserved_shared = any(name.startswith("%reserved_smem_offset_") for name in specials)
        self.parameter_bytes = max((p.offset + p.size for p in self.parameters), default=0)

    @property
    def dynamic_shared_offset(self) -> int:
        """Where dynamic shared memory begins in a block's shared memory."""
        return _align(self.static_shared_bytes, self.dynamic_shared_align)


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
    allocation = memory.allocate(
        variable.size,
        variable.readable_name,
        align=max(variable.align, 16),
        element_size=ptx.type_size(variable.type),
        writable=variable.space != "const",
    )
    allocation.data[:] = 0
    if variable.initial is not None:
        allocation.data[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
    allocation.written = None
    return allocation


def _entry(program: Program, module: ptx.Module, function: ptx.Function) -> Entry:
    function = inline_calls(function, module)
    in_shared = [v for v in (*module.variables.values(), *function.variables.values()) if v.space == "shared"]
    dynamic = [variable for variable in in_shared if variable.external or not variable.size]
    shared, shared_bytes = _offsets([variable for variable in in_shared if variable not in dynamic])
    local, local_bytes = _offsets([v for v in function.variables.values() if v.space == "local"])
    layout = Layout(
        {variable.name: offset for variable, offset in shared},
        frozenset(variable.name for variable in dynamic),
        {variable.name: offset for variable, offset in local},
        frozenset(program.variables),
        {parameter.name: parameter.offset for parameter in function.parameters},
        program.functions,
    )
    directives = function.directives
    decoded = decode(function, layout)
    threads = _triple(directives.get("maxntid"))
    return Entry(
        function.name,
        function.parameters,
        shared_bytes,
        threads[0] * threads[1] * threads[2] if threads else None,
        _triple(directives.get("reqntid")),
        _triple(directives.get("reqnctapercluster")),
        _register_limit(directives),
        len(function.registers),
        program,
        function.instructions,
        decoded,
        tuple(shared),
        _engine.Program(decoded.rows, decoded.operands, decoded.register_bytes, decoded.special_offset, decoded.unset),
        max((variable.align for variable in dynamic), default=16),
        local_bytes,
    )


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
