"""Faults that really happen in hand-written kernels, each planted in a real one: what went wrong in hand-written
matrix products (1 to 10) and in asynchronous code for Hopper (11 to 23).

A new fault is one more entry; `test_catalogue.py` and `measure.py` take all of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from planting import Change, PlantedFault, Scenario, of_kernel, of_stage

from workbench.model.dtypes import BF16, FP32
from workbench.model.launch import Launch, Plan, TensorMap
from workbench.model.results import Verdict

# ------------------------------------------------------------------------------------- kernels and their problems


@cache
def naive() -> Scenario:
    return of_stage("gemm:naive", "m=20,n=36,k=9,dtype=fp32,out=fp32,layout=nn")


@cache
def warp_parallel() -> Scenario:
    return of_stage("gemm:warp_parallel", "m=20,n=36,k=40,dtype=fp32,out=fp32,layout=nn")


@cache
def smem_tiling() -> Scenario:
    return of_stage("gemm:smem_tiling", "m=65,n=132,k=40,dtype=fp32,out=fp32,layout=nn")


@cache
def tensor_core() -> Scenario:
    """Five slices go through a ring of three."""
    return of_stage("gemm:tensor_core", "m=64,n=64,k=320,dtype=bf16,out=bf16,layout=nt", BLOCK_M=64, BLOCK_N=64)


@cache
def tma_pipeline() -> Scenario:
    """Five slices go through a ring of two."""
    problem = "m=128,n=128,k=320,dtype=bf16,out=bf16,layout=nt"
    return of_stage("gemm:tma_pipeline", problem, BLOCK_N=128, STAGES=2)


@cache
def persistent() -> Scenario:
    """Each warp stores four boxes of C from two buffers."""
    return of_stage("gemm:persistent", "m=128,n=128,k=64,dtype=bf16,out=fp32,layout=nt", BLOCK_N=128)


@cache
def split_k() -> Scenario:
    return of_stage("gemm:split_k", "m=128,n=128,k=128,dtype=bf16,out=fp32,layout=nt", BLOCK_N=128)


@cache
def stream_k() -> Scenario:
    """Two pairs of blocks share out the third pair of tiles."""
    scenario = of_stage("gemm:stream_k", "m=136,n=768,k=328,dtype=bf16,out=bf16,layout=nt")
    (whole,) = scenario.plan.launches
    four = replace(whole, grid=(4, 1, 1), persistent=False)
    return replace(scenario, plan=Plan((four,), scenario.plan.scratch))


@cache
def fp32_pipeline() -> Scenario:
    """Four slices go through a ring of three, and one after the other through the memory in which they are turned."""
    return of_stage("gemm:fp32_pipeline", "m=128,n=256,k=128,dtype=fp32,out=fp32,layout=nn")


@cache
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


@cache
def handoff() -> Scenario:
    return of_kernel(
        "handoff",
        grid=(1, 1, 1),
        block=128,
        inputs={"x": (FP32, (8, 64))},
        outputs={"sums": (FP32, (64,))},
        scalars=(8,),
        reference=lambda a: {"sums": a["x"].sum(axis=0)},
        defines={},
    )


@cache
def register_buffer() -> Scenario:
    return of_kernel(
        "register_buffer",
        grid=(1, 1, 1),
        block=128,
        inputs={"x": (FP32, (6, 128))},
        outputs={"products": (FP32, (128,))},
        scalars=(6,),
        reference=lambda a: {"products": (a["x"] * a["x"][:, ::-1]).sum(axis=0)},
        defines={"THREADS": 128},
    )


@cache
def stored_operands() -> Scenario:
    return of_kernel(
        "stored_operands",
        grid=(1, 1, 1),
        block=128,
        inputs={"A": (BF16, (64, 128)), "B": (BF16, (128, 128))},
        outputs={"C": (FP32, (64, 128))},
        scalars=(2,),
        reference=lambda a: {"C": a["A"] @ a["B"].T},
        defines={},
    )


@cache
def cluster_push() -> Scenario:
    return of_kernel(
        "cluster_push",
        grid=(2, 1, 1),
        block=64,
        inputs={"x": (FP32, (2, 256))},
        outputs={"y": (FP32, (2, 256))},
        scalars=(),
        reference=lambda a: {"y": a["x"][::-1]},
        defines={"THREADS": 64},
        cluster=2,
    )


SCENARIOS = (
    naive,
    warp_parallel,
    smem_tiling,
    tensor_core,
    tma_pipeline,
    persistent,
    split_k,
    stream_k,
    fp32_pipeline,
    k_split,
    handoff,
    register_buffer,
    stored_operands,
    cluster_push,
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


# ---------------------------------------------------------------------------- lines that several findings name

TILE_READS = ("load_vector<QUAD>(&a_tile", "load_vector<QUAD>(&b_tile")
TILE_WRITES = (
    "a_copy.store_transposed(a_tile)",
    "b_copy.store(b_tile)",
    "store_vector(&tile[row(i)]",
    "tile[column(i) + j]",
)
RING_COPIES = ("tma_load(shared.a[s], A", "tma_load(shared.b[s], B, shared.full[s], tile.n, k)")
RING_READS = ("wgmma<!TRANS_B>(sum", "swizzled_operand(b + k * B_STEP")  # one statement
RING_WAIT = "mbarrier_wait(shared.full[s]"
SLICE_COPIES = (
    "i < ROWS; i += ROW_STEP, source += step) cp_async_16(",
    "cp_async_16(target + i * COLUMNS, source);\n        else",
)
SLICE_READS = ("ldmatrix_x4(a[i], stage.a.chunk(", "ldmatrix_x4(b[j], stage.b.chunk(n")

# ---------------------------------------------------------------------------------------------------- the faults

HAND_WRITTEN = (
    PlantedFault(
        1,
        "zeros",
        "a rewrite whose accumulation never contributes",
        smem_tiling,
        (Change("sum[i][j] += a[", "a[i / QUAD].x[0] += 0 * a["),),
        (Verdict.MISMATCH,),
    ),
    PlantedFault(
        1,
        "zeros-mma",
        "tensor cores that add to a copy of the accumulators",
        tensor_core,
        (
            Change(
                "mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], IN());",
                "{ float copy[4] = {}; mma(copy, a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], IN()); }",
            ),
        ),
        (Verdict.MISMATCH,),
    ),
    PlantedFault(
        2,
        "barrier-in-loop",
        "a barrier in a loop that not every warp enters",
        k_split,
        (Change("k0 < K; k0 += DEPTH", "k0 + warp * SHARE < K; k0 += DEPTH"),),
        (Verdict.DEADLOCK,),
        (("block_barrier();  // the slice has come", "block_barrier();  // everyone is done with it"),),
    ),
    PlantedFault(
        2,
        "phase-never-comes",
        "a wait for a phase that never comes",
        tma_pipeline,
        (Change("mbarrier_init(shared.full[s], 1);", "mbarrier_init(shared.full[s], 2);"),),
        (Verdict.DEADLOCK,),
        (RING_WAIT,),
    ),
    PlantedFault(
        3,
        "never-combined",
        "k shared out over warps, their sums never combined",
        k_split,
        (Change("w < WARPS; ++w", "w < 1; ++w"),),
        (Verdict.MISMATCH,),
    ),
    PlantedFault(
        3,
        "wrong-share",
        "a wrong share of k for each warp: only zeros are multiplied",
        k_split,
        (
            Change("float sum[OWN] = {};", "float sum[OWN] = {};\n  const int first = K + warp * K;"),
            Change("for (int k0 = 0; k0 < K", "for (int k0 = first; k0 < first + K"),
        ),
        (Verdict.MISMATCH,),
    ),
    PlantedFault(
        3,
        "combined-too-early",
        "k shared out over warps, combined without a barrier",
        k_split,
        (Change("  __syncthreads();\n  for (int i", "  for (int i"),),
        (Verdict.RACE, Verdict.UNINITIALISED),
        ("total += parts[w][i]",),
    ),
    PlantedFault(
        4,
        "swapped-bound",
        "rows and columns swapped in a bound: right where M = N",
        naive,
        (Change("m >= M || n >= N", "m >= N || n >= M"),),
        (Verdict.OUT_OF_BOUNDS,),
        ("sum += to_float(a[k])",),
    ),
    PlantedFault(
        4,
        "swapped-index",
        "rows and columns swapped in an index",
        naive,
        (Change("static_cast<long long>(m) * ldc + n]", "static_cast<long long>(n) * ldc + m]"),),
        (Verdict.OUT_OF_BOUNDS, Verdict.RACE),
        ("static_cast<long long>(n) * ldc + m]",),
    ),
    PlantedFault(
        4,
        "tail-unguarded",
        "right only where sizes divide by the tile: the tail is read past the end",
        smem_tiling,
        (Change("r < rows ? columns - c : 0", "QUAD"),),
        (Verdict.OUT_OF_BOUNDS,),
        ("quads[i] = load_tail",),
    ),
    PlantedFault(
        4,
        "tail-not-computed",
        "right only where sizes divide by the tile: no block for the tail",
        smem_tiling,
        (),
        (Verdict.MISMATCH,),
        relaunch=no_block_for_the_tail,
    ),
    PlantedFault(
        5,
        "no-barrier-after-reads",
        "the next load overwrites a tile that other warps still read",
        smem_tiling,
        (Change("    __syncthreads();  // everyone has read the slice before\n", ""),),
        (Verdict.RACE,),
        (TILE_READS, TILE_WRITES),
    ),
    PlantedFault(
        5,
        "no-barrier-before-reads",
        "a tile is read before all of it has come",
        smem_tiling,
        (Change("    __syncthreads();\n\n#pragma unroll\n", "\n#pragma unroll\n"),),
        (Verdict.RACE, Verdict.UNINITIALISED),
        (TILE_READS,),
    ),
    PlantedFault(
        6,
        "no-fence",
        "data handed over by a volatile flag without fences",
        handoff,
        (
            Change("      __threadfence_block();  // the element before the flag\n", ""),
            Change("      __threadfence_block();  // the flag before the element\n", ""),
        ),
        (Verdict.RACE,),
        ("row[c] = x[r * WIDTH + c]", "sum += row[c]"),
    ),
    PlantedFault(
        6,
        "one-lane-waits",
        "one lane polls, the others of its warp go on",
        handoff,
        (Change("while (*ready <= r) {", "if (c % 32 == 0) while (*ready <= r) {"),),
        (Verdict.RACE, Verdict.UNINITIALISED),
        ("sum += row[c]",),
    ),
    PlantedFault(
        6,
        "flag-reset",
        "a flag reset while the other warp still polls it",
        handoff,
        (Change("      sum += row[c];\n", "      sum += row[c];\n      *ready = 0;\n"),),
        (Verdict.LIVELOCK, Verdict.DEADLOCK, Verdict.RACE),
        ("while (*ready <= r)",),
    ),
    PlantedFault(
        6,
        "syncthreads-in-branch",
        "__syncthreads() in the branch of one group of warps",
        handoff,
        (Change("side_barrier<2>();", "__syncthreads();"),),
        (Verdict.DEADLOCK, Verdict.LIVELOCK),
        ("__syncthreads();\n      if (c == 0) *taken",),
    ),
    PlantedFault(
        6,
        "flag-not-awaited",
        "sums that another block leaves are read without waiting for its flag",
        stream_k,
        (Change("      flag_wait(flag, WARP);\n", ""),),
        (Verdict.RACE, Verdict.UNINITIALISED),
        ("const float4 v = from[i * THREADS];",),
    ),
    PlantedFault(
        6,
        "flag-relaxed",
        "a flag between blocks that is raised without a release",
        stream_k,
        (Change("red.release.gpu.global", "red.relaxed.gpu.global"),),
        (Verdict.RACE,),
        ("to[i * THREADS] = make_float4", "const float4 v = from[i * THREADS];"),
    ),
    PlantedFault(
        7,
        "array-of-two",
        "an array of two accumulators, initialised in a loop to four",
        k_split,
        (
            Change(
                "float sum[OWN] = {};",
                "float sum[OWN / 2];\n#pragma unroll 1\n  for (int e = 0; e < OWN; ++e) sum[e] = 0;",
            ),
        ),
        (Verdict.OUT_OF_BOUNDS,),
        ("sum[e] = 0;",),
    ),
    PlantedFault(
        7,
        "tile-of-no-warp",
        "tiles that no warp computes, and others that two warps store",
        warp_parallel,
        (Change("blockIdx.x * WARPS_N + warp % WARPS_N", "blockIdx.x * WARPS_N + warp % (WARPS_N / 2)"),),
        (Verdict.RACE,),
        ("C[static_cast<long long>(m) * ldc + n] =",),
    ),
    PlantedFault(
        7,
        "tile-not-computed",
        "tiles that no warp computes",
        warp_parallel,
        (Change("if (m0 >= M || n0 >= N) return;", "if (m0 >= M || n0 >= N || warp == 5) return;"),),
        (Verdict.MISMATCH,),
    ),
    PlantedFault(
        8,
        "half-the-warps",
        "barriers that count four warps, launched with two",
        k_split,
        (),
        (Verdict.DEADLOCK,),
        ("block_barrier();  // the slice has come",),
        relaunch=half_the_threads,
    ),
    PlantedFault(
        8,
        "half-the-tile",
        "cooperative copies written for eight warps, launched with four",
        smem_tiling,
        (),
        (Verdict.UNINITIALISED,),
        (TILE_READS,),
        relaunch=half_the_threads,
    ),
    PlantedFault(
        9,
        "swap-before-wait",
        "registers are swapped before the copy was waited for",
        register_buffer,
        (
            Change(
                "    cp_async_wait<0>();\n    __syncthreads();\n    if (step + 1 < steps) left",
                "    if (step + 1 < steps) left",
            ),
            Change(
                "THREADS - 1 - t];\n  }\n", "THREADS - 1 - t];\n    cp_async_wait<0>();\n    __syncthreads();\n  }\n"
            ),
        ),
        (Verdict.IN_FLIGHT, Verdict.UNINITIALISED, Verdict.RACE),
        ("if (step + 1 < steps) left",),
    ),
    PlantedFault(
        9,
        "swap-before-barrier",
        "registers are swapped after the wait and before the barrier",
        register_buffer,
        (
            Change("    __syncthreads();\n    if (step + 1 < steps) left", "    if (step + 1 < steps) left"),
            Change("THREADS - 1 - t];\n  }\n", "THREADS - 1 - t];\n    __syncthreads();\n  }\n"),
        ),
        (Verdict.IN_FLIGHT, Verdict.UNINITIALISED, Verdict.RACE),
        ("if (step + 1 < steps) left",),
    ),
    PlantedFault(
        10,
        "does-not-compile",
        "a call that does not exist",
        tensor_core,
        (Change("cp_async_wait<STAGES - 2>()", "cp_async_wait_group<STAGES - 2>()"),),
        (Verdict.COMPILE_ERROR,),
        ("cp_async_wait_group<STAGES - 2>()",),
    ),
)


HOPPER = (
    PlantedFault(
        11,
        "no-full-wait",
        "no wait on the full barrier",
        tma_pipeline,
        (Change("    mbarrier_wait(shared.full[s], step / STAGES % 2);\n", ""),),
        (Verdict.UNINITIALISED, Verdict.IN_FLIGHT, Verdict.RACE),
        (RING_READS,),
    ),
    PlantedFault(
        11,
        "raw-not-awaited",
        "slices are turned before they have come",
        fp32_pipeline,
        (Change("        mbarrier_wait(shared.raw.full, from.parity);\n", ""),),
        (Verdict.IN_FLIGHT, Verdict.RACE, Verdict.UNINITIALISED),
        (("ldmatrix_x4(x[i]", "tma_load(raw.a"),),
    ),
    PlantedFault(
        12,
        "no-empty-wait",
        "no wait on the empty barrier",
        tma_pipeline,
        (Change("    mbarrier_wait(shared.empty[s], step / STAGES % 2 ^ 1);\n", ""),),
        (Verdict.MBARRIER_MISUSE, Verdict.IN_FLIGHT),
        (("mbarrier_arrive_expect(shared.full[s]", *RING_COPIES),),
    ),
    PlantedFault(
        12,
        "raw-reused",
        "a slice is given back before it has been turned",
        fp32_pipeline,
        (
            Change("          mbarrier_arrive(shared.raw.empty);\n", ""),
            Change(
                "        producer::arrange(g, common, shared.raw",
                "        if (threadIdx.x % LANES == 0) mbarrier_arrive(shared.raw.empty);\n"
                "        producer::arrange(g, common, shared.raw",
            ),
        ),
        (Verdict.IN_FLIGHT, Verdict.RACE),
        (("ldmatrix_x4(x[i]", "tma_load(raw.a"),),
    ),
    PlantedFault(
        13,
        "too-many-bytes",
        "expect_tx of too many bytes",
        tma_pipeline,
        (Change("sizeof(shared.a[s]) + sizeof(shared.b[s])", "sizeof(shared.a[s]) + sizeof(shared.b[s]) + 16"),),
        (Verdict.DEADLOCK,),
        (RING_WAIT,),
    ),
    PlantedFault(
        13,
        "too-few-bytes",
        "expect_tx of too few bytes",
        tma_pipeline,
        (Change("sizeof(shared.a[s]) + sizeof(shared.b[s])", "sizeof(shared.a[s]) + sizeof(shared.b[s]) - 16"),),
        (Verdict.MBARRIER_MISUSE,),
        (RING_COPIES, "mbarrier_arrive_expect(shared.full[s]"),
    ),
    PlantedFault(
        13,
        "announced-too-late",
        "bytes of a copy are announced after the last arrival",
        fp32_pipeline,
        (
            Change("        mbarrier_expect(full, sizeof(input.b));\n", ""),
            Change(
                "          mbarrier_arrive(full);\n        }\n      }\n  }\n",
                "          mbarrier_arrive(full);\n"
                "          if (threadIdx.x == LANES) mbarrier_expect(full, sizeof(shared.ring[0].b));\n"
                "        }\n      }\n  }\n",
            ),
        ),
        (Verdict.MBARRIER_MISUSE, Verdict.IN_FLIGHT, Verdict.RACE, Verdict.DEADLOCK),
        (("mbarrier_expect(full", "tma_load(input.b, g.B", "b[j] = load_vector"),),
    ),
    PlantedFault(
        14,
        "parity-after-wrap",
        "a parity that is wrong once the ring wraps",
        tma_pipeline,
        (Change("shared.full[s], step / STAGES % 2)", "shared.full[s], 0)"),),
        (Verdict.IN_FLIGHT, Verdict.RACE),
        (RING_COPIES, RING_READS),
    ),
    PlantedFault(
        15,
        "accumulators-read",
        "accumulators are read before wgmma.wait_group",
        tma_pipeline,
        (Change("  wgmma_wait<0>();\n", ""),),
        (Verdict.ACCUMULATOR_IN_FLIGHT,),
        ("v = {from_float<OUT>(sum[pair])", RING_READS),
    ),
    PlantedFault(
        15,
        "slice-released",
        "a slice is released before wgmma.wait_group",
        tma_pipeline,
        (Change("wgmma_wait<1>();", "wgmma_wait<2>();"),),
        (Verdict.IN_FLIGHT,),
        (RING_COPIES, RING_READS),
    ),
    PlantedFault(
        15,
        "no-fence",
        "no wgmma.fence after registers were written",
        tma_pipeline,
        (Change("    wgmma_fence();\n", ""),),
        (Verdict.WGMMA_FENCE,),
        (RING_READS,),
    ),
    PlantedFault(
        15,
        "no-commit",
        "wgmma never committed",
        tma_pipeline,
        (Change("    wgmma_commit();\n", ""),),
        (Verdict.IN_FLIGHT,),
        (RING_COPIES, RING_READS),
    ),
    PlantedFault(
        15,
        "operands-overwritten",
        "ordinary stores into operands of a wgmma that was not waited for",
        stored_operands,
        (
            Change("    wgmma_wait<0>();\n", ""),
            Change("  const int row = t / 32 * 16", "  wgmma_wait<0>();\n  const int row = t / 32 * 16"),
        ),
        (Verdict.IN_FLIGHT,),
        ("store_vector(to + row * DEPTH", ("wgmma<0>(sum", "shared_address(b + k)")),
    ),
    PlantedFault(
        16,
        "tma-store",
        "no fence.proxy.async between ordinary stores and a TMA store",
        persistent,
        (Change("      async_fence();\n      __syncwarp();\n", "      __syncwarp();\n"),),
        (Verdict.PROXY_FENCE,),
        ("tma_store(g.C_boxes, staged", "store_vector(chunk(row, column / CHUNK)"),
    ),
    PlantedFault(
        16,
        "wgmma",
        "no fence.proxy.async between ordinary stores and wgmma",
        stored_operands,
        (Change("    async_fence();\n", ""),),
        (Verdict.PROXY_FENCE,),
        (("wgmma<0>(sum", "shared_address(b + k)"), "store_vector(to + row * DEPTH"),
    ),
    PlantedFault(
        17,
        "no-barrier-after-init",
        "an mbarrier used before its initialisation is visible to other warps",
        tma_pipeline,
        (Change("    mbarrier_init_fence();\n  }\n  __syncthreads();\n", "    mbarrier_init_fence();\n  }\n"),),
        (Verdict.MBARRIER_MISUSE,),
        ((RING_WAIT, "mbarrier_wait(shared.empty[s]", "mbarrier_init(shared.full[s]"),),
    ),
    PlantedFault(
        17,
        "no-init-fence",
        "an mbarrier used by the copy engine before its initialisation is visible there",
        tma_pipeline,
        (Change("    mbarrier_init_fence();\n", ""),),
        (Verdict.MBARRIER_MISUSE,),
        (RING_COPIES, "mbarrier_init(shared.full[s]"),
    ),
    PlantedFault(
        18,
        "box",
        "a tensor map whose box is half of what the kernel expects",
        tma_pipeline,
        (),
        (Verdict.DEADLOCK,),
        (RING_WAIT,),
        relaunch=short_box,
    ),
    PlantedFault(
        18,
        "swizzle",
        "a tensor map without the swizzle that wgmma's descriptor has",
        tma_pipeline,
        (),
        (Verdict.DESCRIPTOR,),
        (RING_READS, RING_COPIES),
        relaunch=no_swizzle,
    ),
    PlantedFault(
        18,
        "descriptor",
        "a descriptor whose stride is not that of the tile",
        tma_pipeline,
        (
            Change(
                "swizzled_operand(a + k * A_STEP, 0, ATOM_BYTES)", "swizzled_operand(a + k * A_STEP, 0, ATOM_BYTES / 2)"
            ),
        ),
        (Verdict.MISMATCH,),
    ),
    PlantedFault(
        19,
        "no-wait",
        "no cp.async.wait_group",
        tensor_core,
        (Change("    cp_async_wait<STAGES - 2>();\n", ""),),
        (Verdict.IN_FLIGHT,),
        (SLICE_READS, SLICE_COPIES),
    ),
    PlantedFault(
        19,
        "one-group-too-few",
        "cp.async.wait_group for one group too few",
        tensor_core,
        (Change("cp_async_wait<STAGES - 2>", "cp_async_wait<STAGES - 1>"),),
        (Verdict.IN_FLIGHT,),
        (SLICE_READS, SLICE_COPIES),
    ),
    PlantedFault(
        20,
        "source-reused",
        "the source of a TMA store reused before bulk.wait_group.read",
        persistent,
        (Change("      tma_store_wait_read<STAGED_BUFFERS - 1>();\n", ""),),
        (Verdict.IN_FLIGHT,),
        ("store_vector(chunk(row, column / CHUNK)",),
    ),
    PlantedFault(
        20,
        "exit-before-read",
        "a block that exits while a TMA store still reads its shared memory",
        persistent,
        (Change("finish[mine], part++);\n    tma_store_wait_read<0>();\n", "finish[mine], part++);\n"),),
        (Verdict.EXITED_WITH_WORK,),
        ("tma_store(g.C_boxes, staged, m, n)",),
    ),
    PlantedFault(
        21,
        "peer-exits",
        "a block of a cluster exits while the other still writes into its shared memory",
        cluster_push,
        (Change("  cluster_sync();  // all has come", "  if (rank == 1) return;\n  cluster_sync();  // all has come"),),
        (Verdict.EXITED_WITH_WORK,),
        ("cluster_store(&inbox",),
    ),
    PlantedFault(
        21,
        "read-too-early",
        "a block of a cluster reads before what the others send has come",
        split_k,
        (Change("    cluster_sync();  // all have come\n", ""),),
        (Verdict.RACE,),
        ("cluster_store(inbox(", "const float4 v = *inbox("),
    ),
    PlantedFault(
        22,
        "one-warp",
        "setmaxnreg by one warp of its warpgroup",
        tma_pipeline,
        (
            Change(
                "    keep_registers<PRODUCER_REGISTERS>();\n",
                "    if (threadIdx.x < WARP) keep_registers<PRODUCER_REGISTERS>();\n",
            ),
        ),
        (Verdict.DIVERGENT_COLLECTIVE,),
        ("if (threadIdx.x < WARP) keep_registers",),
    ),
    PlantedFault(
        22,
        "never-released",
        "setmaxnreg.inc without anyone giving registers back",
        tma_pipeline,
        (Change("    keep_registers<PRODUCER_REGISTERS>();\n", ""),),
        (Verdict.DEADLOCK,),
        ("take_registers<CONSUMER_REGISTERS>();",),
    ),
    PlantedFault(
        23,
        "divergent-barrier",
        "half of a warp's lanes reach bar.sync",
        smem_tiling,
        (
            Change(
                "    __syncthreads();  // everyone has read the slice before\n",
                "    if (threadIdx.x % 32 < 16) __syncthreads();  // everyone has read the slice before\n",
            ),
        ),
        (Verdict.DIVERGENT_COLLECTIVE,),
        (("__syncthreads();  // everyone", "__syncthreads();\n\n#pragma unroll"),),
    ),
    PlantedFault(
        23,
        "named-barrier-count",
        "a named barrier that waits for more threads than come",
        handoff,
        (Change("side_barrier<1>();", 'asm volatile("bar.sync 1, 96;" ::: "memory");'),),
        (Verdict.DEADLOCK, Verdict.LIVELOCK),
        ("bar.sync 1, 96",),
    ),
    PlantedFault(
        23,
        "named-barrier-partial-warp",
        "a named barrier whose count is not a multiple of 32",
        handoff,
        (
            Change(
                "side_barrier<1>();",
                'asm volatile("{ .reg .b32 n; mov.b32 n, %0; bar.sync 1, n; }" ::"r"(rows * 5) : "memory");',
            ),
        ),
        (Verdict.BARRIER_MISUSE,),
        ("bar.sync 1, n",),
    ),
    PlantedFault(
        23,
        "shuffle-mask",
        "shfl.sync with a mask that names lanes that do not come",
        warp_parallel,
        (
            Change(
                "const float total = warp_sums(sum, lane);",
                "float total = 0;\n  if (lane < 24) total = warp_sums(sum, lane);",
            ),
        ),
        (Verdict.DIVERGENT_COLLECTIVE, Verdict.DEADLOCK),
        ("if (lane < 24) total",),
    ),
)

CATALOGUE: tuple[PlantedFault, ...] = (*HAND_WRITTEN, *HOPPER)
