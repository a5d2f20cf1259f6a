"""One thread hands a pipeline stage back for its warpgroup: after the wait that is fine, before it a hazard."""

from __future__ import annotations

import numpy as np
import pytest
from async_hazards import SEEDS, outer
from emulation import compile_cuda, line_of
from test_warpgroup_hazards import PRODUCT

from workbench.emulator import FindingKind, KernelFault, Memory, TensorMap, execute

RELEASE = (
    PRODUCT.partition('extern "C"')[0]
    + """
#define ARRIVE(bar) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(address(bar)) : "memory")
extern "C" __global__ void __launch_bounds__(160) k(const __grid_constant__ Map map, float* x) {
    __shared__ __align__(1024) unsigned char tile[8192];
    __shared__ __align__(8) u64 full, empty;
    int t = threadIdx.x;
    if (t == 0) {
        init(&full, 1);
        init(&empty, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (t == 128) {
        for (int i = 0; i < 4; ++i) {
            if (i > 0) wait(&empty, (i - 1) & 1);
            expect(&full, 8192);
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                "[%0], [%1, {0, %3}], [%2];"  // copy
                :: "r"(address(tile)), "l"(&map), "r"(address(&full)), "r"(i % 2 * 64) : "memory");
        }
    } else if (t < 128) {
        float d[4] = {1, 1, 1, 1};
        for (int i = 0; i < 4; ++i) {
            wait(&full, i & 1);
            FENCE;
            MULTIPLY(d, tile, tile);  // multiply
            COMMIT;
#ifdef BUG_EARLY
            if (t == RELEASER) ARRIVE(&empty);
#endif
            WAIT;
#ifndef BUG_EARLY
            if (t == RELEASER) ARRIVE(&empty);
#endif
        }
        x[t] = d[0];
    }
}
"""
)


def release(*defines: str, seed: int) -> list[float]:
    """Four turns of a ring of one stage, of tiles of ones and of twos."""
    memory = Memory()
    tile = np.repeat(np.array([0x3F80, 0x4000], np.uint16), 64)[:, None].repeat(64, axis=1)
    tensor_map = TensorMap(memory.upload(np.ascontiguousarray(tile), "a"), 2, (64, 128), (128,), (64, 64), swizzle=128)
    x = memory.allocate(4 * 128, "x")
    entry = compile_cuda(RELEASE, *defines).entries["k"]
    found = execute(entry, 1, 160, [tensor_map, x], memory=memory, seed=seed, strict=True).findings
    assert not found
    return sorted(set(memory.read(x, np.float32).tolist()))


@pytest.mark.parametrize("releaser", [0, 40, 127])
def test_one_thread_of_a_warpgroup_releases_what_all_four_warps_have_read(releaser: int) -> None:
    for seed in range(12):
        assert release(f"RELEASER={releaser}", seed=seed) == [1 + 2 * 16 * (1 + 4)]


def test_a_release_before_the_wait_is_found() -> None:
    for seed in SEEDS:
        with pytest.raises(KernelFault) as caught:
            release("RELEASER=0", "BUG_EARLY", seed=seed)
        finding = caught.value.finding
        assert finding.kind in (FindingKind.RACE, FindingKind.IN_FLIGHT), str(finding)
        lines = {outer(finding.location), outer(finding.other)}
        assert line_of(RELEASE, "// multiply") in lines, str(finding)
