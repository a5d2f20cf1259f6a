// transforms over PERIOD = FIRST x SECOND places by matrices of real numbers, which frequencies k and -k
// share.
//
// the element of frequency k is c - i s, and that of -k is c + i s: c are the products with cosines, s those
// with sines. a matrix of SIZE x SIZE has 8 rows of cosines, then 8 of sines, of the same frequencies, and so
// on. so the lane that holds c of an accumulator has s as well, and keeps k and -k in their places. the
// inverse transform multiplies by the transposed matrix: z_k and z_-k contribute (z_k + z_-k) cos + i (z_k -
// z_-k) sin.
//
// frequency k is k1 + FIRST k2. k2 is 1/2, 3/2, ... or its negative. k1 is 0, 1, ..., FIRST / 2 - 1 or its
// negative; as 0 is its own, -FIRST / 2 is in its place, the `edge`. FIRST k2 is FIRST / 2 more than a
// multiple of FIRST, so the matrix from the left has the frequencies FIRST / 2 + k1.
#pragma once
#include "load.cuh"
#include "sums.cuh"

// which of the frequencies that have cosines and sines a row of a matrix is
__device__ __forceinline__ int frequency_of(int row) { return row / 16 * 8 + row % 8; }

// by the THREADS of a block: row and chunk of the matrix go to `to(row, chunk)`. frequencies are 1/2 more,
// `SHIFTED`, or SIZE / 2
template <bool SHIFTED, int SIZE, int THREADS, class To>
__device__ __forceinline__ void make_matrix(const float2* roots, const To& to) {
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
    store_vector(to(row, chunk), v);
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
template <int COLUMNS, class Work>
__device__ __forceinline__ void every_pair_of_rows(Sums<COLUMNS>& sums, const Work& work) {
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

// `work` gets a pair of frequencies of the columns, and of both rows of a lane the two elements of it
template <int COLUMNS, class Work>
__device__ __forceinline__ void every_square(Sums<COLUMNS>& sums, const Work& work) {
#pragma unroll
  for (int i = 0; i < COLUMNS / 8; i += 2)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float2 x[2][2];
#pragma unroll
      for (int k = 0; k < 4; ++k)
        x[k / 2][k % 2] = {sums.re[(i + k % 2) * 4 + k / 2 * 2 + j],
                           sums.im[(i + k % 2) * 4 + k / 2 * 2 + j]};
      work(i + j, x[0], x[1]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        sums.re[(i + k % 2) * 4 + k / 2 * 2 + j] = x[k / 2][k % 2].x;
        sums.im[(i + k % 2) * 4 + k / 2 * 2 + j] = x[k / 2][k % 2].y;
      }
    }
}

// W[k1][n2] = exp(-2 pi i k1 n2 / PERIOD) of the rows k1 and -k1 of a lane, which are conjugates: those of
// columns 0 and 1 from a table, others from the one 8 columns before. columns begin again after SECOND
struct PairedTurns {
  float2 first[2], step, own[2];
  bool edge;  // of the lane: its rows are 0 and -FIRST / 2

  __device__ __forceinline__ PairedTurns(const float2* roots, int frequency) : edge(frequency == 0) {
    const int column = threadIdx.x % 4 * 2, k1 = edge ? FIRST / 2 : frequency;
#pragma unroll
    for (int j = 0; j < 2; ++j) first[j] = own[j] = roots[k1 * (column + j)];
    step = roots[k1 * 8];
  }

  // hides from the compiler that the roots are always the same: so it does not keep all of them in registers
  __device__ __forceinline__ void renew() { asm volatile("" : "+f"(step.x), "+f"(step.y)); }

  // the next root of column 0 or 1, of group i of 8 columns
  template <int COLUMNS>
  __device__ __forceinline__ float2 take(int i, int j) {
    if (COLUMNS >= SECOND && i * 8 % SECOND == 0) own[j] = first[j];
    const float2 root = own[j];
    own[j] = root * step;
    return root;
  }

  // products with cosines and sines become elements, times W; columns are taken in order. EDGE: a lane may be
  // one
  template <bool EDGE, int COLUMNS>
  __device__ __forceinline__ void forward(Sums<COLUMNS>& sums) {
    every_pair_of_rows(sums, [&](int i, int j, float2& c, float2& s) {
      const float2 root = take<COLUMNS>(i, j), product = s * conjugate(root), same = c;
      to_frequencies(c, s);
      c = c * root, s = s * conjugate(root);
      if (EDGE && edge) c = same, s = product;
    });
  }

  // elements, times the conjugate of W, become what cosines and sines multiply
  template <bool EDGE, int COLUMNS>
  __device__ __forceinline__ void back(Sums<COLUMNS>& sums) {
    every_pair_of_rows(sums, [&](int i, int j, float2& positive, float2& negative) {
      const float2 root = take<COLUMNS>(i, j), same = positive;
      positive = positive * conjugate(root), negative = negative * root;
      const float2 product = negative;
      from_frequencies(positive, negative);
      if (EDGE && edge) positive = same, negative = product;
    });
  }
};

// the spectrum of a filter at the frequencies of a lane. a filter is real, so elements of k and -k are
// conjugates
template <int COLUMNS>
struct Spectrum {
  float2 of_row[COLUMNS / 8][2];      // of the first row: pairs of frequencies of the columns
  const float2 *positive, *negative;  // where those of the second row are, if the lane is an edge

  // columns from `column` of the matrix on
  __device__ __forceinline__ Spectrum(const float2* spectrum, int frequency, int column) {
    const int first = FIRST / 2 + FIRST * (threadIdx.x % 4 * 2);
    positive = spectrum + first - FIRST / 2 + away(column, 0);
    negative = spectrum + PERIOD - first - FIRST / 2 - away(column, 0);
    const float2 *const own = positive + FIRST / 2 + frequency, *const other =
                                                                    negative + FIRST / 2 + frequency;
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; ++i) {
      of_row[i][0] = own[away(0, i)];
      of_row[i][1] = other[-away(0, i)];
    }
  }

  // how far pair i of frequencies is from that of column 0
  static __device__ __forceinline__ int away(int column, int i) {
    return FIRST * ((column / 2 + i / 2 * 8 + i % 2) % (SECOND / 2));
  }

  // products of columns with cosines and sines become products of their elements, and what both multiply on
  // the way back. EDGE: a lane may be one
  template <bool EDGE>
  __device__ __forceinline__ void multiply(Sums<COLUMNS>& sums, bool edge) const {
    every_square(sums, [&](int i, float2(&row)[2], float2(&other)[2]) {
      const float2(&h)[2] = of_row[i];
      float2 of_other[2] = {conjugate(h[1]), conjugate(h[0])};
      if (EDGE && edge) of_other[0] = positive[away(0, i)], of_other[1] = negative[-away(0, i)];
      to_frequencies(row[0], row[1]);
      to_frequencies(other[0], other[1]);
#pragma unroll
      for (int j = 0; j < 2; ++j) row[j] = row[j] * h[j], other[j] = other[j] * of_other[j];
      from_frequencies(row[0], row[1]);
      from_frequencies(other[0], other[1]);
    });
  }
};
