// the convolution of pairs of sequences with matrices of real numbers, by mma.sync; see ../symmetric.cuh.
#pragma once
#include "../symmetric.cuh"
#include "products.cuh"

// those of the rows of a lane are this one and its negative
__device__ __forceinline__ int frequency_of_lane() {
  return frequency_of(threadIdx.x % GROUP_THREADS / WARP * 16 + threadIdx.x % WARP / 4);
}

template <int SIZE>
using RealMatrix = AsyncTile<IN, SIZE, SIZE, GROUP_THREADS>;

// sums += a times two groups of 8 columns, both parts
__device__ __forceinline__ void add_products(Sums<COLUMNS>& sums, int i, const u32 (&a_re)[4],
                                             const u32 (&a_im)[4], const u32 (&b_re)[4],
                                             const u32 (&b_im)[4]) {
  auto& to_re = reinterpret_cast<float (&)[COLUMNS / 8][4]>(sums.re);
  auto& to_im = reinterpret_cast<float (&)[COLUMNS / 8][4]>(sums.im);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    mma(to_re[i + half], a_re, b_re[half * 2], b_re[half * 2 + 1], IN());
    mma(to_im[i + half], a_im, b_im[half * 2], b_im[half * 2 + 1], IN());
  }
}

// `rows` of the matrix, transposed or not, times the columns of x from `column` on, of which the first
// `depth` rows are not zero
template <bool TRANSPOSED>
__device__ __forceinline__ void multiply_left(Sums<COLUMNS>& sums, RealMatrix<FIRST>& matrix, int rows,
                                              Complex<FIRST, SECOND>& x, int column, int depth) {
  const int lane = threadIdx.x % WARP;
#pragma unroll 1
  for (int k = 0; k < depth; k += 16) {
    u32 a[4];
    if (TRANSPOSED)
      ldmatrix_x4_trans(a, matrix.chunk(k + lane / 16 * 8 + lane % 8, rows / EACH + lane / 8 % 2));
    else
      ldmatrix_x4(a, matrix.chunk(rows + lane % 16, k / EACH + lane / 16));
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
      u32 b_re[4], b_im[4];
      ldmatrix_x4_trans(b_re, x.re.chunk(k + lane % 16, column / EACH + i + lane / 16));
      ldmatrix_x4_trans(b_im, x.im.chunk(k + lane % 16, column / EACH + i + lane / 16));
      add_products(sums, i, a, a, b_re, b_im);
    }
  }
}

// the rows of a warp times columns of the matrix, transposed, or not
template <bool TRANSPOSED>
__device__ __forceinline__ void multiply_right(Sums<COLUMNS>& sums, const Operand<SECOND>& rows,
                                               RealMatrix<SECOND>& matrix, int column) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int k = 0; k < SECOND / 16; ++k)
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
      u32 b[4];
      if (TRANSPOSED)
        ldmatrix_x4(b, matrix.chunk(column + i * 8 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
      else
        ldmatrix_x4_trans(b, matrix.chunk(k * 16 + lane % 16, column / EACH + i + lane / 16));
      add_products(sums, i, rows.re[k], rows.im[k], b, b);
    }
}

// a pair of sequences, in x, becomes its convolution and goes to to(0) and to(1), the second of which may be
// null, and both. `depth` rows of x are not zero. all threads of the block have to call
template <class To>
__device__ __forceinline__ void convolve(RealMatrix<FIRST>& left, RealMatrix<SECOND>& right,
                                         Complex<FIRST, SECOND>& x, const float2* spectrum,
                                         const PairedTurns& turns, const To& to, int length, int depth) {
  const int rows = threadIdx.x % GROUP_THREADS / WARP * 16, row = rows + threadIdx.x % WARP / 4;
  const bool edge = rows == 0;  // a lane of the warp may be one
  Operand<SECOND> places, frequencies;
  PairedTurns forward = turns, back = turns;
#pragma unroll
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums<COLUMNS> sums = {};
    multiply_left<false>(sums, left, rows, x, column, depth);
    if (edge)
      forward.forward<true>(sums);
    else
      forward.forward<false>(sums);
    places.set(sums, column);
  }
  __syncthreads();  // everyone is done with the sequences
#pragma unroll
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums<COLUMNS> sums = {};
    multiply_right<true>(sums, places, right, column);
    const Spectrum<COLUMNS> factors(spectrum, frequency_of(row), column);
    if (edge)
      factors.multiply<true>(sums, turns.edge);
    else
      factors.multiply<false>(sums, false);
    frequencies.set(sums, column);
  }
#pragma unroll
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums<COLUMNS> sums = {};
    multiply_right<false>(sums, frequencies, right, column);
    if (edge)
      back.back<true>(sums);
    else
      back.back<false>(sums);
    store_rows_of_lane(x, sums, row, column);
  }
  __syncthreads();  // the rows of all warps are there

  IN *const first = to(0), *const second = to(1);
  if (rows * SECOND >= length || !first) return;  // nothing of these rows is stored
#pragma unroll 1
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums<COLUMNS> sums = {};
    multiply_left<true>(sums, left, rows, x, column, FIRST);
    store_part(first, sums.re, row, column, length);
    if (second) store_part(second, sums.im, row, column, length);
  }
}
