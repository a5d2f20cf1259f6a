"""Races between lanes of one warp: what several instructions have read is overwritten, and who has waited for it."""

from __future__ import annotations

import numpy as np
import pytest
from async_hazards import cuda, launch, outer
from emulation import line_of

from workbench.emulator import FindingKind
from workbench.emulator import launch as launch_cuda

OVERWRITTEN = cuda("""
extern "C" __global__ void k(int* a, int* x) {
    __shared__ int s[64];
    int t = threadIdx.x, lower = (t & 16) ? 0xffff0000 : 0x0000ffff, u = 0;
    s[t] = a[t];
    __syncthreads();
    u += s[t];
#if defined(OTHER_WARP)
    u += s[t ^ 32];
    __syncthreads();
#endif
#if defined(FENCED)
    __threadfence_block();
#elif defined(MET_IN_PART)
    __syncwarp(lower);
#endif
    u += s[t ^ 18];               // reads
#ifdef RIGHT
    __syncwarp();
#elif defined(MET_IN_PART)
    __syncwarp(lower);
#endif
    s[t ^ 2] = u;                 // overwrites
    __syncwarp();
    x[t] = s[t];
}
""")


@pytest.mark.parametrize("bug", ["SOON", "FENCED", "MET_IN_PART", "OTHER_WARP"])
def test_what_several_instructions_have_read_is_overwritten(bug: str) -> None:
    for seed in range(3):
        for right in ([], ["FENCED"], ["OTHER_WARP"]):
            launch(OVERWRITTEN.replace("#ifdef RIGHT", "#if 1"), right[0] if right else "RIGHT", 1, 64, seed, None)
        finding = launch(OVERWRITTEN, bug, 1, 64, seed, FindingKind.RACE)
        assert outer(finding.location) == line_of(OVERWRITTEN, "// overwrites"), str(finding)
        if bug == "MET_IN_PART":
            assert outer(finding.other) == line_of(OVERWRITTEN, "// reads"), str(finding)
        assert finding.advice.startswith("__syncwarp() is missing between")


IN_GLOBAL = """
#ifdef RIGHT
#define MEET __syncwarp();
#else
#define MEET
#endif
extern "C" __global__ void k(float* a) {
    int t = threadIdx.x;
    float *row = a + t * 4, seen = 0;
#if defined(NEIGHBOUR)
    seen = a[t + (t % 32 < 31)];
#elif defined(SWAPPED)
    seen = a[t ^ 1];
#elif defined(PAIRS)
    seen = a[t / 2 * 2];
#elif defined(SOME)
    if (t % 32 < 9) seen = a[t / 32 * 32 + 1];
#elif defined(UPDATED)
    if (t % 32 < 3) atomicAdd(a + t / 32, 1.0f);
#elif defined(ROWS)
    for (int i = 0; i < 4; ++i) seen += row[i];
#elif defined(HEAD)
    seen = a[t / 32];
    a[512 + t] = seen;
#endif
    MEET
#if defined(HEAD) || defined(UPDATED)
    if (t % 32 == 7) a[t / 32] = 1;         // overwrites
#elif defined(SOME)
    if (t % 32 == 1) atomicAdd(a + t / 32 * 32 + 1, 1.0f);  // overwrites
    a[512 + t] = seen;
#elif defined(ROWS)
    a[t / 32 * 128 + t % 32] = seen;        // overwrites
#else
    a[t] = seen;                            // overwrites
#endif
}
"""


@pytest.mark.parametrize("pattern", ["NEIGHBOUR", "SWAPPED", "PAIRS", "SOME", "UPDATED", "ROWS", "HEAD"])
def test_so_it_is_in_global_memory(pattern: str) -> None:
    for right in (True, False):
        text = ("#define RIGHT\n" if right else "") + f"#define {pattern}\n" + IN_GLOBAL
        report = launch_cuda(text, "k", 1, 64, [np.arange(640, dtype=np.float32)])
        codes = [(f.code, f.advice.partition(" is missing")[0]) for f in report.findings]
        assert codes == ([] if right else [("race", "__syncwarp()")]), str(report)
        assert all("// overwrites" in f.source_line for f in report.findings)
