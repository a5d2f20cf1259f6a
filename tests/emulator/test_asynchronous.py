"""Groups of cp.async, and the phases of mbarriers; ``copy_forms.py`` has each instruction by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from asynchronous import REGISTERS
from emulation import Array, compile_cuda, fault_of, module
from sample_kernels import on_device

from workbench.emulator import FindingKind, Memory, Program, execute

# ------------------------------------------------------------------------------------------------------------ cp.async


GROUPS = on_device("""
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory")
extern "C" __global__ void k(const int* a, int* x) {
    __shared__ int tile[4];
    copy4(tile, a); copy4(tile + 1, a + 1); COMMIT;
    copy4(tile + 2, a + 2); COMMIT;
    copy4(tile + 3, a + 3);
#ifdef ALL
    asm volatile("cp.async.wait_all;" ::: "memory");
    x[0] = tile[0]; x[1] = tile[1]; x[2] = tile[2]; x[3] = tile[3];
#else
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    x[0] = tile[0]; x[1] = tile[1];
#ifdef EARLY
    x[2] = tile[2];
#endif
    COMMIT;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    x[2] = tile[2]; x[3] = tile[3];
#endif
}
""")


@pytest.mark.parametrize("define", ["ALL", "SOME"])
def test_waiting_for_groups(define: str) -> None:
    memory = Memory()
    a, x = memory.upload(np.arange(4, dtype=np.int32) + 5, "a"), memory.allocate(16, "x")
    execute(compile_cuda(GROUPS, define).entries["k"], 1, 1, [a, x], memory=memory)
    assert memory.read(x, np.int32).tolist() == [5, 6, 7, 8]


def test_waiting_for_one_group_too_few() -> None:
    memory = Memory()
    a, x = memory.upload(np.arange(4, dtype=np.int32), "a"), memory.allocate(16, "x")
    finding = fault_of(FindingKind.IN_FLIGHT, compile_cuda(GROUPS, "EARLY").entries["k"], 1, 1, [a, x], memory=memory)
    assert finding.array == "tile"
    assert "`tile` + 8 bytes" in str(finding)


# ----------------------------------------------------------------------------------------------------------- mbarriers


def mbarrier(body: str, words: int = 8, **options: Any) -> Array:
    """One thread; %r0, %r1, ... are stored in the end. ``bar`` is an mbarrier in shared memory."""
    zeros = " ".join(f"mov.u32 %r{n}, 0;" for n in range(words))
    stores = " ".join(f"st.global.u32 [%x+{4 * n}], %r{n};" for n in range(words))
    text = module(
        f"ld.param.u64 %x, [x]; {zeros} {body} {stores} ret;",
        ".param .u64 x",
        f"{REGISTERS} .reg .b32 %r<{words}>; .reg .b64 %old; .shared .align 8 .b64 bar; .shared .align 8 .b64 other;",
    )
    memory = Memory()
    x = memory.allocate(4 * words, "x")
    execute(Program.from_ptx(text).entries["k"], 1, 1, [x], memory=memory, **options)
    return memory.read(x, np.uint32)


def ready(number: int, test: str) -> str:
    return f"mbarrier.test_wait{test}; selp.u32 %r{number}, 1, 0, %done;"


def test_a_phase_ends_with_its_last_arrival() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 3;
        mbarrier.arrive.shared.b64 %old, [bar];
        {ready(0, ".shared.b64 %done, [bar], %old")}
        mbarrier.arrive.shared.b64 %state, [bar], 1;
        {ready(1, ".parity.shared.b64 %done, [bar], 0")}
        {ready(2, ".parity.shared.b64 %done, [bar], 1")}
        mbarrier.arrive.shared::cta.b64 _, [bar];
        {ready(3, ".shared.b64 %done, [bar], %old")}
        {ready(4, ".parity.shared.b64 %done, [bar], 0")}
        {ready(5, ".parity.shared.b64 %done, [bar], 1")}
        mbarrier.arrive.shared.b64 %state, [bar], 3;
        {ready(6, ".parity.shared.b64 %done, [bar], 1")}
        mbarrier.pending_count.b64 %r7, %old;
        """
    )
    assert found[:7].tolist() == [0, 0, 1, 1, 1, 0, 1]
    assert found[7] == 3


def test_a_parity_may_be_a_bit_that_was_widened_with_its_sign() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 1;
        {ready(0, ".parity.shared.b64 %done, [bar], 0xffffffff")}
        mbarrier.arrive.shared.b64 %state, [bar];
        {ready(1, ".parity.shared.b64 %done, [bar], 0xffffffff")}
        mbarrier.arrive.shared.b64 %state, [bar];
        {ready(2, ".parity.shared.b64 %done, [bar], 0xffffffff")}
        """
    )
    assert found[:3].tolist() == [1, 0, 1]


def test_bytes_keep_a_phase_open() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 1;
        mbarrier.arrive.expect_tx.shared.b64 %old, [bar], 48;
        {ready(0, ".shared.b64 %done, [bar], %old")}
        mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [bar], 32;
        {ready(1, ".shared.b64 %done, [bar], %old")}
        mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [bar], 16;
        {ready(2, ".shared.b64 %done, [bar], %old")}
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16;
        mbarrier.arrive.shared.b64 %old, [bar];
        {ready(3, ".shared.b64 %done, [bar], %old")}
        mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [bar], 16;
        {ready(4, ".shared.b64 %done, [bar], %old")}
        """
    )
    assert found[:5].tolist() == [0, 0, 1, 0, 1]


def test_a_dropped_participant_is_not_expected_again() -> None:
    found = mbarrier(
        f"""
        mbarrier.init.shared.b64 [bar], 2;
        mbarrier.arrive_drop.shared.b64 %old, [bar];
        mbarrier.arrive.shared.b64 %state, [bar];
        {ready(0, ".shared.b64 %done, [bar], %state")}
        mbarrier.arrive.shared.b64 %state, [bar];
        {ready(1, ".shared.b64 %done, [bar], %state")}
        """
    )
    assert found[:2].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("mbarrier.arrive.shared.b64 %old, [bar];", "mbarrier `bar` is not initialised"),
        ("mbarrier.init.shared.b64 [bar], 0;", "initialised with 0 arrivals"),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %old, [bar], 3;",
            "more arrivals at mbarrier `bar` than",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar];"
            "mbarrier.arrive.shared.b64 %old, [bar];",
            "not init",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %old, [bar];"
            "mbarrier.init.shared.b64 [bar], 2;",
            "initialises mbarrier `bar` again, initialised at",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.test_wait.parity.shared.b64 %done, [bar], 2;",
            "waits for parity 2 of mbarrier `bar`",
        ),
    ],
)
def test_misused_mbarriers(body: str, words: str) -> None:
    text = module(f"{body} ret;", "", f"{REGISTERS} .reg .b64 %old; .shared .align 8 .b64 bar;")
    finding = fault_of(FindingKind.MBARRIER_MISUSE, Program.from_ptx(text).entries["k"], 1, 1, [], memory=Memory())
    assert words in str(finding)


def test_a_block_waits_on_its_own_barriers_only() -> None:
    body = """
        mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %s, bar; mov.u32 %t, %cluster_ctarank; xor.b32 %t, %t, 1; mapa.shared::cluster.u32 %s, %s, %t;
        mbarrier.test_wait.parity.shared.b64 %done, [%s], 0; ret;
    """
    text = module(body, "", f"{REGISTERS} .shared .align 8 .b64 bar;")
    entry = Program.from_ptx(text).entries["k"]
    finding = fault_of(FindingKind.MBARRIER_MISUSE, entry, 2, 1, [], memory=Memory(), cluster=2)
    assert "of another block" in str(finding)
