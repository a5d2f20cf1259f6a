// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart.
//
// stage 1 of simt, naive: one thread computes one element of C. neighbouring threads of a warp take
// neighbouring rows, which is the mapping that everyone writes first. threads share nothing. the stage only
// has to be correct, because the other stages are compared with it.
//
// what limits it: each lane of a warp reads another row of A, so a load touches 16 lines of 128 bytes and
// uses 2 or 4 bytes of each. there are two loads for every multiplication. stores of C are equally scattered.

#include "tile/convert.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y)
    gemm_naive(const IN* A, const IN* B, OUT* C, int M, int N, int K, int lda, int ldb, int ldc) {
  const int m = blockIdx.x * BLOCK_X + threadIdx.x;
  const int n = blockIdx.y * BLOCK_Y + threadIdx.y;
  if (m >= M || n >= N) return;

  const IN* a = A + static_cast<long long>(m) * lda;
  const IN* b = TRANS_B ? B + static_cast<long long>(n) * ldb : B + n;
  const long long b_step = TRANS_B ? 1 : ldb;

  float sum = 0.f;
  for (int k = 0; k < K; ++k) sum += to_float(a[k]) * to_float(b[k * b_step]);
  C[static_cast<long long>(m) * ldc + n] = from_float<OUT>(sum);
}
