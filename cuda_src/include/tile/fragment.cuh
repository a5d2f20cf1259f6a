// register fragments of wgmma: where what a thread holds of a product belongs, and how a product becomes the left
// operand of the next one.
#pragma once
#include "ptx/shared.cuh"
#include "tile/convert.cuh"

// of the 64 rows that a warpgroup multiplies
struct FragmentPlace {
  int row, column;
};

// where element i of a thread's accumulators belongs
__device__ __forceinline__ FragmentPlace fragment_place(int i) {
  const int t = threadIdx.x % 128;
  return {t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, i / 4 * 8 + t % 4 * 2 + i % 2};
}

// accumulators, rounded to 16 bits, as registers of the left operands of wgmmas of 16 of k each: columns of the
// product become k. nothing has to move between threads
template <class Element, int OPERANDS, int SUMS>
__device__ __forceinline__ void to_left_operand(unsigned (&a)[OPERANDS][4], const float (&sum)[SUMS]) {
  static_assert(OPERANDS * 8 == SUMS, "an operand has 16 columns of the product, 8 elements of a thread");
#pragma unroll
  for (int operand = 0; operand < OPERANDS; ++operand)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[operand][i] = pair_from_float<Element>(sum[operand * 8 + i * 2], sum[operand * 8 + i * 2 + 1]);
}
