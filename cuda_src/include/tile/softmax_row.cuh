// softmax of parts of a row that a thread holds in registers.
#pragma once
#include "tile/online_softmax.cuh"
#include "tile/row.cuh"

// maximum and sum of COUNT vectors: the maximum first, which costs less than to rescale
template <int COUNT, int WIDTH, class Element>
__device__ __forceinline__ ExpSum::Value exp_sum(const Vector<Element, WIDTH> (&v)[COUNT]) {
  ExpSum::Value state = ExpSum::identity();
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) state.max = fmaxf(state.max, to_float(v[i].x[j]));
  const float base = ExpSum::base(state.max);
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) state.sum += exp_of(to_float(v[i].x[j]) - base);
  return state;
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
