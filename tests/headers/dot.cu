// y[lane] = sum_i a[offset + i] b[offset + i], i < length, in every lane. y: (32)
#include "dot.cuh"

extern "C" __global__ void dot(const TYPE* a, const TYPE* b, float* y, int length, int offset) {
  y[threadIdx.x] = warp_dot<IN_FLIGHT>(a + offset, b + offset, length, offset == 0, threadIdx.x);
}
