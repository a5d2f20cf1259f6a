// what the stages of this track have in common: C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]; k-tiles in
// shared memory as tensor maps bring them, and their product. sm_100a.
#pragma once
#include "epilogue/lanes.cuh"
#include "pipeline/circular_buffer.cuh"
#include "ptx/tma.cuh"
#include "scheduler/tile_order.cuh"

constexpr int ROW_BYTES = 128;             // as wide as the swizzle
constexpr int ATOM_BYTES = 8 * ROW_BYTES;  // the swizzle repeats every 8 rows
constexpr int PANEL = ROW_BYTES / sizeof(IN);
constexpr int PRODUCT_K = 32 / sizeof(IN);

constexpr int SHARED_BYTES = 227 * 1024;  // that a block may have

// what the warps of a block do: four store tiles, each the lanes of tensor memory that it can read, and of one warp
// each a thread loads k-tiles and starts their products
struct TileWarps {
  static constexpr int EPILOGUE = 4, LOADS = 4, MULTIPLIES = 5, ALL = 6, THREADS = 32 * ALL;
};

static_assert(BLOCK_M == TENSOR_LANES, "BLOCK_M has to be 128: a row of the tile is a lane of tensor memory");
static_assert(BLOCK_N % PANEL == 0 && BLOCK_N <= 256, "BLOCK_N is 64, 128, 192 or 256: a product has 256 columns");
static_assert(BLOCK_K == PANEL, "BLOCK_K has to be 64, or 128 of 8 bits: a row of a k-tile is as wide as the swizzle");

// a k-tile of ROWS_OF_A rows of A and COLUMNS columns of B, which a block loads
template <int ROWS_OF_A, int COLUMNS>
struct KTiles {
  alignas(1024) IN a[ROWS_OF_A * BLOCK_K];  // rows of k
  alignas(1024) IN b[COLUMNS * BLOCK_K];    // rows of k, too. without TRANS_B: panels of 64 columns, in rows of n

  // by one thread: asks for the part of both that begins at these places. in a pair of blocks, `full` is reported to
  // in block `owner`
  __device__ __forceinline__ void load(const TensorMap& A, const TensorMap& B, Barrier& full, int m, int n, int k) {
    load_by([&](IN* to, const TensorMap& map, int row, int column) { tma_load(to, map, full, row, column); }, A, B, m,
            n, k);
  }
  __device__ __forceinline__ void load_for(int owner, const TensorMap& A, const TensorMap& B, Barrier& full, int m,
                                           int n, int k) {
    const auto ask = [&](IN* to, const TensorMap& map, int row, int column) {
      tma_load_pair(to, map, full, owner, row, column);
    };
    load_by(ask, A, B, m, n, k);
  }

  // by one thread: starts the product of GROUP times as many rows and columns, to be put into `sums`, or added
  template <int GROUP>
  __device__ __forceinline__ void multiply(u32 sums, bool add) const {
    constexpr u32 FORM = tensor_form<IN, GROUP * ROWS_OF_A, GROUP * COLUMNS, !TRANS_B>();
    constexpr int STEP = PRODUCT_K * sizeof(IN), B_STEP = TRANS_B ? STEP : PRODUCT_K * ROW_BYTES;
    const u64 rows = tensor_operand(a, 0, ATOM_BYTES);
    const u64 columns = tensor_operand(b, TRANS_B ? 0 : BLOCK_K * ROW_BYTES, ATOM_BYTES);
#pragma unroll
    for (int i = 0; i < BLOCK_K / PRODUCT_K; ++i)
      tensor_multiply<GROUP, sizeof(IN)>(sums, rows + (i * STEP >> 4), columns + (i * B_STEP >> 4), FORM, i > 0 || add);
  }

 private:
  template <class Ask>
  __device__ __forceinline__ void load_by(const Ask& ask, const TensorMap& A, const TensorMap& B, int m, int n, int k) {
    ask(a, A, m, k);
    if constexpr (TRANS_B)
      ask(b, B, n, k);
    else
#pragma unroll
      for (int i = 0; i < COLUMNS; i += PANEL) ask(&b[i * BLOCK_K], B, k, n + i);
  }
};

// how many tiles of so many rows or columns there are, or k-tiles
template <int OF>
__device__ __forceinline__ int tiles(int all) {
  return (all + OF - 1) / OF;
}
