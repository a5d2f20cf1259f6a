// HOLDERS threads a block, OF_A_ROW share a row
#include "tile/row_reduce.cuh"

// x -> a x + b, one after the other: the order matters
struct Affine {
  struct Value {
    float a, b;
  };
  static constexpr bool COMMUTES = false;
  static __device__ Value identity() { return {1.f, 0.f}; }
  static __device__ Value combine(Value first, Value then) {
    return {then.a * first.a, then.a * first.b + then.b};
  }
};

// y[t] = {sum, maximum} of x over the group of t. x: (HOLDERS), y: (HOLDERS, 2)
extern "C" __global__ void reduced(const float* x, float* y) {
  __shared__ RowScratch<Sum, HOLDERS> sums;
  __shared__ RowScratch<Max, HOLDERS> maxima;
  y[2 * threadIdx.x] = row_reduce<Sum, OF_A_ROW, HOLDERS>(x[threadIdx.x], sums);
  y[2 * threadIdx.x + 1] = row_reduce<Max, OF_A_ROW, HOLDERS>(x[threadIdx.x], maxima);
}

// y[t] = the functions of the group of t, in the order of its threads. x, y: (HOLDERS, 2)
extern "C" __global__ void ordered(const float* x, float* y) {
  __shared__ RowScratch<Affine, HOLDERS> scratch;
  const Affine::Value f =
      row_reduce<Affine, OF_A_ROW, HOLDERS>({x[2 * threadIdx.x], x[2 * threadIdx.x + 1]}, scratch);
  y[2 * threadIdx.x] = f.a, y[2 * threadIdx.x + 1] = f.b;
}

// y: what a group without elements has: {0, -inf}
extern "C" __global__ void empty(float* y) {
  y[0] = Sum::identity(), y[1] = Max::identity(), y[2] = not_a_number();
}
