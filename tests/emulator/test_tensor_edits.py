"""Tensor maps that a kernel copies, edits or makes itself."""

import numpy as np
import pytest
from emulation import compile_cuda

from workbench.emulator import Finding, FindingKind, KernelFault, Memory, TensorMap, execute

SOURCE = r"""
struct alignas(128) Map { int words[32]; };
__device__ unsigned shared_address(const void* p) { return __cvta_generic_to_shared(p); }
#define FIELD(name, bits, reg, value) \
    asm volatile("tensormap.replace.tile." name ".shared::cta.b1024." bits " [%0], %1;" \
                 :: "r"(shared_address(&edited)), reg(value) : "memory")
#define DIMENSION(name, d, bits, reg, value) \
    asm volatile("tensormap.replace.tile." name ".shared::cta.b1024." bits " [%0], " #d ", %1;" \
                 :: "r"(shared_address(&edited)), reg(value) : "memory")

extern "C" __global__ void k(const __grid_constant__ Map given, Map* made, const float* b, float* out) {
    __shared__ alignas(128) float tile[8 * 16];
    __shared__ Map edited;
    __shared__ alignas(8) unsigned long long full;
    const int lane = threadIdx.x;
#ifdef FROM_NOTHING
    edited.words[lane] = 0;
#else
    edited.words[lane] = given.words[lane];
#endif
    if (lane == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;"
                     :: "r"(shared_address(&full)) : "memory");
    }
    __syncwarp();
    if (lane == 0) {
        FIELD("global_address", "b64", "l", b);
        DIMENSION("global_dim", 0, "b32", "r", 40);
        DIMENSION("global_dim", 1, "b32", "r", 12);
        DIMENSION("global_stride", 0, "b64", "l", 160ull);
#ifdef FROM_NOTHING
        FIELD("rank", "b32", "n", 1);
        DIMENSION("box_dim", 0, "b32", "r", 16);
        DIMENSION("box_dim", 1, "b32", "r", 8);
        DIMENSION("element_stride", 0, "b32", "r", 1);
        DIMENSION("element_stride", 1, "b32", "r", 1);
        FIELD("elemtype", "b32", "n", 7);
        FIELD("interleave_layout", "b32", "n", 0);
        FIELD("swizzle_mode", "b32", "n", 0);
        FIELD("fill_mode", "b32", "n", 1);
#endif
    }
    __syncwarp();
#ifdef BUG_NO_FENCE
    made->words[lane] = edited.words[lane];  // BUG_NO_FENCE
    __threadfence();
    __syncwarp();
#else
#define ACQUIRE asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(made) : "memory")
#ifdef BUG_EARLY
    ACQUIRE;
#endif
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
                 "[%0], [%1], 128;"
                 :: "l"(made), "r"(shared_address(&edited)) : "memory");
#if !defined(BUG_EARLY) && !defined(BUG_NO_ACQUIRE)
    ACQUIRE;
#endif
#endif
#ifdef BUG_EDIT_IN_PLACE
    __syncwarp();
    if (lane == 0)
        asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 0, 24;"  // BUG_EDIT_IN_PLACE
                     :: "l"(made) : "memory");
#endif
    if (lane == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;"
                     :: "r"(shared_address(&full)) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];"
                     :: "r"(shared_address(tile)), "l"(made), "r"(32), "r"(6), "r"(shared_address(&full)) : "memory");
    }
#ifdef EARLY
    if (lane == 7) made->words[3] = 5;  // EARLY
#endif
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }"
                 :: "r"(shared_address(&full)) : "memory");
#ifdef LATE
    if (lane == 7) made->words[3] = 5;
#endif
    for (int i = lane; i < 8 * 16; i += 32) out[i] = tile[i];
}
"""


def run(*defines: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Finding | None]:
    memory = Memory()
    a, b = np.zeros((8, 16), np.float32), np.arange(480, dtype=np.float32).reshape(12, 40) + 1
    given = TensorMap(memory.upload(a, "a"), 4, (16, 8), (64,), (16, 8), nan_fill=True, element_type="float32")
    made, out = memory.allocate(128, "made", align=128), memory.allocate(512, "out", element_size=4)
    arguments = [given, made, memory.upload(b, "b"), out]
    wanted = np.full((8, 16), np.array([0x7FF7], np.uint16).view(np.float16)[0], np.float32)
    wanted[:6, :8] = b[6:, 32:]
    found = None
    try:
        execute(compile_cuda(SOURCE, *defines).entries["k"], 1, 32, arguments, memory=memory, seed=seed)
    except KernelFault as fault:
        found = fault.finding
    return memory.read(out, np.float32, (8, 16)), wanted, found


@pytest.mark.parametrize("defines", [(), ("FROM_NOTHING",)])
def test_a_copy_uses_the_map_that_the_kernel_has_edited(defines: tuple[str, ...]) -> None:
    found, wanted, finding = run(*defines)
    assert finding is None, str(finding)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.array_equal(found[:6, :8], wanted[:6, :8])


@pytest.mark.parametrize("bug", ["BUG_NO_FENCE", "BUG_EDIT_IN_PLACE"])
def test_an_edit_without_its_fence_is_named(bug: str) -> None:
    _, _, finding = run(bug)
    assert finding is not None and finding.kind is FindingKind.PROXY_FENCE
    line = next(n for n, text in enumerate(SOURCE.splitlines(), 1) if f"// {bug}" in text)
    assert f":{line}" in str(finding)
    if bug == "BUG_EDIT_IN_PLACE":
        assert "fence.proxy.tensormap::generic.release" in finding.advice


@pytest.mark.parametrize("bug", ["BUG_NO_ACQUIRE", "BUG_EARLY"])
def test_a_map_that_the_block_has_not_acquired_since_its_edit_is_named(bug: str) -> None:
    _, _, finding = run(bug)
    assert finding is not None and finding.kind is FindingKind.PROXY_FENCE
    assert "cp.async.bulk.tensor" in finding.instruction
    assert finding.other_instruction.startswith("tensormap.cp_fenceproxy")
    assert "no thread of the block has acquired the tensor map since" in finding.message
    assert "fence.proxy.tensormap::generic.acquire with its address" in finding.advice


@pytest.mark.parametrize("seed", range(3))
def test_a_map_may_be_overwritten_once_the_copy_by_it_has_landed_and_not_before(seed: int) -> None:
    assert run("LATE", seed=seed)[2] is None
    _, _, finding = run("EARLY", seed=seed)
    assert finding is not None and finding.kind is FindingKind.RACE
    line = next(n for n, text in enumerate(SOURCE.splitlines(), 1) if "// EARLY" in text)
    assert finding.location is not None and finding.location.line == line
    assert finding.other_instruction.startswith("cp.async.bulk.tensor")


def test_bytes_that_are_no_tensor_map_are_refused() -> None:
    source = SOURCE.replace('FIELD("rank", "b32", "n", 1);', "")
    memory = Memory()
    given = TensorMap(memory.allocate(512, "a"), 4, (16, 8), (64,), (16, 8))
    made, out = memory.allocate(128, "made", align=128), memory.allocate(512, "out", element_size=4)
    with pytest.raises(KernelFault, match="tensor map") as error:
        entry = compile_cuda(source, "FROM_NOTHING").entries["k"]
        execute(entry, 1, 32, [given, made, memory.allocate(4, "b"), out], memory=memory)
    assert error.value.finding.kind is FindingKind.DESCRIPTOR
