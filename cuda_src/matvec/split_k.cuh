// c[n] = sum_k a[k] B[n, k] by parts of k: what a thread does in the first kernel, and in the second one.
#pragma once

#include "tile/dot.cuh"

static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a part of a row");

__device__ __forceinline__ void multiply_part(const IN* __restrict__ a, const IN* __restrict__ B,
                                              float* __restrict__ partial, OUT* __restrict__ c, int N, int K,
                                              int ldb, int part) {
  const int lane = threadIdx.x % WARP;
  const int n = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (n >= N) return;
  const int k0 = blockIdx.y * part;
  const IN* b = B + static_cast<long long>(n) * ldb;

  const float sum =
      warp_dot<UNROLL>(a + k0, b + k0, min(part, K - k0), ldb * sizeof(IN) % VECTOR_BYTES == 0, lane);
  if (lane != 0) return;
  if (gridDim.y == 1)
    c[n] = from_float<OUT>(sum);
  else
    partial[static_cast<long long>(blockIdx.y) * N + n] = sum;
}

// where `partial` may have been written by a kernel that still runs at first: no __restrict__, which would allow
// loads that need not see it
__device__ __forceinline__ void add_parts(const float* partial, OUT* c, int N, int splits) {
  const int n = blockIdx.x * THREADS + threadIdx.x;
  if (n >= N) return;
  float sum = 0.f;
  for (int s = 0; s < splits; ++s) sum += partial[static_cast<long long>(s) * N + n];
  c[n] = from_float<OUT>(sum);
}
