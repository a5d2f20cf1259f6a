// transforms over PERIOD = FIRST x SECOND places as products of complex matrices on tensor cores, a warp 16
// rows.
//
// place n = SECOND n1 + n2 is element [n1][n2], frequency k = k1 + FIRST k2 element [k1][k2]. With F the
// matrices of transforms of FIRST and of SECOND places, and W[k1][n2] = exp(-2 pi i k1 n2 / PERIOD), the
// transform is
// ((F x) o W) F, products from the left and from the right; its inverse, but for the division, is conj(F) ((z
// conj(F)) o conj(W)). accumulators of one product are the left operand of the next but for the factors and
// the rounding. Source: Fu et al., FlashFFTConv, 2023.
#pragma once
#include "../load.cuh"
#include "../sums.cuh"
#include "ptx/mma.cuh"
#include "tile/async_tile.cuh"
#include "tile/warp.cuh"

constexpr int GROUP = FIRST / 16;                 // warps of a pair of sequences
constexpr int BLOCK_WARPS = SECOND > 64 ? 8 : 4;  // of long rows one block fits on a multiprocessor
constexpr int PAIRS = GROUP < BLOCK_WARPS ? BLOCK_WARPS / GROUP : 1;
constexpr int GROUP_THREADS = GROUP * WARP, THREADS = GROUP_THREADS * PAIRS;
// blocks of a multiprocessor: one more of short rows, which need fewer registers
constexpr int RESIDENT = SECOND > 64 ? 1 : RESIDENT_WARPS / BLOCK_WARPS + (SECOND <= 32);
constexpr int COLUMNS = SECOND < 32 ? SECOND : 32,
              PARTS = SECOND / COLUMNS;  // that a warp accumulates at once

static_assert(FIRST * SECOND == PERIOD && FIRST % 16 == 0 && SECOND % COLUMNS == 0, "an mma has 16 rows");

template <int ROWS, int WIDTH>
struct Complex {
  AsyncTile<IN, ROWS, WIDTH, GROUP_THREADS> re, im;

  // by the threads of a pair: starts to load its sequences
  __device__ __forceinline__ void load(const Sequence& first, const Sequence& second) {
    load_sequence<GROUP_THREADS>(first,
                                 [&](int place) { return re.chunk(place / WIDTH, place % WIDTH / EACH); });
    load_sequence<GROUP_THREADS>(second,
                                 [&](int place) { return im.chunk(place / WIDTH, place % WIDTH / EACH); });
  }
};

// the matrices of both transforms, which are the same where both are as long
template <int LEFT, int RIGHT>
struct Matrices {
  Complex<LEFT, LEFT> left;
  Complex<RIGHT, RIGHT> other;
  __device__ __forceinline__ Complex<RIGHT, RIGHT>& right() { return other; }
};
template <int BOTH>
struct Matrices<BOTH, BOTH> {
  Complex<BOTH, BOTH> left;
  __device__ __forceinline__ Complex<BOTH, BOTH>& right() { return left; }
};

// by all threads of the block
template <int SIZE>
__device__ __forceinline__ void make_matrix(Complex<SIZE, SIZE>& matrix, const float2* roots) {
#pragma unroll 4
  for (int i = threadIdx.x; i < SIZE * SIZE; i += THREADS) {
    const int row = i / SIZE, column = i % SIZE;
    const float2 root = roots[row * column % SIZE * (PERIOD / SIZE)];
    matrix.re.chunk(row, column / EACH)[column % EACH] = from_float<IN>(root.x);
    matrix.im.chunk(row, column / EACH)[column % EACH] = from_float<IN>(root.y);
  }
}

// adds products of 16 of k: re += a[0] b_re + a[1] b_im, im += a[2] b_re + a[3] b_im, of columns i and the
// next, 8 each
__device__ __forceinline__ void add_products(Sums<COLUMNS>& sums, int i, const u32 (&a0)[4],
                                             const u32 (&a1)[4], const u32 (&a2)[4], const u32 (&a3)[4],
                                             const u32 (&b_re)[4], const u32 (&b_im)[4]) {
  auto& to_re = reinterpret_cast<float (&)[COLUMNS / 8][4]>(sums.re);
  auto& to_im = reinterpret_cast<float (&)[COLUMNS / 8][4]>(sums.im);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    mma(to_re[i + half], a0, b_re[half * 2], b_re[half * 2 + 1], IN());
    mma(to_im[i + half], a2, b_re[half * 2], b_re[half * 2 + 1], IN());
    mma(to_re[i + half], a1, b_im[half * 2], b_im[half * 2 + 1], IN());
    mma(to_im[i + half], a3, b_im[half * 2], b_im[half * 2 + 1], IN());
  }
}

__device__ __forceinline__ void negate(u32 (&to)[4], const u32 (&from)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = from[i] ^ 0x80008000u;
}

// `rows` of the matrix from the left, conjugated or not, times the columns of x from `column` on, of which
// the first `depth` rows are not zero
template <bool CONJUGATED>
__device__ __forceinline__ void multiply_left(Sums<COLUMNS>& sums, Complex<FIRST, FIRST>& matrix, int rows,
                                              Complex<FIRST, SECOND>& x, int column, int depth) {
  const int lane = threadIdx.x % WARP;
#pragma unroll 1
  for (int k = 0; k < depth; k += 16) {
    u32 re[4], im[4], negative[4];
    ldmatrix_x4(re, matrix.re.chunk(rows + lane % 16, k / EACH + lane / 16));
    ldmatrix_x4(im, matrix.im.chunk(rows + lane % 16, k / EACH + lane / 16));
    negate(negative, im);
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
      u32 b_re[4], b_im[4];
      ldmatrix_x4_trans(b_re, x.re.chunk(k + lane % 16, column / EACH + i + lane / 16));
      ldmatrix_x4_trans(b_im, x.im.chunk(k + lane % 16, column / EACH + i + lane / 16));
      if (CONJUGATED)
        add_products(sums, i, re, im, negative, re, b_re, b_im);
      else
        add_products(sums, i, re, negative, im, re, b_re, b_im);
    }
  }
}

// the rows of a warp times columns of the matrix, conjugated or not, which is symmetric
template <bool CONJUGATED>
__device__ __forceinline__ void multiply_right(Sums<COLUMNS>& sums, const Operand<SECOND>& rows,
                                               Complex<SECOND, SECOND>& matrix, int column) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int k = 0; k < SECOND / 16; ++k) {
    u32 negative[4];
    negate(negative, CONJUGATED ? rows.re[k] : rows.im[k]);
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
      const int row = column + i * 8 + lane / 16 * 8 + lane % 8, chunk = k * 2 + lane / 8 % 2;
      u32 b_re[4], b_im[4];
      ldmatrix_x4(b_re, matrix.re.chunk(row, chunk));
      ldmatrix_x4(b_im, matrix.im.chunk(row, chunk));
      if (CONJUGATED)
        add_products(sums, i, rows.re[k], rows.im[k], rows.im[k], negative, b_re, b_im);
      else
        add_products(sums, i, rows.re[k], negative, rows.im[k], rows.re[k], b_re, b_im);
    }
  }
}

// W of the elements of a lane: those of columns 0 and 1 from a table, others from the one 8 columns before
struct Turns {
  float2 first[2][2], step[2];

  // of rows `row` and 8 further down
  __device__ __forceinline__ Turns(const float2* roots, int row) {
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k1 = row + half * 8;
#pragma unroll
      for (int j = 0; j < 2; ++j) first[half][j] = roots[k1 * (column + j)];
      step[half] = roots[k1 * 8];
    }
  }

  // the columns from `column` on, times W or its conjugate; columns are taken in order
  template <bool CONJUGATED>
  __device__ __forceinline__ void turn(Sums<COLUMNS>& sums) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) {
      float2& root = first[i / 2 % 2][i % 2];
      const float2 product = float2{sums.re[i], sums.im[i]} * (CONJUGATED ? conjugate(root) : root);
      sums.re[i] = product.x;
      sums.im[i] = product.y;
      root = root * step[i / 2 % 2];
    }
  }
};

// to the exchange between warps: what a lane holds of row `row` and the one 8 further down, columns from
// `column` on
__device__ __forceinline__ void store_rows_of_lane(Complex<FIRST, SECOND>& x, const Sums<COLUMNS>& sums,
                                                   int row, int column) {
#pragma unroll
  for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int chunk = column / EACH + i, at = threadIdx.x % 4 * 2;
      const float *re = &sums.re[i * 4 + half * 2], *im = &sums.im[i * 4 + half * 2];
      *reinterpret_cast<u32*>(x.re.chunk(row + half * 8, chunk) + at) = pair_from_float<IN>(re[0], re[1]);
      *reinterpret_cast<u32*>(x.im.chunk(row + half * 8, chunk) + at) = pair_from_float<IN>(im[0], im[1]);
    }
}

// columns from `column` on of two rows of y, of which the first is `row`; those of one part
__device__ __forceinline__ void store_part(IN* y, const float (&sums)[COLUMNS / 2], int row, int column,
                                           int length) {
  const int at[2] = {row * SECOND + column, (row + 8) * SECOND + column};
  if constexpr (COLUMNS % 32 == 0) {
    if (length % SECOND == 0) {  // a row is in the sequence, or it is not
      const bool inside[2] = {at[0] < length, at[1] < length};
      store_rows({y + at[0], y + at[1]}, inside, sums, COLUMNS, true);
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int place = at[j / 2] + i * 8 + threadIdx.x % 4 * 2 + j % 2;
      if (place < length) y[place] = from_float<IN>(sums[i * 4 + j]);
    }
}

// a pair of sequences, in x, becomes its convolution and goes to to(0) and to(1), the second of which may be
// null, and both. `depth` rows of x are not zero. all threads of the block have to call
template <class To>
__device__ __forceinline__ void convolve(Matrices<FIRST, SECOND>& matrices, Complex<FIRST, SECOND>& x,
                                         const float2* spectrum, const float2* roots, const To& to,
                                         int length, int depth) {
  const int rows = threadIdx.x % GROUP_THREADS / WARP * 16, row = rows + threadIdx.x % WARP / 4;
  Operand<SECOND> places, frequencies;
  Turns turns(roots, row);
#pragma unroll
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums<COLUMNS> sums = {};
    multiply_left<false>(sums, matrices.left, rows, x, column, depth);
    turns.turn<false>(sums);
    places.set(sums, column);
  }
  __syncthreads();  // everyone is done with the sequences
#pragma unroll
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums<COLUMNS> sums = {};
    multiply_right<false>(sums, places, matrices.right(), column);
    sums.every([&](int half, int k2, float& re, float& im) {
      const float2 product = float2{re, im} * spectrum[row + half * 8 + FIRST * (column + k2)];
      re = product.x;
      im = product.y;
    });
    frequencies.set(sums, column);
  }
  Turns back(roots, row);
#pragma unroll
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums<COLUMNS> sums = {};
    multiply_right<true>(sums, frequencies, matrices.right(), column);
    back.turn<true>(sums);
    store_rows_of_lane(x, sums, row, column);
  }
  __syncthreads();  // the rows of all warps are there

  IN *const first = to(0), *const second = to(1);
  if (rows * SECOND >= length || !first) return;  // nothing of these rows is stored
#pragma unroll 1
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums<COLUMNS> sums = {};
    multiply_left<true>(sums, matrices.left, rows, x, column, FIRST);
    store_part(first, sums.re, row, column, length);
    if (second) store_part(second, sums.im, row, column, length);
  }
}
