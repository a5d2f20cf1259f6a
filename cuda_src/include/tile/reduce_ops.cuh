// sums and maxima of the elements of a matrix, one of them at compile time.
#pragma once
#include "tile/row.cuh"
#include "tile/row_reduce.cuh"

// max.NaN: the larger one, NaN where one of them is. sm_80
struct MaxOrNan {
  using Value = float;
  static constexpr bool COMMUTES = true;
  static __device__ __forceinline__ float identity() { return -infinity(); }
  static __device__ __forceinline__ float combine(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
  }
};

template <bool MAXIMUM_OF>
struct ReduceOp : Sum {};
template <>
struct ReduceOp<true> : MaxOrNan {};

// combines `value` with the elements of COUNT vectors; those outside have to be the identity
template <class Op, int COUNT, int WIDTH, class Element>
__device__ __forceinline__ float reduced(float value, const Vector<Element, WIDTH> (&v)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) value = Op::combine(value, to_float(v[i].x[j]));
  return value;
}
