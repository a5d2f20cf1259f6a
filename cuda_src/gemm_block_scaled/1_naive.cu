// C[m, n] = sum_k a_scale[m, k / BLOCK] A[m, k] b_scale[n, k / BLOCK] B[n, k]. A: (M, K), B: (N, K), of e4m3, or of
// e2m1 that are packed two a byte; C: (M, N); rows are lda, ldb, ldc elements apart. scales lie in tiles of 128 rows
// and 4 blocks: see scale_of.
//
// stage 1, naive: one thread computes one element of C, and decodes all numbers by hand. the stage only has to be
// correct, because the other stages are compared with it.
//
// what limits it: each number is decoded again for each element of C.

#include "decode.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y)
    gemm_block_scaled_naive(const IN* A, const IN* B, const SCALE* a_scale, const SCALE* b_scale, OUT* C, int M, int N,
                            int K, int lda, int ldb, int ldc) {
  const int n = blockIdx.x * BLOCK_X + threadIdx.x;
  const int m = blockIdx.y * BLOCK_Y + threadIdx.y;
  if (m >= M || n >= N) return;

  const IN* a = A + static_cast<long long>(m) * lda / PACKING;
  const IN* b = B + static_cast<long long>(n) * ldb / PACKING;
  const int blocks = (K + BLOCK - 1) / BLOCK;

  float sum = 0.f;
  for (int block = 0; block < blocks; ++block) {
    float products = 0.f;
    for (int k = block * BLOCK; k < min(K, (block + 1) * BLOCK); ++k) products += element(a, k) * element(b, k);
    sum += products * (scale_of(a_scale, m, block, blocks) * scale_of(b_scale, n, block, blocks));
  }
  C[static_cast<long long>(m) * ldc + n] = from_float<OUT>(sum);
}
