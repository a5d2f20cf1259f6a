#include "tile/warp.cuh"

// y[t] = the sum of x over the warp of t. x, y: (THREADS)
extern "C" __global__ void sum(const float* x, float* y) { y[threadIdx.x] = warp_sum(x[threadIdx.x]); }

// y[w, i] = sum_lane x[w, lane, i]. x: (warps, 32, 32), y: (warps, 32)
extern "C" __global__ void sums(const float* x, float* y) {
  float v[WARP];
  for (int i = 0; i < WARP; ++i) v[i] = x[threadIdx.x * WARP + i];
  y[threadIdx.x] = warp_sums(v, threadIdx.x % WARP);
}
