// softmax of parts of a row that a thread holds in registers.
#pragma once
#include "tile/online_softmax.cuh"
#include "tile/row.cuh"

// COUNT vectors that a thread keeps as exponentials relative to its own maximum, with that and their sum: the
// maximum first, which costs less than to rescale
template <int COUNT, int WIDTH>
struct HeldExps {
  float e[COUNT][WIDTH];
  ExpSum::Value state = ExpSum::identity();

  template <class Element>
  __device__ __forceinline__ explicit HeldExps(const Vector<Element, WIDTH> (&v)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) state.max = fmaxf(state.max, to_float(v[i].x[j]));
    const float base = ExpSum::base(state.max);
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) state.sum += e[i][j] = exp_of(to_float(v[i].x[j]) - base);
  }

  // what they have to be multiplied with to be probabilities of the row of this state: 0 where all are masked
  __device__ __forceinline__ float scale(ExpSum::Value row) const {
    return exp_of(state.max - ExpSum::base(row.max)) * reciprocal_sum(row);
  }

  template <class Out>
  __device__ __forceinline__ Vector<Out, WIDTH> probabilities(int i, float scale) const {
    Vector<Out, WIDTH> p;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) p.x[j] = from_float<Out>(e[i][j] * scale);
    return p;
  }
};

// maximum and sum alone
template <int COUNT, int WIDTH, class Element>
__device__ __forceinline__ ExpSum::Value exp_sum(const Vector<Element, WIDTH> (&v)[COUNT]) {
  return HeldExps<COUNT, WIDTH>(v).state;
}

// the probabilities of a vector of logits
template <class Out, int WIDTH, class Element>
__device__ __forceinline__ Vector<Out, WIDTH> probabilities(const Vector<Element, WIDTH>& v, float base,
                                                            float scale) {
  Vector<Out, WIDTH> p;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) p.x[j] = from_float<Out>(exp_of(to_float(v.x[j]) - base) * scale);
  return p;
}
