// a tile of C whose k is split over several clusters: each leaves the sums of its blocks in memory, and what
// the last one finds there it adds up. sm_90.
#pragma once
#include "epilogue/shared_sums.cuh"
#include "ptx/flag.cuh"
#include "ptx/named_barrier.cuh"

// as store_shared_sums of fp32, by THREADS that meet at named barrier BARRIER. `part`: which of SHARERS
// clusters this is. of the tile are partial, SHARERS times ROWS x COLUMNS, which nobody reads afterwards, and
// counters, one for each of RANKS blocks, zero before and after. `last` is in shared memory
template <int RANKS, int SHARERS, int ROWS, int COLUMNS, int PITCH, int THREADS, int BARRIER>
__device__ __forceinline__ void store_parted_sums(const float* sums, int rank, int part, float* partial,
                                                  unsigned* counters, bool& last, float* to, int ldc,
                                                  int rows, int columns) {
  constexpr int QUAD = 4, ROW_QUADS = COLUMNS / QUAD, SUMS = ROWS * COLUMNS;
  static_assert(RANKS > 1, "a block alone has no barrier here behind its stores");
  store_shared_sums<RANKS, ROWS, COLUMNS, PITCH, THREADS, QUAD, 4>(sums, rank, partial + part * SUMS, COLUMNS,
                                                                   rows, (columns + QUAD - 1) / QUAD * QUAD);
  if (threadIdx.x == 0) last = count_to_last(counters + rank, SHARERS);
  named_sync<THREADS>(BARRIER);
  if (!last) return;
#pragma unroll 2
  for (int i = rank * THREADS + threadIdx.x; i < ROWS * ROW_QUADS; i += RANKS * THREADS) {
    const int row = i / ROW_QUADS, column = i % ROW_QUADS * QUAD;
    if (row >= rows || column >= columns) continue;
    Vector<float, QUAD> total = {};
#pragma unroll 4
    for (int other = 0; other < SHARERS; ++other) {
      const auto left = load_vector<QUAD>(partial + other * SUMS + row * COLUMNS + column);
#pragma unroll
      for (int e = 0; e < QUAD; ++e) total.x[e] += left.x[e];
    }
    store_tail(to + static_cast<long long>(row) * ldc + column, total, columns - column, ldc % QUAD == 0);
  }
}
