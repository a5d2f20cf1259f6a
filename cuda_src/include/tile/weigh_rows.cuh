// online softmax of the two rows of a thread (see fragment_softmax.cuh), in parts. products of the values
// before are waited for between the weights of one row and those of the other, so both have something to hide
// behind.
#pragma once
#include "tile/fragment_softmax.cuh"

// element i of so many of a row, of those that a thread has of both rows
__device__ __forceinline__ constexpr int element_of_row(int row, int i) {
  return i / 2 * 4 + row * 2 + i % 2;
}

// takes in the largest logit of a row. returns it times `factor`, and what has been added up with earlier
// ones is to be multiplied with `rescale`
template <int SUMS>
__device__ __forceinline__ float take_maximum(FragmentSoftmax& softmax, int row, const float (&x)[SUMS],
                                              float factor, float& rescale) {
  constexpr int CHAINS = FragmentSoftmax::CHAINS;
  float most[CHAINS];
#pragma unroll
  for (int i = 0; i < SUMS / 2; ++i)
    most[i % CHAINS] = fmaxf(i < CHAINS ? softmax.max[row] : most[i % CHAINS], x[element_of_row(row, i)]);
  const float largest = warp_reduce<Max, ROW_LANES>(fmaxf(most[0], most[1]));
  const float relative_to = ExpSum::base(largest);
  rescale = ex2((softmax.max[row] - relative_to) * factor);  // 1 while the maximum stays: else sums drift
  softmax.max[row] = largest;
  return relative_to * factor;
}

// logits of a row become weights, 2^(factor x - base)
template <int SUMS>
__device__ __forceinline__ void weigh_row(FragmentSoftmax& softmax, int row, float (&x)[SUMS], float factor,
                                          float base, float rescale) {
  float sum = softmax.sum[row] * rescale;
#pragma unroll
  for (int i = 0; i < SUMS / 2; ++i) {
    float& weight = x[element_of_row(row, i)];
    weight = ex2(weight * factor - base);
    sum += weight;
  }
  softmax.sum[row] = sum;
}
