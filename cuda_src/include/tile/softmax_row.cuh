// softmax of parts of a row that a thread holds in registers.
#pragma once
#include "ptx/ex2.cuh"
#include "tile/online_softmax.cuh"
#include "tile/row.cuh"

template <int COUNT, int WIDTH, class Element>
__device__ __forceinline__ float largest(const Vector<Element, WIDTH> (&v)[COUNT]) {
  float max = -infinity();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const Floats from(v[i]);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) max = fmaxf(max, from.x[j]);
  }
  return max;
}

// COUNT vectors that a thread keeps as exponentials relative to its own maximum, with that and their sum: the
// maximum first, which costs less than to rescale
template <int COUNT, int WIDTH>
struct HeldExps {
  float e[COUNT][WIDTH];
  ExpSum::Value state = ExpSum::identity();

  template <class Element>
  __device__ __forceinline__ explicit HeldExps(const Vector<Element, WIDTH> (&v)[COUNT]) {
    state.max = largest(v);
    const float base = ExpSum::base(state.max);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const Floats from(v[i]);
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) state.sum += e[i][j] = exp_of(from.x[j] - base);
    }
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

// maximum and sum alone. ex2 takes three instructions less than exp_of, which finds subnormal numbers, too:
// in a sum that has a 1 they are nothing
template <int COUNT, int WIDTH, class Element>
__device__ __forceinline__ ExpSum::Value exp_sum(const Vector<Element, WIDTH> (&v)[COUNT]) {
  ExpSum::Value state = {largest(v), 0.f};
  const float base = ExpSum::base(state.max);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const Floats from(v[i]);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) state.sum += ex2((from.x[j] - base) * LOG2_E);
  }
  return state;
}

// the probabilities of a vector of logits
template <class Out, int WIDTH, class Element>
__device__ __forceinline__ Vector<Out, WIDTH> probabilities(const Vector<Element, WIDTH>& v, float base,
                                                            float scale) {
  const Floats from(v);
  Vector<Out, WIDTH> p;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) p.x[j] = from_float<Out>(exp_of(from.x[j] - base) * scale);
  return p;
}
