// what the stages of this track have in common: C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]; which
// tile of C a block computes, and how a k-tile of A and of B is loaded. sm_90a.
#pragma once
#include "epilogue/staging.cuh"
#include "pipeline/roles.cuh"
#include "ptx/tma.cuh"
#include "scheduler/tile_order.cuh"
#include "tile/k_tile.cuh"

constexpr int PANEL = KTile<IN>::DEPTH;  // columns of B in one box where they lie along its rows
constexpr int WARP_ROWS = 16;            // of C: a warp holds 16 rows of 64

static_assert(BLOCK_M % WGMMA_M == 0, "each consumer multiplies 64 rows: BLOCK_M has to be a multiple of 64");
static_assert(BLOCK_N == 64 || BLOCK_N == 128 || BLOCK_N == 256,
              "BLOCK_N is the n of a wgmma: 64, 128 or 256");
static_assert(BLOCK_K == KTile<IN>::DEPTH,
              "BLOCK_K has to be 64: a row of a k-tile is as wide as the swizzle");

// what a kernel is given. `rows` is C: a tensor map of it is needed where TMA stores it
struct Operands {
  const TensorMap &A, &B;
  Rows<OUT> rows;
  int K;
};

// a k-tile of both
struct KTiles {
  IN a[BLOCK_M * BLOCK_K];  // rows of k
  IN b[BLOCK_N * BLOCK_K];  // rows of k, too. without TRANS_B: panels of 64 columns, in rows of n
};

// how many tiles, HEIGHT rows of C each, lie one above the other, and side by side; how many k-tiles there are
template <int HEIGHT = BLOCK_M>
__device__ __forceinline__ int tiles_m(const Operands& g) {
  return (g.rows.rows + HEIGHT - 1) / HEIGHT;
}
__device__ __forceinline__ int tiles_n(const Operands& g) { return (g.rows.columns + BLOCK_N - 1) / BLOCK_N; }
__device__ __forceinline__ int k_tiles(const Operands& g) { return (g.K + BLOCK_K - 1) / BLOCK_K; }

// columns of B from `first` on, so many of those of the tile that begins at (m, n)
template <class Load>
__device__ __forceinline__ void load_b(const Load& load, IN* b, int n, int k, int first = 0,
                                       int columns = BLOCK_N) {
  if constexpr (TRANS_B)
    load(&b[first * BLOCK_K], n + first, k);
  else
    for (int i = first; i < first + columns; i += PANEL) load(&b[i * BLOCK_K], k, n + i);
}
