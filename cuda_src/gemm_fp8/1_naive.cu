// C[m, n] = a_scale[m] b_scale[n] sum_k A[m, k] B[n, k]. A: (M, K), B: (N, K), of e4m3, C: (M, N); rows are
// lda, ldb, ldc elements apart. sm_89: e4m3 is converted in hardware.
//
// stage 1, naive: one thread computes one element of C. the stage only has to be correct, because the other
// stages are compared with it.
//
// what limits it: each number needs a conversion and a load of one byte. neighbouring threads load the same
// numbers again.

#include <cuda_fp8.h>

#include "tile/convert.cuh"

__device__ __forceinline__ float to_float(__nv_fp8_e4m3 x) { return static_cast<float>(x); }

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y)
    gemm_fp8_naive(const IN* A, const IN* B, const float* a_scale, const float* b_scale, OUT* C, int M, int N,
                   int K, int lda, int ldb, int ldc) {
  const int n = blockIdx.x * BLOCK_X + threadIdx.x;
  const int m = blockIdx.y * BLOCK_Y + threadIdx.y;
  if (m >= M || n >= N) return;

  const IN* a = A + static_cast<long long>(m) * lda;
  const IN* b = B + static_cast<long long>(n) * ldb;

  float sum = 0.f;
  for (int k = 0; k < K; ++k) sum += to_float(a[k]) * to_float(b[k]);
  C[static_cast<long long>(m) * ldc + n] = from_float<OUT>(sum * a_scale[m] * b_scale[n]);
}
