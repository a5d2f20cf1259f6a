"""Loads whose value a thread uses for nothing: which those are, and that they alone race with nobody."""

from __future__ import annotations

import pytest
from emulation import module

from workbench.emulator import FindingKind, KernelFault, Memory, Program, execute
from workbench.emulator.dataflow import thread_bits

IN_PLACE = """
mov.u32 %t, %tid.x; and.b32 %e, %t, {held}; ld.param.u64 %x, [x]; mul.wide.u32 %o, %e, 4; add.u64 %p, %x, %o;
ld.global.b32 %v, [%p];
{between}
add.u32 %w, %v, %v; and.b32 %m, %t, {others}; setp.eq.b32 %q, %m, 0;
{guard} st.global.b32 [%p], %w;
{after}
ret;
"""
REGISTERS = (
    ".reg .b32 %t; .reg .b32 %e; .reg .b32 %v; .reg .b32 %w; .reg .b32 %m; .reg .b32 %z; .reg .pred %q; .reg .pred %r;"
    ".reg .b64 %x; .reg .b64 %o; .reg .b64 %p; .reg .b64 %a;"
)


def in_place(between: str = "", after: str = "", guard: str = "@%q", held: int = 31, others: int = 96) -> Program:
    """Threads that hold the same element of x load it, and one of them stores it."""
    body = IN_PLACE.format(between=between, after=after, guard=guard, held=held, others=others)
    return Program.from_ptx(module(body, ".param .u64 x", REGISTERS))


def bits_of(program: Program) -> list[int]:
    """Of the load of x."""
    instructions = program.entries["k"].instructions
    (load,) = [i.index for i in instructions if i.opcode == "ld.global.b32" and "%v" in i.text]
    return [bits for index, bits in thread_bits(instructions).items() if index == load]


def test_threads_that_do_not_store_do_not_use_what_they_load() -> None:
    assert bits_of(in_place()) == [96]
    assert bits_of(in_place(held=15, others=112)) == [112]
    assert bits_of(in_place(guard="setp.lt.u32 %r, %t, 32; @%r")) == [0x3E0]
    assert bits_of(in_place(guard="setp.ne.u32 %r, %e, 7; and.pred %r, %q, %r; @%r")) == []  # two definitions
    exchanged = "shfl.sync.bfly.b32 %v, %v, 8, 31, -1;"
    assert bits_of(in_place(exchanged, held=15, others=112)) == [96]


def test_a_branch_that_chooses_among_values_uses_what_it_is_asked_for() -> None:
    choosing = "mov.u32 %z, 1; setp.lt.u32 %r, %v, 7; @%r bra END; mul.lo.u32 %z, %v, %v; END: add.u32 %v, %v, %z;"
    assert bits_of(in_place(choosing)) == [96]
    either = "setp.lt.u32 %r, %v, 7; @!%r bra B; mov.u32 %z, 1; bra END; B: mov.u32 %z, 2; END: add.u32 %v, %v, %z;"
    assert bits_of(in_place(either)) == [96]
    assert bits_of(in_place(choosing.replace("END: ", "bar.sync 0; END: "))) == []


@pytest.mark.parametrize(
    "use",
    [
        "st.global.b32 [%p+4096], %w;",
        "st.shared.b32 [%e], %w;",
        "setp.ne.u32 %r, %v, 0; @%r bra END; st.global.b32 [%p+4096], 0; END:",
        "setp.ne.u32 %r, %v, 0; @%r bra END; mov.u32 %z, 1; END: st.global.b32 [%p+4096], %z;",
        "AGAIN: sub.u32 %v, %v, 1; setp.ne.u32 %r, %v, 0; @%r bra AGAIN;",
        "cvt.u64.u32 %a, %v; add.u64 %a, %a, %x; ld.global.b32 %z, [%a];",
        "atom.global.add.u32 %z, [%x], %v;",
        "vote.sync.any.pred %r, %q, -1; shfl.sync.idx.b32 %z, %e, %v, 31, -1;",
        "add.cc.u32 %z, %v, 1; addc.u32 %z, 0, 0;",
        "and.b32 %m, %v, 1;",
        "mov.pred %q, 1;",
        "setp.ne.u32 %r, %t, 0; @%r mov.u32 %m, 0;",
    ],
)
def test_uses_that_count_for_all_threads(use: str) -> None:
    assert bits_of(in_place(after=use)) == []
    assert bits_of(in_place(guard="@!%q")) == []
    assert bits_of(in_place(guard="")) == []


def test_what_nobody_uses_was_loaded_for_its_own_sake() -> None:
    for last in ("mov.u32 %z, 0;", "add.u32 %z, %v, 1;"):
        body = f"mov.u32 %t, %tid.x; setp.eq.u32 %q, %t, 0; ld.param.u64 %p, [x]; ld.global.b32 %v, [%p]; {last}"
        assert (
            bits_of(Program.from_ptx(module(f"{body} @%q st.global.b32 [%p+4], %t; ret;", ".param .u64 x", REGISTERS)))
            == []
        )


def race_of(program: Program, grid: int = 1, block: int | tuple[int, int] = 128) -> str | None:
    memory = Memory()
    x = memory.allocate(4096 + 512, "x")
    memory.write(x, bytes(4096 + 512))
    try:
        execute(program.entries["k"], grid, block, [x], memory=memory)
    except KernelFault as fault:
        assert fault.finding.kind == FindingKind.RACE, str(fault)
        return fault.finding.message
    return None


def test_such_loads_race_with_nobody_and_all_others_do() -> None:
    assert race_of(in_place()) is None
    assert race_of(in_place(held=15, others=112)) is None
    assert race_of(in_place(), grid=2)  # the same elements in two blocks
    assert race_of(in_place(held=31, others=64))  # two warps store what two load
    assert race_of(in_place(), block=(32, 4))  # %tid.x says nothing of the warp
    assert race_of(in_place(after="mul.wide.u32 %o, %t, 4; add.u64 %a, %x, %o; st.global.b32 [%a+4096], %w;"))
