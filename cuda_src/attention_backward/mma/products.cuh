// the products of a tile of attention's gradients on tensor cores, by warps: operands are tiles in shared
// memory, of DIM columns, or of scores, which have a key a row.
#pragma once
#include "ptx/mma.cuh"
#include "tile/async_tile.cuh"
#include "tile/convert.cuh"
#include "tile/warp.cuh"

constexpr int CHUNK = VECTOR_BYTES / sizeof(IN);

// 16 rows of a tile, from `row` on, times columns of b: sum[n] are columns 8 n to 8 n + 7. a has k along its
// rows, and b, too: vectors of the columns
template <int SUMS, class A, class B>
__device__ __forceinline__ void multiply_rows(float (&sum)[SUMS][4], A& a, int row, B& b, int column) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int c = 0; c < DIM / CHUNK; c += 2) {
    u32 x[4];
    ldmatrix_x4(x, a.chunk(row + lane % 16, c + lane / 16));
#pragma unroll
    for (int n = 0; n < SUMS; n += 2) {
      u32 y[4];
      ldmatrix_x4(y, b.chunk(column + n * 8 + lane / 16 * 8 + lane % 8, c + lane / 8 % 2));
      mma(sum[n], x, y[0], y[1], IN());
      mma(sum[n + 1], x, y[2], y[3], IN());
    }
  }
}

// scores times vectors, of which there are K: those of a band of keys, or, TURNED, of a band of rows. columns
// from `column` on
template <bool TURNED, int K, int SUMS, class Scores, class Vectors>
__device__ __forceinline__ void multiply_scores(float (&sum)[SUMS][4], Scores& a, int band, Vectors& b,
                                                int column) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    u32 x[4];
    if (TURNED)
      ldmatrix_x4_trans(x, a.chunk(k + lane / 16 * 8 + lane % 8, band * 2 + lane / 8 % 2));
    else
      ldmatrix_x4(x, a.chunk(band * 16 + lane % 16, k / CHUNK + lane / 16));
#pragma unroll
    for (int n = 0; n < SUMS; n += 2) {
      u32 y[4];
      ldmatrix_x4_trans(y, b.chunk(k + lane % 16, column / CHUNK + n + lane / 16));
      mma(sum[n], x, y[0], y[1], IN());
      mma(sum[n + 1], x, y[2], y[3], IN());
    }
  }
}

// what a warp holds of scores, rounded, to where they are operands: keys `key` and 8 further down, columns
// from `column` on
template <class Scores>
__device__ __forceinline__ void store_scores(Scores& to, const float (&score)[4], int key, int column) {
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    IN* const pair = to.chunk(key + j * 4, column / CHUNK) + column % CHUNK;
    *reinterpret_cast<u32*>(pair) = pair_from_float<IN>(score[j], score[j + 1]);
  }
}
