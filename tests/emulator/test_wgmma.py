"""When the accumulators and tiles of wgmma may be used; what it computes is in ``warpgroup_cases.py``."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import fault_of, module

from workbench.emulator import FindingKind, Memory, Program, UnsupportedInstruction, execute


def test_a_width_that_integers_do_not_have_is_refused() -> None:
    registers = ", ".join(f"%d{n}" for n in range(20))
    text = f"wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {{{registers}}}, %a, %b, 1; ret;"
    with pytest.raises(UnsupportedInstruction, match=r"m64n40k32\.s32\.s8\.s8"):
        Program.from_ptx(module(text, "", ".reg .b32 %d<20>; .reg .b64 %a; .reg .b64 %b;"))


def pending(body: str, *, kind: FindingKind | None) -> None:
    """Two wgmma, then ``body``: what the launch ends with."""
    wgmma = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{0}}}, %da, %da, 1, 1, 1, 0, 0;"
    text = module(
        f"""
        ld.param.u64 %x, [x]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %x, %x, %o;
        mul.lo.u32 %s, %i, 16; mov.u32 %base, tile; add.u32 %s, %s, %base;
        st.shared.v4.b32 [%s], {{0, 0, 0, 0}};
        st.shared.v4.b32 [%s+2048], {{0, 0, 0, 0}};
        st.shared.v4.b32 [%s+4096], {{0, 0, 0, 0}};
        st.shared.v4.b32 [%s+6144], {{0, 0, 0, 0}};
        fence.proxy.async.shared::cta; bar.sync 0;
        shr.u32 %t, %base, 4; cvt.u64.u32 %da, %t; or.b64 %da, %da, {1 << 16 | 64 << 32 | 1 << 62};
        {" ".join(f"mov.f32 %{n}{m}, 0f3F800000;" for n in "ab" for m in range(4))}
        wgmma.fence.sync.aligned;
        {wgmma.format("%a0, %a1, %a2, %a3")}
        wgmma.commit_group.sync.aligned;
        {wgmma.format("%b0, %b1, %b2, %b3")}
        wgmma.commit_group.sync.aligned;
        {body}
        ret;
        """,
        ".param .u64 x",
        ".reg .b64 %x; .reg .b64 %o; .reg .b64 %da; .reg .b32 %i; .reg .b32 %s; .reg .b32 %t; .reg .b32 %base;"
        ".reg .f32 %a<4>; .reg .f32 %b<4>; .reg .b16 %h<2>; .shared .align 1024 .b8 tile[8192];",
    )
    memory = Memory()
    x = memory.allocate(512, "x")
    entry = Program.from_ptx(text).entries["k"]
    if kind is not None:
        finding = fault_of(kind, entry, 1, 128, [x], memory=memory)
        assert "wgmma" in finding.other_instruction or "wgmma" in finding.instruction
        return
    execute(entry, 1, 128, [x], memory=memory)
    assert set(memory.read(x, np.float32).tolist()) == {1.0}


WAIT = "wgmma.wait_group.sync.aligned {};"


def test_accumulators_are_promises_until_their_group_was_waited_for() -> None:
    flight = FindingKind.ACCUMULATOR_IN_FLIGHT
    pending(f"{WAIT.format(0)} st.global.f32 [%x], %b0;", kind=None)
    pending(f"{WAIT.format(1)} st.global.f32 [%x], %a0; {WAIT.format(0)}", kind=None)
    pending(f"{WAIT.format(1)} st.global.f32 [%x], %b0; {WAIT.format(0)}", kind=flight)
    pending(f"st.global.f32 [%x], %a3; {WAIT.format(0)}", kind=flight)
    pending(f"mov.f32 %b1, 0f00000000; {WAIT.format(0)} st.global.f32 [%x], %a0;", kind=flight)


def test_accumulators_that_are_split_before_the_wait_are_read_behind_it() -> None:
    """ptxas puts such a mov behind the wait; anything that computes with what it writes has to stand there."""
    split, joined = "mov.b32 {%h0, %h1}, %b0;", "mov.b32 %t, {%h0, %h1};"
    pending(f"{split} {WAIT.format(0)} {joined} st.global.b32 [%x], %t;", kind=None)
    pending(f"{split} {joined} {WAIT.format(0)} st.global.b32 [%x], %t;", kind=None)
    pending(f"{split} cvt.u32.u16 %t, %h0; {WAIT.format(0)}", kind=FindingKind.ACCUMULATOR_IN_FLIGHT)
    pending(f"{split} {joined} st.global.b32 [%x], %t; {WAIT.format(0)}", kind=FindingKind.ACCUMULATOR_IN_FLIGHT)
    pending(f"{split} {WAIT.format(1)} cvt.u32.u16 %t, %h1;", kind=FindingKind.ACCUMULATOR_IN_FLIGHT)


def test_a_warp_that_exits_must_have_waited() -> None:
    pending("", kind=FindingKind.EXITED_WITH_WORK)


def test_tiles_are_in_flight_until_their_group_was_waited_for() -> None:
    pending(f"{WAIT.format(0)} bar.sync 0; st.shared.b32 [%s], %t; st.global.f32 [%x], %b0;", kind=None)
    pending(f"bar.sync 0; st.shared.b32 [%s], %t; {WAIT.format(0)}", kind=FindingKind.IN_FLIGHT)
