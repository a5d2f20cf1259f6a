// c[n] = sum_k a[k] B[n, k]. a: (K), B: (N, K), rows ldb elements apart, c: (N). partial: (splits, N),
// scratch.
//
// stage 8, overlapped split k: as stage 4, but the second kernel is launched programmatically. its blocks may
// start as soon as all blocks of the first kernel have started, and wait for its end before they read. sm_90.
//
// what it gains: the second launch costs no start of a kernel, and no end of one before it. 1024 x 65536 in bf16
// take 44.5 us on an H200, where stage 4 takes 46.0, and 35.1 back to back, where it takes 36.8.
//
// what limits it: device memory. blocks of the second kernel start where a multiprocessor has room beside the
// first.

#include "ptx/grid_dependency.cuh"
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

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    matvec_parts_first(const IN* __restrict__ a, const IN* __restrict__ B, float* __restrict__ partial,
                       OUT* __restrict__ c, int N, int K, int ldb, int part) {
  grid_dependency_launch();
  multiply_part(a, B, partial, c, N, K, ldb, part);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    matvec_finish_overlapped(const float* partial, OUT* c, int N, int splits) {
  grid_dependency_wait();
  add_parts(partial, c, N, splits);
}
