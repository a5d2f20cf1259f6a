"""Faults that really happen in hand-written kernels, each planted in a real one: what went wrong in hand-written
matrix products (1 to 10) and in asynchronous code for Hopper (11 to 23).

A new fault is one more entry; `test_catalogue.py`, `fault_report.py` and `on_gpu.py` take all of them.
"""

from __future__ import annotations

import scenarios
from planting import Change, PlantedFault
from plants import entries

from workbench.model.results import Verdict

LINES = {
    "RING_ACQUIRED": ("mbarrier_wait(empty[to.stage]",),
    "RING_COPIES": ("tma_load(input.a, g.A", "tma_load(to, g.B, full, row, column)"),
    "RING_EXPECTED": ("mbarrier_arrive_expect(full[stage], bytes)",),
    "RING_READS": ("wgmma<!ROWS_OF_K>(sum[band]", "operand_at(columns, k * B_STEP)"),
    "RING_WAIT": ("mbarrier_wait(full[from.stage]",),
    "SLICE_COPIES": (
        "i < ROWS; i += ROW_STEP, source += step) cp_async_16(",
        "cp_async_16(target + i * COLUMNS, source);\n        else",
    ),
    "SLICE_READS": ("ldmatrix_x4(a[i], tile.a.chunk(", "ldmatrix_x4(b[j], tile.b.chunk(n"),
    "TILE_READS": ("load_vector<QUAD>(&a_tile", "load_vector<QUAD>(&b_tile"),
    "TILE_WRITES": (
        "a_copy.store_transposed(a_tile)",
        "b_copy.store(b_tile)",
        "store_vector(&tile[row(i)]",
        "tile[column(i) + j]",
    ),
}
"""Lines that several findings name, by text that only they hold; any of several will do."""

TABLE = r"""
1-zeros: a rewrite whose accumulation never contributes | vectorized | MISMATCH
    sum[i][j] += a[ => a[i / QUAD].x[0] += 0 * a[
1-zeros-mma: tensor cores that add to a copy of the accumulators | cp_async | MISMATCH
    mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], IN());
    => { float copy[4] = {}; mma(copy, a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], IN()); }
2-barrier-in-loop: a barrier in a loop that not every warp enters | k_split | DEADLOCK
    | block_barrier();  // the slice has come or block_barrier();  // everyone is done with it
    k0 < K; k0 += DEPTH => k0 + warp * SHARE < K; k0 += DEPTH
2-phase-never-comes: a wait for a phase that never comes | tma_pipeline | DEADLOCK | RING_WAIT
    mbarrier_init(full[s], commits); => mbarrier_init(full[s], commits + 1);
3-never-combined: k shared out over warps, their sums never combined | k_split | MISMATCH
    w < WARPS; ++w => w < 1; ++w
3-wrong-share: a wrong share of k for each warp: only zeros are multiplied | k_split | MISMATCH
    float sum[OWN] = {}; => float sum[OWN] = {};¶  const int first = K + warp * K;
    for (int k0 = 0; k0 < K => for (int k0 = first; k0 < first + K
3-combined-too-early: k shared out over warps, combined without a barrier | k_split | RACE UNINITIALISED
    | total += parts[w][i]
      __syncthreads();¶  for (int i =>   for (int i
4-swapped-bound: rows and columns swapped in a bound: right where M = N | naive | OUT_OF_BOUNDS | sum += to_float(a[k])
    m >= M || n >= N => m >= N || n >= M
4-swapped-index: rows and columns swapped in an index | naive | OUT_OF_BOUNDS RACE
    | static_cast<long long>(n) * ldc + m]
    static_cast<long long>(m) * ldc + n] => static_cast<long long>(n) * ldc + m]
4-tail-unguarded: right only where sizes divide by the tile: the tail is read past the end | vectorized | OUT_OF_BOUNDS
    | quads[i] = load_tail
    r < rows ? columns - c : 0 => QUAD
4-tail-not-computed: right only where sizes divide by the tile: no block for the tail | vectorized no_block_for_the_tail
    | MISMATCH
5-no-barrier-after-reads: the next load overwrites a tile that other warps still read | vectorized | RACE | TILE_READS
    | TILE_WRITES
        __syncthreads();  // everyone has read the k-tile before¶ =>
5-no-barrier-before-reads: a tile is read before all of it has come | vectorized | RACE UNINITIALISED | TILE_READS
        __syncthreads();¶¶#pragma unroll¶ => ¶#pragma unroll¶
6-no-fence: data handed over by a volatile flag without fences | handoff | RACE | row[c] = x[r * WIDTH + c]
    | sum += row[c]
          __threadfence_block();  // the element before the flag¶ =>
          __threadfence_block();  // the flag before the element¶ =>
6-one-lane-waits: one lane polls, the others of its warp go on | handoff | RACE UNINITIALISED | sum += row[c]
    while (*ready <= r) { => if (c % 32 == 0) while (*ready <= r) {
6-flag-reset: a flag reset while the other warp still polls it | handoff | LIVELOCK DEADLOCK RACE | while (*ready <= r)
          sum += row[c];¶ =>       sum += row[c];¶      *ready = 0;¶
6-syncthreads-in-branch: __syncthreads() in the branch of one group of warps | handoff | DEADLOCK LIVELOCK
    | __syncthreads();¶      if (c == 0) *taken
    side_barrier<2>(); => __syncthreads();
6-flag-not-awaited: sums that another block leaves are read without waiting for its flag | stream_k | RACE UNINITIALISED
    | const float4 v = from[i * roles::CONSUMER_THREADS];
          flag_wait(flag(block), roles::LANES);¶ =>
6-flag-relaxed: a flag between blocks that is raised without a release | stream_k | RACE
    | to[i * roles::CONSUMER_THREADS] = | const float4 v = from[i * roles::CONSUMER_THREADS];
    red.release.gpu.global => red.relaxed.gpu.global
7-array-of-two: an array of two accumulators, initialised in a loop to four | k_split | OUT_OF_BOUNDS | sum[e] = 0;
    float sum[OWN] = {}; => float sum[OWN / 2];¶#pragma unroll 1¶  for (int e = 0; e < OWN; ++e) sum[e] = 0;
7-tile-of-no-warp: tiles that no warp computes, and others that two warps store | warp_parallel | RACE
    | C[static_cast<long long>(m) * ldc + n] =
    blockIdx.x * WARPS_N + warp % WARPS_N => blockIdx.x * WARPS_N + warp % (WARPS_N / 2)
7-tile-not-computed: tiles that no warp computes | warp_parallel | MISMATCH
    if (m0 >= M || n0 >= N) return; => if (m0 >= M || n0 >= N || warp == 5) return;
8-half-the-warps: barriers that count four warps, launched with two | k_split half_the_threads | DEADLOCK
    | block_barrier();  // the slice has come
8-half-the-tile: cooperative copies written for eight warps, launched with four | vectorized half_the_threads
    | UNINITIALISED | TILE_READS
9-swap-before-wait: registers are swapped before the copy was waited for | register_buffer
    | IN_FLIGHT UNINITIALISED RACE | if (step + 1 < steps) left
        cp_async_wait<0>();¶    __syncthreads();¶    if (step + 1 < steps) left =>     if (step + 1 < steps) left
    THREADS - 1 - t];¶  }¶ => THREADS - 1 - t];¶    cp_async_wait<0>();¶    __syncthreads();¶  }¶
9-swap-before-barrier: registers are swapped after the wait and before the barrier | register_buffer
    | IN_FLIGHT UNINITIALISED RACE | if (step + 1 < steps) left
        __syncthreads();¶    if (step + 1 < steps) left =>     if (step + 1 < steps) left
    THREADS - 1 - t];¶  }¶ => THREADS - 1 - t];¶    __syncthreads();¶  }¶
10-does-not-compile: a call that does not exist | cp_async | COMPILE_ERROR | cp_async_wait_group<STAGES - 2>()
    cp_async_wait<STAGES - 2>() => cp_async_wait_group<STAGES - 2>()
11-no-full-wait: no wait on the full barrier | tma_pipeline | UNINITIALISED IN_FLIGHT RACE | RING_READS
    mbarrier_wait(full[from.stage], from.parity); =>
11-raw-not-awaited: k-tiles are turned before they have come | fp32_pipeline | IN_FLIGHT RACE UNINITIALISED
    | ldmatrix_x4(x[i] or tma_load(shared.raw.a
              mbarrier_wait(shared.raw_full, from.parity);¶ =>
12-no-empty-wait: no wait on the empty barrier | tma_pipeline | MBARRIER_MISUSE IN_FLIGHT | RING_EXPECTED or RING_COPIES
        mbarrier_wait(empty[to.stage], to.parity ^ 1);¶ =>
12-raw-reused: a k-tile is given back before it has been turned | fp32_pipeline | IN_FLIGHT RACE
    | ldmatrix_x4(x[i] or tma_load(shared.raw.a
                mbarrier_arrive(shared.raw_empty);¶ =>
              turn(g, tile, shared.raw
    =>           if (threadIdx.x % WARP == 0) mbarrier_arrive(shared.raw_empty);¶          turn(g, tile, shared.raw
13-too-many-bytes: expect_tx of too many bytes | tma_pipeline | DEADLOCK | RING_WAIT
    commit(stage, sizeof(input_block)) => commit(stage, sizeof(input_block) + 16)
13-too-few-bytes: expect_tx of too few bytes | tma_pipeline | MBARRIER_MISUSE | RING_COPIES | RING_EXPECTED
    commit(stage, sizeof(input_block)) => commit(stage, sizeof(input_block) - 16)
13-announced-too-late: bytes of a copy are announced after the last arrival | fp32_pipeline
    | MBARRIER_MISUSE IN_FLIGHT RACE DEADLOCK | mbarrier_expect(full or tma_load(input.b, g.B or b[j] = load_vector
            mbarrier_expect(full, sizeof(input.b));¶ =>
                mbarrier_arrive(full);¶
    =>             mbarrier_arrive(full);¶if (threadIdx.x == WARP) mbarrier_expect(full, sizeof(shared.blocks[0].b));¶
14-parity-after-wrap: a parity that is wrong once the ring wraps | tma_pipeline | IN_FLIGHT RACE DEADLOCK
    | RING_COPIES or RING_WAIT
    full[from.stage], from.parity) => full[from.stage], 0)
15-accumulators-read: accumulators are read before wgmma.wait_group | tma_pipeline | ACCUMULATOR_IN_FLIGHT
    | __floats2bfloat162_rn(first, second) | RING_READS
          wgmma_wait<0>();¶ =>
15-slice-released: a slice is released before wgmma.wait_group | tma_pipeline | IN_FLIGHT | RING_COPIES | RING_READS
    wgmma_wait<1>(); => wgmma_wait<2>();
15-no-fence: no wgmma.fence after registers were written | tma_pipeline | WGMMA_FENCE | RING_READS
        wgmma_fence();¶ =>
15-no-commit: wgmma never committed | tma_pipeline | IN_FLIGHT | RING_COPIES | RING_READS
        wgmma_commit();¶ =>
15-operands-overwritten: ordinary stores into operands of a wgmma that was not waited for | stored_operands | IN_FLIGHT
    | store_vector(to + row * DEPTH | wgmma<0>(sum or shared_address(b + k)
        wgmma_wait<0>();¶ =>
      const int row = t / 32 * 16 =>   wgmma_wait<0>();¶  const int row = t / 32 * 16
16-tma-store: no fence.proxy.async between ordinary stores and a TMA store | tma_store | PROXY_FENCE
    | tma_store(to.boxes, staged | store_vector(chunk(staged, row, column / CHUNK)
        async_fence();¶    __syncwarp();¶ =>     __syncwarp();¶
16-wgmma: no fence.proxy.async between ordinary stores and wgmma | stored_operands | PROXY_FENCE
    | wgmma<0>(sum or shared_address(b + k) | store_vector(to + row * DEPTH
        async_fence();¶ =>
17-no-barrier-after-init: an mbarrier used before its initialisation is visible to other warps | tma_pipeline
    | MBARRIER_MISUSE | RING_WAIT or RING_ACQUIRED or mbarrier_init(full[s]
      __syncthreads();¶  if constexpr (!ALONE) =>   if constexpr (!ALONE)
17-no-init-fence: an mbarrier used by TMA before its initialisation is visible there | tma_pipeline | MBARRIER_MISUSE
    | RING_COPIES | mbarrier_init(full[s]
        mbarrier_init_fence();¶ =>
18-box: a tensor map whose box is half of what the kernel expects | tma_pipeline short_box | DEADLOCK | RING_WAIT
18-swizzle: a tensor map without the swizzle that wgmma's descriptor has | tma_pipeline no_swizzle | DESCRIPTOR
    | RING_READS | RING_COPIES
18-descriptor: a descriptor whose stride is not that of the tile | tma_pipeline | MISMATCH
    swizzled_operand(shared_address(a), 0, ATOM_BYTES) => swizzled_operand(shared_address(a), 0, ATOM_BYTES / 2)
19-no-wait: no cp.async.wait_group | cp_async | IN_FLIGHT | SLICE_READS | SLICE_COPIES
        cp_async_wait<STAGES - 2>();¶ =>
19-one-group-too-few: cp.async.wait_group for one group too few | cp_async | IN_FLIGHT | SLICE_READS | SLICE_COPIES
    cp_async_wait<STAGES - 2> => cp_async_wait<STAGES - 1>
20-source-reused: the source of a TMA store reused before bulk.wait_group.read | tma_store | IN_FLIGHT
    | store_vector(chunk(staged, row, column / CHUNK)
        tma_store_wait_read<SLOTS - 1>();¶ =>
20-exit-before-read: a block that exits while a TMA store still reads its shared memory | tma_store | EXITED_WITH_WORK
    | tma_store(to.boxes, staged, row, column)
        consumer.finish();¶    tma_store_wait_read<0>();¶ =>     consumer.finish();¶
21-peer-exits: a block of a cluster exits while the other still writes into its shared memory | cluster_push
    | EXITED_WITH_WORK | cluster_store(&inbox
      cluster_sync();  // all has come =>   if (rank == 1) return;¶  cluster_sync();  // all has come
21-read-too-early: a block of a cluster reads before what the others send has come | split_k | RACE
    | cluster_store(inbox( | const float4 v = *inbox(
        cluster_sync();  // all have come¶ =>
22-one-warp: setmaxnreg by one warp of its warpgroup | tma_pipeline | DIVERGENT_COLLECTIVE
    | if (threadIdx.x < LANES) keep_registers
    { keep_registers<PRODUCER_REGISTERS>(); }
    => {¶    if (threadIdx.x < LANES) keep_registers<PRODUCER_REGISTERS>();¶  }
22-never-released: setmaxnreg.inc without anyone giving registers back | tma_pipeline | DEADLOCK
    | take_registers<CONSUMER_REGISTERS>();
    keep_registers<PRODUCER_REGISTERS>(); =>
23-divergent-barrier: half of a warp's lanes reach bar.sync | vectorized | DIVERGENT_COLLECTIVE
    | __syncthreads();  // everyone or __syncthreads();¶¶#pragma unroll
        __syncthreads();  // everyone has read the k-tile before¶
    =>     if (threadIdx.x % 32 < 16) __syncthreads();  // everyone has read the k-tile before¶
23-named-barrier-count: a named barrier that waits for more threads than come | handoff | DEADLOCK LIVELOCK
    | bar.sync 1, 96
    side_barrier<1>(); => asm volatile("bar.sync 1, 96;" ::: "memory");
23-named-barrier-partial-warp: a named barrier whose count is not a multiple of 32 | handoff | BARRIER_MISUSE
    | bar.sync 1, n
    side_barrier<1>(); => asm volatile("{ .reg .b32 n; mov.b32 n, %0; bar.sync 1, n; }" ::"r"(rows * 5) : "memory");
23-shuffle-mask: shfl.sync with a mask that names lanes that do not come | warp_parallel | DIVERGENT_COLLECTIVE DEADLOCK
    | if (lane < 24) total
    const float total = warp_sums(sum, lane); => float total = 0;¶  if (lane < 24) total = warp_sums(sum, lane);
"""
"""Key and title; the kernel, and what becomes of its launch; the verdicts; each line to be named, or one of several."""


def _planted(fields: list[str], changes: list[tuple[str, str]]) -> PlantedFault:
    named, kernel, verdicts, *at = fields
    key, _, title = named.partition(": ")
    number, _, name = key.partition("-")
    scenario, *relaunch = (getattr(scenarios, word) for word in kernel.split())
    return PlantedFault(
        int(number),
        name,
        title,
        scenario,
        tuple(Change(*change) for change in changes),
        tuple(Verdict[verdict] for verdict in verdicts.split()),
        tuple(_lines(texts) for texts in at),
        *relaunch,
    )


def _lines(texts: str) -> tuple[str, ...]:
    return tuple(line for text in texts.split(" or ") for line in LINES.get(text, (text.replace("¶", "\n"),)))


CATALOGUE = tuple(_planted(*entry) for entry in entries(TABLE))
