"""Emulated global memory, as the host sees it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from emulation import module

from workbench.emulator import KernelFault, Memory, Program, execute


def test_what_is_uploaded_can_be_read_back() -> None:
    memory = Memory()
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    allocation = memory.upload(array.T, "A")
    assert np.array_equal(memory.read(allocation, np.float32, (4, 3)), array.T)
    assert memory.initialised(allocation).all()
    memory.write(allocation.address + 4, np.float32([9]))
    assert memory.read(allocation, np.float32)[1] == 9


def test_what_is_read_is_a_copy() -> None:
    memory = Memory()
    allocation = memory.upload(np.zeros(4), "A")
    memory.read(allocation, np.float64)[:] = 1
    assert not memory.read(allocation, np.float64).any()


def test_new_memory_is_uninitialised_and_holds_no_zeros() -> None:
    memory = Memory()
    allocation = memory.allocate(16, "C")
    assert not memory.initialised(allocation).any()
    assert np.isnan(memory.read(allocation, np.float32)).all()
    memory.write(allocation.address + 4, np.float32([1]))
    assert memory.initialised(allocation).tolist() == [False] * 4 + [True] * 4 + [False] * 8


def test_an_index_by_a_row_too_far_meets_no_other_array() -> None:
    memory = Memory()
    allocations = [memory.allocate(size, str(size)) for size in (16, 1 << 22, 0, 100)]
    for first, second in pairwise(allocations):
        assert second.address - first.end >= max(first.nbytes, 1 << 20)
    assert all(a.address % 256 == 0 for a in allocations)


def test_small_alignments_are_not_better_than_asked_for() -> None:
    memory = Memory()
    assert [memory.allocate(64, align=align).address % 256 for align in (4, 16, 256)] == [4, 16, 0]
    assert memory.allocate(64, align=1024).address % 1024 == 0
    with pytest.raises(ValueError, match="power of two"):
        memory.allocate(64, align=24)


def test_another_place_gives_other_addresses_that_are_as_aligned() -> None:
    first, second = (Memory(place).allocate(64, align=16).address for place in (0, 1))
    assert first != second
    assert first % 256 == second % 256 == 16


def test_freed_memory_is_gone() -> None:
    memory = Memory()
    allocation = memory.upload(np.zeros(4), "A")
    memory.free(allocation)
    assert memory.find(allocation.address) is None
    assert memory.nearest(allocation.address) is allocation
    with pytest.raises(ValueError, match="nothing is allocated"):
        memory.read(allocation, np.float64)


def test_reading_too_much_is_refused() -> None:
    memory = Memory()
    allocation = memory.upload(np.zeros(4), "A")
    with pytest.raises(ValueError, match="40 bytes do not fit into A, which has 32"):
        memory.read(allocation, np.float64, 5)


def test_elements_have_names() -> None:
    memory = Memory()
    matrix = memory.upload(np.zeros((4, 6), np.float32), "A")
    assert matrix.element(matrix.address + 4 * 13) == "A[2][1]"
    assert matrix.element(matrix.address + 4 * 13 + 1) == "A[2][1] (byte 1 of the element)"
    assert matrix.element(matrix.end) == "A[24]"


def test_what_is_discarded_is_lost_and_was_never_written() -> None:
    body = "ld.param.u64 %a, [a]; st.global.u32 [%a], 7; st.global.u32 [%a+128], 7; discard.global.L2 [%a], 128; ret;"
    memory = Memory()
    a = memory.allocate(256, "a")
    entry = Program.from_ptx(module(body, ".param .u64 a", ".reg .b64 %a;")).entries["k"]
    execute(entry, 1, 1, [a], memory=memory)
    assert memory.read(a, np.uint32)[32] == 7 != memory.read(a, np.uint32)[0]
    assert np.flatnonzero(memory.initialised(a)).tolist() == [128, 129, 130, 131]
    with pytest.raises(KernelFault, match="align"):
        execute(entry, 1, 1, [a.address + 4], memory=memory)
