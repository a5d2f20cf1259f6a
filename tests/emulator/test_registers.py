"""Registers that share a cell must never be alive at the same time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.emulator.table import CELL, Step, assign_cells

REGISTERS = 12
SIZES = [4] * 8 + [8] * 4


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Rows with jumps anywhere, guards, and asynchronous work that a later row waits for."""
    length = draw(st.integers(1, 30))
    registers = st.lists(st.integers(0, REGISTERS - 1), max_size=2, unique=True).map(tuple)
    rows = []
    for row in range(length):
        following = {row + 1}
        if draw(st.integers(0, 3)) == 0:
            following = set(draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=2)))
        if draw(st.integers(0, 9)) == 0:
            following = set()
        holds = draw(registers) if draw(st.integers(0, 4)) == 0 else ()
        rows.append(
            Step(
                uses=(*draw(registers), *holds),
                defines=draw(registers),
                successors=tuple(sorted(successor for successor in following if successor < length)),
                conditional=draw(st.booleans()),
                holds=holds,
                releases=draw(st.integers(0, 4)) == 0,
            )
        )
    return rows


@pytest.mark.long
@given(programs(), st.integers(0, 1000))
@settings(max_examples=300, deadline=None)
def test_a_run_with_shared_cells_reads_what_a_run_with_its_own_registers_reads(rows: list[Step], seed: int) -> None:
    cells, size, _ = assign_cells(rows, SIZES)
    rng = random.Random(seed)
    own = [0] * REGISTERS
    shared = [0] * (size // CELL)
    held: dict[int, int] = {}  # register: value that asynchronous work may still read
    row, written = 0, 0
    for _ in range(200):
        step = rows[row]
        for register in step.uses:
            assert cells[register] >= 0
            assert own[register] == shared[cells[register] // CELL], "a register lost its value to another"
        for register in step.holds:
            held[register] = own[register]
        takes = not step.conditional or rng.random() < 0.5
        for register in step.defines if takes else ():
            written += 1
            own[register] = written
            if register in held:
                held[register] = written
            for word in range(SIZES[register] // 4):
                shared[cells[register] // CELL + word] = written
        for register, value in held.items():
            assert shared[cells[register] // CELL] == value, "asynchronous work would find another register's value"
        if step.releases:
            held.clear()
        if not step.successors:
            break
        row = rng.choice(step.successors)


def test_a_result_does_not_share_a_cell_with_a_source_that_dies_there() -> None:
    rows = [Step(defines=(0,), successors=(1,)), Step(uses=(0,), defines=(1,), successors=(2,)), Step(uses=(1,))]
    cells, _, _ = assign_cells(rows, [4, 4])
    assert cells[0] != cells[1]


def test_registers_with_separate_lives_share_a_cell() -> None:
    count = 50
    rows = [Step(defines=(r,), uses=(r - 1,) if r else (), successors=(r + 1,)) for r in range(count)]
    cells, size, _ = assign_cells([*rows, Step()], [4] * count)
    assert size == 2 * CELL
    assert set(cells) == {0, CELL}


def test_a_register_that_no_row_names_has_no_cell() -> None:
    assert assign_cells([Step()], [4, 8]) == ([-1, -1], 0, [])


def test_wide_registers_take_two_cells() -> None:
    cells, size, _ = assign_cells([Step(defines=(0, 1)), Step(uses=(0, 1))], [8, 4])
    assert size == 3 * CELL
    assert abs(cells[0] - cells[1]) in (CELL, 2 * CELL)
