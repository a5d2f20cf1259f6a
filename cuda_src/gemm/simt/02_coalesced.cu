// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart.
//
// stage 2 of simt, coalesced: one thread still computes one element of C, but neighbouring threads of a warp
// take neighbouring columns.
//
// what it gains: where B is not transposed, the lanes of a warp read neighbouring elements of a row of B in
// one request. all lanes read the same two elements of A. C is stored in whole sectors in either layout.
//
// what limits it: there are still two loads for every multiplication, and every thread that needs an element
// loads it again. if B is transposed, each lane now reads another row of B.

#include "tile/convert.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y)
    gemm_coalesced(const IN* A, const IN* B, OUT* C, int M, int N, int K, int lda, int ldb, int ldc) {
  const int m = blockIdx.y * BLOCK_Y + threadIdx.y;
  const int n = blockIdx.x * BLOCK_X + threadIdx.x;
  if (m >= M || n >= N) return;

  const IN* a = A + static_cast<long long>(m) * lda;
  const IN* b = TRANS_B ? B + static_cast<long long>(n) * ldb : B + n;
  const long long b_step = TRANS_B ? 1 : ldb;

  float sum = 0.f;
  for (int k = 0; k < K; ++k) sum += to_float(a[k]) * to_float(b[k * b_step]);
  C[static_cast<long long>(m) * ldc + n] = from_float<OUT>(sum);
}
