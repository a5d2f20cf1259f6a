"""The rows of a decoded entry: registers become cells of the register file, constants places in a pool."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from . import _engine, ptx
from .operations import Letter, special_registers
from .registers import CELL, Step, assign_cells

__all__ = ["ABSENT", "Constant", "DecodedEntry", "Operand", "Row", "Table", "cell_size"]

ABSENT = _engine.ABSENT


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is the same in all lanes.

    ``kind`` is ``bits`` (``value`` is the bit pattern), ``special`` (``name`` of a uniform special register),
    ``shared``, ``dynamic`` (start of dynamic shared memory), ``local``, ``parameter`` (offsets in their spaces) or
    ``global`` (address of the module variable ``name``); ``value`` is then an offset in bytes. ``size`` is 4 or 8
    bytes a lane.
    """

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
    may be read before they are written.
    """

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
        sizes = self.cell_sizes()
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

    def cell_sizes(self) -> list[int]:
        return [cell_size(register) for register in self.registers]

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
