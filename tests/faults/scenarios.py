"""Kernels of stages and for single ideas with their problems, and changes to a launch, for faults to be planted in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from planting import Scenario, of_kernel, of_stage

from workbench.model.dtypes import BF16, FP32
from workbench.model.launch import Launch, Plan
from workbench.model.tensor_map import TensorMap

# ------------------------------------------------------------------------------------- kernels and their problems


SCENARIOS: list[Callable[[], Scenario]] = []


def scenario(make: Callable[[], Scenario]) -> Callable[[], Scenario]:
    """Makes it once, and lists it."""
    SCENARIOS.append(cache(make))
    return SCENARIOS[-1]


@scenario
def naive() -> Scenario:
    return of_stage("gemm:naive", "m=20,n=36,k=9,dtype=fp32,out=fp32,layout=nn")


@scenario
def warp_parallel() -> Scenario:
    return of_stage("gemm:warp_parallel", "m=20,n=36,k=40,dtype=fp32,out=fp32,layout=nn")


@scenario
def vectorized() -> Scenario:
    return of_stage("gemm:vectorized", "m=65,n=132,k=40,dtype=fp32,out=fp32,layout=nn")


@scenario
def cp_async() -> Scenario:
    """Five slices go through a ring of three."""
    return of_stage("gemm:cp_async", "m=64,n=64,k=320,dtype=bf16,out=bf16,layout=nt", BLOCK_M=64, BLOCK_N=64)


@scenario
def tma_pipeline() -> Scenario:
    """Five slices go through a ring of two."""
    problem = "m=128,n=128,k=320,dtype=bf16,out=bf16,layout=nt"
    return of_stage("gemm:tma_pipeline", problem, BLOCK_N=128, STAGES=2)


@scenario
def tma_store() -> Scenario:
    """Each warp stores four boxes of C from two buffers."""
    return of_stage("gemm:tma_store", "m=128,n=128,k=64,dtype=bf16,out=fp32,layout=nt", BLOCK_N=128)


@scenario
def split_k() -> Scenario:
    return of_stage("gemm:split_k", "m=128,n=128,k=128,dtype=bf16,out=fp32,layout=nt", BLOCK_N=128)


@scenario
def stream_k() -> Scenario:
    """Two pairs of blocks share out the third pair of tiles."""
    scenario = of_stage("gemm:stream_k", "m=136,n=768,k=328,dtype=bf16,out=bf16,layout=nt")
    (whole,) = scenario.plan.launches
    four = replace(whole, grid=(4, 1, 1), persistent=False)
    return replace(scenario, plan=Plan((four,), scenario.plan.scratch))


@scenario
def fp32_pipeline() -> Scenario:
    """Four slices go through a ring of three, and one after the other through the memory in which they are turned."""
    return of_stage("gemm:fp32_pipeline", "m=128,n=256,k=128,dtype=fp32,out=fp32,layout=nn")


@scenario
def k_split() -> Scenario:
    m, n, k = 20, 24, 40
    return of_kernel(
        "k_split",
        grid=(2, 2, 1),
        block=128,
        inputs={"A": (FP32, (m, k)), "B": (FP32, (k, n))},
        outputs={"C": (FP32, (m, n))},
        scalars=(m, n, k),
        reference=lambda x: {"C": x["A"] @ x["B"]},
        defines={"WARPS": 4, "TILE": 16, "DEPTH": 32},
    )


@scenario
def handoff() -> Scenario:
    return of_kernel(
        "handoff",
        block=128,
        inputs={"x": (FP32, (8, 64))},
        outputs={"sums": (FP32, (64,))},
        scalars=(8,),
        reference=lambda a: {"sums": a["x"].sum(axis=0)},
    )


@scenario
def register_buffer() -> Scenario:
    return of_kernel(
        "register_buffer",
        block=128,
        inputs={"x": (FP32, (6, 128))},
        outputs={"products": (FP32, (128,))},
        scalars=(6,),
        reference=lambda a: {"products": (a["x"] * a["x"][:, ::-1]).sum(axis=0)},
        defines={"THREADS": 128},
    )


@scenario
def stored_operands() -> Scenario:
    return of_kernel(
        "stored_operands",
        block=128,
        inputs={"A": (BF16, (64, 128)), "B": (BF16, (128, 128))},
        outputs={"C": (FP32, (64, 128))},
        scalars=(2,),
        reference=lambda a: {"C": a["A"] @ a["B"].T},
    )


@scenario
def cluster_push() -> Scenario:
    return of_kernel(
        "cluster_push",
        grid=(2, 1, 1),
        block=64,
        inputs={"x": (FP32, (2, 256))},
        outputs={"y": (FP32, (2, 256))},
        reference=lambda a: {"y": a["x"][::-1]},
        defines={"THREADS": 64},
        cluster=2,
    )


# ------------------------------------------------------------------------------------------ changes to a launch


def half_the_threads(launch: Launch) -> Launch:
    return replace(launch, block=(launch.block[0] // 2, 1, 1))


def no_block_for_the_tail(launch: Launch) -> Launch:
    return replace(launch, grid=(launch.grid[0] - 1, *launch.grid[1:]))


def changed_map(launch: Launch, box: tuple[int, int] | None = None, swizzle: int = 128) -> Launch:
    """The first tensor map, that of A, with another box or swizzle."""
    first, *rest = launch.args
    assert isinstance(first, TensorMap)
    return replace(launch, args=(replace(first, box=box or first.box, swizzle=swizzle), *rest))


def short_box(launch: Launch) -> Launch:
    return changed_map(launch, box=(64, 64))


def no_swizzle(launch: Launch) -> Launch:
    return changed_map(launch, swizzle=0)
