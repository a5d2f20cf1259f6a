// transforms over PERIOD = FIRST x SECOND places by matrices of real numbers, which frequencies k and -k
// share.
//
// the element of frequency k is c - i s, and that of -k is c + i s: c are the products with cosines, s those
// with sines. a matrix of SIZE x SIZE has 8 rows of cosines, then 8 of sines, of the same frequencies, and so
// on. so the lane that holds c of an accumulator has s as well, and keeps k and -k in their places. the
// inverse transform multiplies by the transposed matrix: z_k and z_-k contribute (z_k + z_-k) cos + i (z_k -
// z_-k) sin.
//
// the matrix from the left has frequencies 0, 1, ..., FIRST / 2 - 1 and their negatives; as 0 is its own,
// -FIRST / 2 is in its place, the `edge`. the matrix from the right has 1/2, 3/2, ...: frequency k is k1 +
// FIRST k2, k2 one of those.
#pragma once
#include "products.cuh"

template <int SIZE>
using RealMatrix = AsyncTile<IN, SIZE, SIZE, GROUP_THREADS>;

// which of the frequencies that have cosines and sines a row of a matrix is
__device__ __forceinline__ int frequency_of(int row) { return row / 16 * 8 + row % 8; }

// those of the rows of a lane are this one and its negative
__device__ __forceinline__ int frequency_of_lane() {
  return frequency_of(threadIdx.x % GROUP_THREADS / WARP * 16 + threadIdx.x % WARP / 4);
}

// by all threads of the block. frequencies are 1/2 more, `SHIFTED`, or SIZE / 2
template <bool SHIFTED, int SIZE>
__device__ __forceinline__ void make_matrix(RealMatrix<SIZE>& matrix, const float2* roots) {
  for (int i = threadIdx.x; i < SIZE * SIZE / EACH; i += THREADS) {
    const int row = i / (SIZE / EACH), chunk = i % (SIZE / EACH), frequency = frequency_of(row);
    const bool sine = row & 8, edge = !SHIFTED && sine && frequency == 0;
    const int step = (edge ? 0 : 2 * frequency + (SHIFTED ? 1 : SIZE)) * (PERIOD / (2 * SIZE));
    Vector<IN, EACH> v;
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
      const float2 root = roots[step * (chunk * EACH + j) & PERIOD - 1];
      v.x[j] = from_float<IN>(sine && !edge ? -root.y : root.x);
    }
    store_vector(matrix.chunk(row, chunk), v);
  }
}

// sums += a times two groups of 8 columns, both parts
__device__ __forceinline__ void add_products(Sums& sums, int i, const u32 (&a_re)[4], const u32 (&a_im)[4],
                                             const u32 (&b_re)[4], const u32 (&b_im)[4]) {
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
__device__ __forceinline__ void multiply_left(Sums& sums, RealMatrix<FIRST>& matrix, int rows,
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
__device__ __forceinline__ void multiply_right(Sums& sums, const Operand& rows, RealMatrix<SECOND>& matrix,
                                               int column) {
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

// products with cosines and with sines become the elements of frequencies k and -k
__device__ __forceinline__ void to_frequencies(float2& c, float2& s) {
  const float2 negative = {c.x - s.y, c.y + s.x};
  c = {c.x + s.y, c.y - s.x};
  s = negative;
}

// elements of frequencies k and -k become what the cosines and the sines multiply
__device__ __forceinline__ void from_frequencies(float2& positive, float2& negative) {
  const float2 sum = positive + negative;
  negative = {negative.y - positive.y, positive.x - negative.x};
  positive = sum;
}

// `work` gets the column and two elements, those of cosines and sines, or of frequencies k and -k: of the
// rows of a lane
template <class Work>
__device__ __forceinline__ void every_pair_of_rows(Sums& sums, const Work& work) {
#pragma unroll
  for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float2 one = {sums.re[i * 4 + j], sums.im[i * 4 + j]},
             other = {sums.re[i * 4 + 2 + j], sums.im[i * 4 + 2 + j]};
      work(i, j, one, other);
      sums.re[i * 4 + j] = one.x, sums.im[i * 4 + j] = one.y;
      sums.re[i * 4 + 2 + j] = other.x, sums.im[i * 4 + 2 + j] = other.y;
    }
}

// the same of columns: of row 0 or 1 of the lane, and of pair `slot` of frequencies of the columns
template <class Work>
__device__ __forceinline__ void every_pair_of_columns(Sums& sums, const Work& work) {
#pragma unroll
  for (int i = 0; i < COLUMNS / 8; i += 2)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 one = {sums.re[i * 4 + j], sums.im[i * 4 + j]},
             other = {sums.re[i * 4 + 4 + j], sums.im[i * 4 + 4 + j]};
      work(j / 2, i * 4 + j % 2, one, other);
      sums.re[i * 4 + j] = one.x, sums.im[i * 4 + j] = one.y;
      sums.re[i * 4 + 4 + j] = other.x, sums.im[i * 4 + 4 + j] = other.y;
    }
}

// W[k1][n2] = exp(-2 pi i k1 n2 / PERIOD) of the rows k1 and -k1 of a lane, which are conjugates: those of
// columns 0 and 1 from a table, others from the one 8 columns before
struct PairedTurns {
  float2 first[2], step;
  bool edge;  // of the lane: its rows are 0 and -FIRST / 2

  __device__ __forceinline__ PairedTurns(const float2* roots, int frequency) : edge(frequency == 0) {
    const int column = threadIdx.x % 4 * 2, k1 = edge ? FIRST / 2 : frequency;
#pragma unroll
    for (int j = 0; j < 2; ++j) first[j] = roots[k1 * (column + j)];
    step = roots[k1 * 8];
  }

  // the next root of column 0 or 1
  __device__ __forceinline__ float2 take(int j) {
    const float2 root = first[j];
    first[j] = root * step;
    return root;
  }

  // products with cosines and sines become elements, times W; columns are taken in order. EDGE: a lane may be
  // one
  template <bool EDGE>
  __device__ __forceinline__ void forward(Sums& sums) {
    every_pair_of_rows(sums, [&](int, int j, float2& c, float2& s) {
      const float2 root = take(j), product = s * conjugate(root), same = c;
      to_frequencies(c, s);
      c = c * root, s = s * conjugate(root);
      if (EDGE && edge) c = same, s = product;
    });
  }

  // elements, times the conjugate of W, become what cosines and sines multiply
  template <bool EDGE>
  __device__ __forceinline__ void back(Sums& sums) {
    every_pair_of_rows(sums, [&](int, int j, float2& positive, float2& negative) {
      const float2 root = take(j), same = positive;
      positive = positive * conjugate(root), negative = negative * root;
      const float2 product = negative;
      from_frequencies(positive, negative);
      if (EDGE && edge) positive = same, negative = product;
    });
  }
};

// where the elements of a lane are in a spectrum
struct Spectrum {
  const float2 *positive[2], *negative[2];  // of both rows, column 0: frequencies k2 and -k2

  __device__ __forceinline__ Spectrum(const float2* spectrum, int frequency) {
    const int first = FIRST / 2 + FIRST * (threadIdx.x % 4 * 2);
    const int k1[2] = {frequency, -(frequency ? frequency : FIRST / 2)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      positive[half] = spectrum + k1[half] + first;
      negative[half] = spectrum + PERIOD + k1[half] - first;
    }
  }

  // products of columns with cosines and sines become products of their elements, and what both multiply on
  // the way back. column `column` of the matrix is the first
  __device__ __forceinline__ void multiply(Sums& sums, int column) const {
    every_pair_of_columns(sums, [&](int half, int slot, float2& c, float2& s) {
      const int away = FIRST * (column / 2 + slot);
      to_frequencies(c, s);
      c = c * positive[half][away], s = s * negative[half][-away];
      from_frequencies(c, s);
    });
  }
};

// a pair of sequences, in x, becomes its convolution in y; the second of y may be null, and both. `depth`
// rows of x are not zero. all threads of the block have to call
__device__ __forceinline__ void convolve(RealMatrix<FIRST>& left, RealMatrix<SECOND>& right,
                                         Complex<FIRST, SECOND>& x, const Spectrum& spectrum,
                                         const PairedTurns& turns, IN* const (&y)[2], int length, int depth) {
  const int rows = threadIdx.x % GROUP_THREADS / WARP * 16, row = rows + threadIdx.x % WARP / 4;
  const bool edge = rows == 0;  // a lane of the warp may be one
  Operand places, frequencies;
  PairedTurns forward = turns, back = turns;
#pragma unroll
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums sums;
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
    Sums sums;
    multiply_right<true>(sums, places, right, column);
    spectrum.multiply(sums, column);
    frequencies.set(sums, column);
  }
#pragma unroll
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums sums;
    multiply_right<false>(sums, frequencies, right, column);
    if (edge)
      back.back<true>(sums);
    else
      back.back<false>(sums);
    store_rows_of_lane(x, sums, row, column);
  }
  __syncthreads();  // the rows of all warps are there

  if (rows * SECOND >= length || !y[0]) return;  // nothing of these rows is stored
#pragma unroll 1
  for (int column = 0; column < SECOND; column += COLUMNS) {
    Sums sums;
    multiply_left<true>(sums, left, rows, x, column, FIRST);
    store_part(y[0], sums.re, row, column, length);
    if (y[1]) store_part(y[1], sums.im, row, column, length);
  }
}
