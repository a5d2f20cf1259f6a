"""The rows of a decoded entry: registers become cells of the register file, constants places in a pool."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .operations import Letter, special_registers

# ------------------------------------------------------------------------------------------- cells of the register file
# PTX has as many registers as the compiler liked, 128 or 256 bytes each in the emulator. Registers whose lifetimes do
# not meet share a cell, which keeps a warp's file in the cache. Lifetimes come from a backward dataflow over basic
# blocks; cells are then given out in one pass over the lifetimes (linear scan). Lanes of a warp may stand at different
# places, but a lane writes only its own part of a cell, so that what holds for one thread holds for all.
#
# Two rules go beyond the textbook:
#
# - a result never shares a cell with a source of the same instruction, because the engine writes results while it
# reads; - the registers of an asynchronous instruction (``wgmma``) stay where they are until a wait releases them,
# because the engine reads and writes them as late as the hardware might.
CELL = 128  # bytes of a 4-byte register for all lanes of a warp; 8-byte registers take two


@dataclass(slots=True)
class Step:
    """What one row does with registers, each named by its index.

    ``successors`` lists the rows that may follow, ``conditional`` tells that a guard may leave the results as they
    were, ``holds`` lists registers in use by asynchronous work from here on, and ``releases`` that no such work
    outlives the row."""

    uses: tuple[int, ...] = ()
    defines: tuple[int, ...] = ()
    successors: tuple[int, ...] = ()
    conditional: bool = False
    holds: tuple[int, ...] = ()
    releases: bool = False


@dataclass(slots=True)
class _Block:
    start: int
    stop: int
    successors: list[int] = field(default_factory=list)
    used: int = 0  # bit sets of registers: read before written in the block,
    defined: int = 0  # written,
    live_in: int = 0
    live_out: int = 0
    held: int = 0  # in use by asynchronous work that the block starts and does not wait for,
    holds: bool = False
    releases: bool = False
    held_in: int = 0
    held_out: int = 0


def assign_cells(steps: Sequence[Step], sizes: Sequence[int]) -> tuple[list[int], int, list[int]]:
    """Cells of a function's registers.

    ``sizes`` holds the bytes of each register in one lane, 4 or 8. Returns the byte offset of each register's cell,
    -1 for a register that no row names, the bytes of the file, and the registers that may be read before they are
    written. Such a register gets a cell of its own from the first row on."""
    lifetimes, unset = _lifetimes(steps, len(sizes))
    cells = [-1] * len(sizes)
    free: dict[int, list[int]] = {4: [], 8: []}
    ending: list[tuple[int, int, int]] = []
    top = 0
    for register in sorted((r for r in range(len(sizes)) if lifetimes[r][1] >= 0), key=lambda r: lifetimes[r][0]):
        first, last = lifetimes[register]
        while ending and ending[0][0] < first:
            _, cell, size = heapq.heappop(ending)
            free[size].append(cell)
        size = sizes[register]
        if free[size]:
            cell = free[size].pop()
        else:
            cell = top
            top += CELL * size // 4
        cells[register] = cell
        heapq.heappush(ending, (last, cell, size))
    return cells, top, unset


def _lifetimes(steps: Sequence[Step], count: int) -> tuple[list[tuple[int, int]], list[int]]:
    """First and last row of each register's life, (count of rows, -1) for one that is never named; and those alive
    before the first row."""
    blocks = _blocks(steps)
    _solve_liveness(blocks)
    _solve_held(blocks)
    first, last = [len(steps)] * count, [-1] * count

    def touch(register: int, row: int) -> None:
        if row < first[register]:
            first[register] = row
        if row > last[register]:
            last[register] = row

    for row, step in enumerate(steps):
        for register in (*step.uses, *step.defines, *step.holds):
            touch(register, row)
    # of the blocks that a register is alive into or out of, only the outermost matter
    for ordered in (blocks, blocks[::-1]):
        entered = left = 0
        for block in ordered:
            alive_in, alive_out = block.live_in | block.held_in, block.live_out | block.held_out
            for register in _bits(alive_in & ~entered):
                touch(register, block.start)
            for register in _bits(alive_out & ~left):
                touch(register, block.stop - 1)
            entered |= alive_in
            left |= alive_out
    # asynchronous work may also end inside a block
    for block in blocks:
        held = block.held_in
        for row in range(block.start, block.stop) if held or block.holds else ():
            held |= _set(steps[row].holds)
            if steps[row].releases:
                for register in _bits(held):
                    touch(register, row)
                held = 0
    return list(zip(first, last, strict=True)), list(_bits(blocks[0].live_in)) if blocks else []


def _blocks(steps: Sequence[Step]) -> list[_Block]:
    starts = {0}
    for row, step in enumerate(steps):
        if step.successors != (row + 1,):
            starts.add(row + 1)
            starts.update(step.successors)
    ordered = sorted(start for start in starts if start < len(steps))
    number = {start: index for index, start in enumerate(ordered)}
    blocks = [_Block(start, stop) for start, stop in zip(ordered, [*ordered[1:], len(steps)], strict=True)]
    for block in blocks:
        block.successors = [number[row] for row in steps[block.stop - 1].successors if row in number]
        for row in range(block.start, block.stop):
            step = steps[row]
            uses = _set(step.uses)
            defines = _set(step.defines)
            if step.conditional:
                uses |= defines
            block.used |= uses & ~block.defined
            block.defined |= defines
            if step.holds:
                block.held |= _set(step.holds)
                block.holds = True
            if step.releases:
                block.held = 0
                block.releases = True
    return blocks


def _solve_liveness(blocks: list[_Block]) -> None:
    predecessors = _predecessors(blocks)
    waiting = list(range(len(blocks)))
    while waiting:
        index = waiting.pop()
        block = blocks[index]
        block.live_out = 0
        for successor in block.successors:
            block.live_out |= blocks[successor].live_in
        live_in = block.used | (block.live_out & ~block.defined)
        if live_in != block.live_in:
            block.live_in = live_in
            waiting.extend(predecessors[index])


def _solve_held(blocks: list[_Block]) -> None:
    if not any(block.held for block in blocks):
        return
    waiting = list(range(len(blocks)))
    while waiting:
        block = blocks[waiting.pop()]
        held_out = block.held | (0 if block.releases else block.held_in)
        if held_out == block.held_out:
            continue
        block.held_out = held_out
        for successor in block.successors:
            blocks[successor].held_in |= held_out
            waiting.append(successor)


def _predecessors(blocks: list[_Block]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in blocks]
    for index, block in enumerate(blocks):
        for successor in block.successors:
            found[successor].append(index)
    return found


def _set(registers: tuple[int, ...]) -> int:
    bits = 0
    for register in registers:
        bits |= 1 << register
    return bits


def _bits(registers: int) -> Iterator[int]:
    while registers:
        lowest = registers & -registers
        yield lowest.bit_length() - 1
        registers ^= lowest


# ----------------------------------------------------------------------------------------------------------------- rows

ABSENT = _engine.ABSENT


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is the same in all lanes.

    ``kind`` is ``bits`` (``value`` is the bit pattern), ``special`` (``name`` of a uniform special register),
    ``shared``, ``dynamic`` (start of dynamic shared memory), ``local``, ``parameter`` (offsets in their spaces) or
    ``global`` (address of the module variable ``name``); ``value`` is then an offset in bytes. ``size`` is 4 or 8
    bytes a lane."""

    kind: str
    value: int
    size: int
    name: str = ""


@dataclass(slots=True)
class DecodedEntry:
    """An entry as the engine takes it, free of anything that depends on a launch.

    ``rows`` is an int32 array [rows][7], ``operands`` an int64 array [operands][3] of slots, bytes and offsets,
    ``instructions`` the index of the PTX instruction behind each row, ``constants`` the offset of each constant in
    the pool, ``register_names`` the registers that share each cell, ``unset`` slot and bytes of the registers that
    may be read before they are written."""

    rows: npt.NDArray[np.int32]
    operands: npt.NDArray[np.int64]
    instructions: npt.NDArray[np.int32]
    register_bytes: int
    special_offset: int
    constants: dict[Constant, int]
    constant_bytes: int
    register_names: dict[int, list[str]]
    unset: list[tuple[int, int]]

    @property
    def variables(self) -> set[str]:
        """The module's variables that the entry names."""
        return {constant.name for constant in self.constants if constant.kind == "global"}


@dataclass(slots=True)
class Operand:
    """One operand of a row: a register, a special register's number, a constant, or nothing."""

    value: ptx.Register | int | Constant | None
    letter: Letter
    offset: int = 0
    size: int = 4


@dataclass(slots=True)
class Row:
    operation: int
    name: str
    operands: list[Operand]
    instruction: int
    guard: ptx.Register | None = None
    guard_negated: bool = False
    target: ptx.Label | int | None = None
    flags: int = 0


def cell_size(register: ptx.Register) -> int:
    return 8 if ptx.type_size(register.type) == 8 else 4


@dataclass(slots=True)
class Table:
    """Rows as they are made, with the registers that they use; ``row_of`` has the first row of each instruction."""

    rows: list[Row] = field(default_factory=list)
    registers: list[ptx.Register] = field(default_factory=list)
    row_of: list[int] = field(default_factory=list)

    def assemble(self) -> DecodedEntry:
        sizes = [cell_size(register) for register in self.registers]
        cells, top, unset = assign_cells([self.step(index) for index in range(len(self.rows))], sizes)
        special_offset = top
        constants: dict[Constant, int] = {}
        pool = 0
        table: list[tuple[int, ...]] = []
        operands: list[tuple[int, int, int]] = []
        for row in self.rows:
            guard = ABSENT if row.guard is None else cells[row.guard.index]
            first = len(operands)
            for operand in row.operands:
                value = operand.value
                if value is None:
                    slot = ABSENT
                elif isinstance(value, ptx.Register):
                    slot = cells[value.index]
                elif isinstance(value, int):
                    slot = special_offset + CELL * value
                else:
                    if value not in constants:
                        constants[value] = pool
                        pool += CELL * value.size // 4
                    slot = ~constants[value]
                operands.append((slot, operand.size, operand.offset))
            target = self.target(row)
            jump = -1 if target is None else target
            table.append((row.operation, guard, row.guard_negated, first, len(row.operands), jump, row.flags))
        names: dict[int, list[str]] = {}
        for register, cell in zip(self.registers, cells, strict=True):
            if cell >= 0:
                names.setdefault(cell, []).append(register.name)
        return DecodedEntry(
            np.array(table, np.int32),
            np.array(operands, np.int64).reshape(-1, 3),
            np.array([row.instruction for row in self.rows], np.int32),
            special_offset + CELL * len(special_registers()),
            special_offset,
            constants,
            pool,
            names,
            [(cells[register], sizes[register]) for register in unset],
        )

    def target(self, row: Row) -> int | None:
        return self.row_of[row.target.target] if isinstance(row.target, ptx.Label) else row.target

    def step(self, index: int) -> Step:
        """What the row means for the lives of registers."""
        row = self.rows[index]
        uses: list[int] = []
        defines: list[int] = []
        for operand in row.operands:
            if isinstance(operand.value, ptx.Register):
                if operand.letter.reads:
                    uses.append(operand.value.index)
                if operand.letter.writes:
                    defines.append(operand.value.index)
        if row.guard is not None:
            uses.append(row.guard.index)
        successors: tuple[int, ...] = (index + 1,)
        target = self.target(row)
        if target is not None:
            successors = (target,) if row.guard is None else (target, index + 1)
        elif row.name in ("exit", "trap", "assertfail"):
            successors = () if row.guard is None else successors
        asynchronous = row.name.startswith("wgmma.mma_async")
        return Step(
            tuple(uses),
            tuple(defines),
            tuple(successor for successor in successors if successor < len(self.rows)),
            row.guard is not None,
            tuple(uses) if asynchronous else (),
            row.name.startswith("wgmma.wait_group") and self.waits_for_all(row),
        )

    @staticmethod
    def waits_for_all(row: Row) -> bool:
        value = row.operands[0].value
        return row.guard is None and isinstance(value, Constant) and value.kind == "bits" and value.value == 0
