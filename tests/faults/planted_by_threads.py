"""Faults planted into kernels whose threads load and store by themselves."""

from __future__ import annotations

from planting import Change, PlantedFault
from scenarios import (
    cp_async,
    half_the_threads,
    handoff,
    k_split,
    naive,
    no_block_for_the_tail,
    register_buffer,
    stream_k,
    tma_pipeline,
    vectorized,
    warp_parallel,
)

from workbench.model.results import Verdict

# ---------------------------------------------------------------------------- lines that several findings name

TILE_READS = ("load_vector<QUAD>(&a_tile", "load_vector<QUAD>(&b_tile")
TILE_WRITES = (
    "a_copy.store_transposed(a_tile)",
    "b_copy.store(b_tile)",
    "store_vector(&tile[row(i)]",
    "tile[column(i) + j]",
)
RING_COPIES = ("tma_load(input.a, g.A", "tma_load(to, g.B, full, row, column)")
RING_READS = ("wgmma<!ROWS_OF_K>(sum[band]", "operand_at(columns, k * B_STEP)")  # one statement
RING_WAIT = "mbarrier_wait(full[from.stage]"
RING_ACQUIRED = "mbarrier_wait(empty[to.stage]"
RING_EXPECTED = "mbarrier_arrive_expect(full[stage], bytes)"
SLICE_COPIES = (
    "i < ROWS; i += ROW_STEP, source += step) cp_async_16(",
    "cp_async_16(target + i * COLUMNS, source);\n        else",
)
SLICE_READS = ("ldmatrix_x4(a[i], tile.a.chunk(", "ldmatrix_x4(b[j], tile.b.chunk(n")

# ---------------------------------------------------------------------------------------------------- the faults

HAND_WRITTEN = (
    PlantedFault(
        1,
        "zeros",
        "a rewrite whose accumulation never contributes",
        vectorized,
        (Change("sum[i][j] += a[", "a[i / QUAD].x[0] += 0 * a["),),
        (Verdict.MISMATCH,),
    ),
    PlantedFault(
        1,
        "zeros-mma",
        "tensor cores that add to a copy of the accumulators",
        cp_async,
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
        (Change("mbarrier_init(full[s], commits);", "mbarrier_init(full[s], commits + 1);"),),
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
        vectorized,
        (Change("r < rows ? columns - c : 0", "QUAD"),),
        (Verdict.OUT_OF_BOUNDS,),
        ("quads[i] = load_tail",),
    ),
    PlantedFault(
        4,
        "tail-not-computed",
        "right only where sizes divide by the tile: no block for the tail",
        vectorized,
        (),
        (Verdict.MISMATCH,),
        relaunch=no_block_for_the_tail,
    ),
    PlantedFault(
        5,
        "no-barrier-after-reads",
        "the next load overwrites a tile that other warps still read",
        vectorized,
        (Change("    __syncthreads();  // everyone has read the k-tile before\n", ""),),
        (Verdict.RACE,),
        (TILE_READS, TILE_WRITES),
    ),
    PlantedFault(
        5,
        "no-barrier-before-reads",
        "a tile is read before all of it has come",
        vectorized,
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
        (Change("      flag_wait(flag(block), roles::LANES);\n", ""),),
        (Verdict.RACE, Verdict.UNINITIALISED),
        ("const float4 v = from[i * roles::CONSUMER_THREADS];",),
    ),
    PlantedFault(
        6,
        "flag-relaxed",
        "a flag between blocks that is raised without a release",
        stream_k,
        (Change("red.release.gpu.global", "red.relaxed.gpu.global"),),
        (Verdict.RACE,),
        ("to[i * roles::CONSUMER_THREADS] =", "const float4 v = from[i * roles::CONSUMER_THREADS];"),
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
        vectorized,
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
        cp_async,
        (Change("cp_async_wait<STAGES - 2>()", "cp_async_wait_group<STAGES - 2>()"),),
        (Verdict.COMPILE_ERROR,),
        ("cp_async_wait_group<STAGES - 2>()",),
    ),
)
