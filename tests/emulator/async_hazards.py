"""Launches of kernels with one hazard of Hopper's asynchronous machinery planted, and what is found of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from emulation import compile_cuda, fault_of, line_of
from sample_kernels import on_device

from workbench.emulator import Finding, FindingKind, Memory, execute
from workbench.emulator.ptx import SourceLocation

SEEDS = range(10)

HEAD = on_device("""
#define FENCE_PROXY asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define FENCE asm volatile("fence.acq_rel.cta;" ::: "memory")
#define FENCE_INIT asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
#define COMMIT asm volatile("cp.async.bulk.commit_group;" ::: "memory")
#define WAIT_STORES asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")
#define ON(b) :: "r"(address(b)) : "memory"
#define INVALIDATE(b) asm volatile("mbarrier.inval.shared.b64 [%0];" ON(b))
#define ARRIVE(b) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(address(b)) : "memory")
#define LOAD(to, from, bytes, b) asm volatile( \\
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \\
    :: "r"(address(to)), "l"(from), "r"(bytes), "r"(address(b)) : "memory")
#define STORE(to, from, bytes) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" \\
    :: "l"(to), "r"(address(from)), "r"(bytes) : "memory")
#define CLUSTER_ARRIVE asm volatile("barrier.cluster.arrive.aligned;" ::: "memory")
#define CLUSTER_RELAXED asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory")
#define CLUSTER_WAIT asm volatile("barrier.cluster.wait.aligned;" ::: "memory")
__device__ __forceinline__ unsigned rank() {
    unsigned r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r;
}
__device__ __forceinline__ unsigned at(const void* p, unsigned r) {
    unsigned a;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(address(p)), "r"(r));
    return a;
}
""")


def cuda(text: str) -> str:
    """CUDA C++ behind what kernels of hazards are written with."""
    return HEAD + text


def launch(source: str, define: str, grid: int, block: int, seed: int, kind: FindingKind | None) -> Finding | None:
    """Runs ``k(a, x)`` with 1024 ints each, a counting up; the finding, which must be of the kind."""
    memory = Memory()
    a, x = memory.upload(np.arange(1024, dtype=np.int32), "a"), memory.upload(np.zeros(1024, np.int32), "x")
    args: Any = compile_cuda(source, define).entries["k"], grid, block, [a, x]
    if kind is None:
        execute(*args, memory=memory, seed=seed)
        return None
    finding = fault_of(kind, *args, memory=memory, seed=seed)
    assert isinstance(finding, Finding)
    return finding


def outer(location: SourceLocation | None) -> int:
    """The line of the kernel itself."""
    assert location is not None
    return location.inlined_at[-1].line if location.inlined_at else location.line


def check(
    source: str, bug: str, kind: FindingKind, here: str, there: str = "", words: str = "", *, grid: int = 1, block: int
) -> None:
    """The bug is found under every seed, at the line marked ``here`` with its cause at ``there``."""
    launch(source, "RIGHT", grid, block, 0, None)
    for seed in SEEDS:
        finding = launch(source, bug, grid, block, seed, kind)
        assert outer(finding.location) == line_of(source, f"// {here}"), str(finding)
        if there:
            assert outer(finding.other) == line_of(source, f"// {there}"), str(finding)
        assert words in str(finding), str(finding)
        assert finding.advice
        assert f"seed {seed}" in str(finding)
