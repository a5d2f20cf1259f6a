// a tile of C whose sums lie in shared memory, its k split over the blocks of a cluster: each block adds up a
// part of the tile and stores it in whole rows. sm_90.
#pragma once
#include "ptx/cluster.cuh"
#include "tile/convert.cuh"
#include "tile/vector.cuh"

// by the THREADS of each of RANKS blocks: stores ROWS x COLUMNS sums, rows PITCH apart, at `to`, PIECE
// neighbours at once, where addresses and ldc allow that. `rows` and `columns`: how many of them C has.
// whoever wrote sums need not have waited. a thread has the sums for AT_ONCE stores in flight
template <int RANKS, int ROWS, int COLUMNS, int PITCH, int THREADS, int PIECE,
          int AT_ONCE = RANKS < 4 ? 4 / RANKS : 1, class Out>
__device__ __forceinline__ void store_shared_sums(const float* sums, int rank, Out* to, int ldc, int rows,
                                                  int columns) {
  constexpr int ROW_PIECES = COLUMNS / PIECE;
  if constexpr (RANKS > 1)
    cluster_sync();
  else
    __syncthreads();
#pragma unroll AT_ONCE
  for (int i = rank * THREADS + threadIdx.x; i < ROWS * ROW_PIECES; i += RANKS * THREADS) {
    const int row = i / ROW_PIECES, column = i % ROW_PIECES * PIECE;
    if (row >= rows || column >= columns) continue;
    const float* const own = sums + row * PITCH + column;
    Vector<float, PIECE> total = {};
    if constexpr (RANKS == 1) {
      total = load_vector<PIECE>(own);
    } else {
#pragma unroll
      for (int from = 0; from < RANKS; ++from) {
        float part[PIECE];
        cluster_load(part, own, from);
#pragma unroll
        for (int e = 0; e < PIECE; ++e) total.x[e] += part[e];
      }
    }
    Vector<Out, PIECE> out;
#pragma unroll
    for (int e = 0; e < PIECE; ++e) out.x[e] = from_float<Out>(total.x[e]);
    Out* const here = to + static_cast<long long>(row) * ldc + column;
    if (column + PIECE <= columns) {
      store_vector(here, out);
    } else {
#pragma unroll
      for (int e = 0; e < PIECE - 1; ++e)
        if (column + e < columns) here[e] = out.x[e];
    }
  }
  if constexpr (RANKS > 1) cluster_sync();  // the others have read what is here
}
