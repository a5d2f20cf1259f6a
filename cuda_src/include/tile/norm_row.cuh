// what norms need of a row: the sum of its squares, or mean and variance, and the normalised elements.
#pragma once
#include "tile/row.cuh"
#include "tile/row_reduce.cuh"

// sum of COUNT vectors; elements outside of the row have to be 0
template <int COUNT, int WIDTH, class Element>
__device__ __forceinline__ float sum_elements(const Vector<Element, WIDTH> (&v)[COUNT]) {
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const Floats from(v[i]);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum += from.x[j];
  }
  return sum;
}

// sum of the squares of COUNT vectors; elements outside of the row have to be 0
template <int COUNT, int WIDTH, class Element>
__device__ __forceinline__ float sum_squares(const Vector<Element, WIDTH> (&v)[COUNT]) {
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const Floats from(v[i]);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum += from.x[j] * from.x[j];
  }
  return sum;
}

// number, mean and sum of the squared differences from the mean of some elements. two such are combined
// without cancellation (Chan, Golub and LeVeque), where E[x^2] - E[x]^2 loses everything if the mean is large
struct Moments {
  struct Value {
    float count, mean, squares;
  };
  static constexpr bool COMMUTES = false;

  static __device__ __forceinline__ Value identity() { return {0.f, 0.f, 0.f}; }

  static __device__ __forceinline__ Value combine(Value a, Value b) {
    const float count = a.count + b.count, share = b.count > 0.f ? b.count / count : 0.f;
    const float distance = b.mean - a.mean;
    return {count, a.mean + distance * share, a.squares + b.squares + distance * distance * a.count * share};
  }
};

// number and sum of those elements of COUNT vectors that lie in the row: vector i starts at column first + i
// * step. elements outside have to be 0. WHOLE as in tile/row.cuh: a vector lies in the row or outside of it
template <bool WHOLE, int COUNT, int WIDTH, class Element>
__device__ __forceinline__ TwoSums::Value counted_sum(const Vector<Element, WIDTH> (&v)[COUNT], int first,
                                                      int step, int columns) {
  TwoSums::Value own = TwoSums::identity();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int from = max(first + i * step, 0), to = min(first + i * step + WIDTH, columns);
    own.first += static_cast<float>(WHOLE ? (from < columns ? WIDTH : 0) : max(to - from, 0));
    const Floats x(v[i]);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) own.second += x.x[j];
  }
  return own;
}

// the sum of their squared differences from `mean`
template <bool WHOLE, int COUNT, int WIDTH, class Element>
__device__ __forceinline__ float squares_about(float mean, const Vector<Element, WIDTH> (&v)[COUNT],
                                               int first, int step, int columns) {
  float squares = 0.f;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const Floats from(v[i]);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const int column = first + i * step + (WHOLE ? 0 : j);
      const float distance = from.x[j] - mean;
      if (column >= 0 && column < columns) squares += distance * distance;
    }
  }
  return squares;
}

// the moments of what a thread has
template <bool WHOLE, int COUNT, int WIDTH, class Element>
__device__ __forceinline__ Moments::Value moments(const Vector<Element, WIDTH> (&v)[COUNT], int first,
                                                  int step, int columns) {
  const TwoSums::Value own = counted_sum<WHOLE>(v, first, step, columns);
  const float mean = own.first > 0.f ? own.second / own.first : 0.f;
  return {own.first, mean, squares_about<WHOLE>(mean, v, first, step, columns)};
}

template <int BLOCK>
struct MomentsScratch {
  RowScratch<TwoSums, BLOCK> sums;
  RowScratch<Sum, BLOCK> squares;
};

// the moments of what MEMBERS threads hold: the mean of all first, and then the squares, which takes less
// than to combine moments
template <bool WHOLE, int MEMBERS, int BLOCK, int COUNT, int WIDTH, class Element>
__device__ __forceinline__ Moments::Value held_moments(const Vector<Element, WIDTH> (&v)[COUNT], int first,
                                                       int step, int columns,
                                                       MomentsScratch<BLOCK>& scratch) {
  const TwoSums::Value all =
      row_reduce<TwoSums, MEMBERS, BLOCK>(counted_sum<WHOLE>(v, first, step, columns), scratch.sums);
  const float mean = all.first > 0.f ? all.second / all.first : 0.f;
  const float squares = squares_about<WHOLE>(mean, v, first, step, columns);
  return {all.first, mean, row_reduce<Sum, MEMBERS, BLOCK>(squares, scratch.squares)};
}

// the same where they hold a whole row, the number of whose elements is known
template <bool WHOLE, int MEMBERS, int BLOCK, int COUNT, int WIDTH, class Element>
__device__ __forceinline__ Moments::Value row_moments(const Vector<Element, WIDTH> (&v)[COUNT], int first,
                                                      int step, int columns,
                                                      RowScratch<Sum, BLOCK> (&scratch)[2]) {
  const float mean = row_reduce<Sum, MEMBERS, BLOCK>(sum_elements(v), scratch[0]) / columns;
  const float squares = squares_about<WHOLE>(mean, v, first, step, columns);
  return {static_cast<float>(columns), mean, row_reduce<Sum, MEMBERS, BLOCK>(squares, scratch[1])};
}

// v scale w
template <class Out, int WIDTH, class Element>
__device__ __forceinline__ Vector<Out, WIDTH> scaled(const Vector<Element, WIDTH>& v, float scale,
                                                     const Vector<Element, WIDTH>& w) {
  const Floats from(v), weights(w);
  Vector<Out, WIDTH> y;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) y.x[j] = from_float<Out>(from.x[j] * scale * weights.x[j]);
  return y;
}

// (v - mean) scale w + b
template <class Out, int WIDTH, class Element>
__device__ __forceinline__ Vector<Out, WIDTH> standardized(const Vector<Element, WIDTH>& v, float mean,
                                                           float scale, const Vector<Element, WIDTH>& w,
                                                           const Vector<Element, WIDTH>& b) {
  const Floats from(v), weights(w), biases(b);
  Vector<Out, WIDTH> y;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j)
    y.x[j] = from_float<Out>((from.x[j] - mean) * scale * weights.x[j] + biases.x[j]);
  return y;
}

// the sum of two vectors, as it is stored
template <int WIDTH, class Element>
__device__ __forceinline__ Vector<Element, WIDTH> added(const Vector<Element, WIDTH>& a,
                                                        const Vector<Element, WIDTH>& b) {
  const Floats one(a), other(b);
  Vector<Element, WIDTH> sum;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) sum.x[j] = from_float<Element>(one.x[j] + other.x[j]);
  return sum;
}
