// c[n] = sum_k a[k] B[n, k]. a: (K), B: (N, K), rows ldb elements apart, c: (N). partial: (splits, N),
// scratch.
//
// stage 4, split k: where rows are few, several warps share one. warp (n, s) multiplies the s-th part of k of
// row n, which has `part` elements, and stores its sum in `partial`. a second kernel adds up the parts in a
// fixed order, so that the result is the same every time. with one part per row this is stage 3, and there is
// nothing to add up.
//
// what it gains: enough warps are at work, whatever the shape of B.
//
// what limits it: device memory. for a small B, the second launch, some 3 us.

#include "tile/dot.cuh"

static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a part of a row");

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    matvec_parts(const IN* __restrict__ a, const IN* __restrict__ B, float* __restrict__ partial,
                 OUT* __restrict__ c, int N, int K, int ldb, int part) {
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

extern "C" __global__ void __launch_bounds__(THREADS)
    matvec_finish(const float* __restrict__ partial, OUT* __restrict__ c, int N, int splits) {
  const int n = blockIdx.x * THREADS + threadIdx.x;
  if (n >= N) return;
  float sum = 0.f;
  for (int s = 0; s < splits; ++s) sum += partial[static_cast<long long>(s) * N + n];
  c[n] = from_float<OUT>(sum);
}
