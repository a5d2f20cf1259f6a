// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart.
//
// stage 10 of simt, a branch of stage 2, warp parallel: a warp computes a patch of PATCH_M x PATCH_N elements
// of C. its lanes split k. so a load reads 32 neighbouring elements of a row, and every value that is loaded
// is used for a whole row or column of the patch. at the end, shuffles add up the 32 partial sums of each
// element, and each lane stores one element.
//
// what it gains: 32 multiplications need 12 loads instead of 64. the loads of A are coalesced, and so are
// those of B if it is transposed.
//
// what limits it: if B is not transposed, the lanes still read 32 different rows of it, and only the cache
// brings neighbouring columns together. if B is transposed, the limit is the loads, conversions and
// addresses. they take more instructions than the arithmetic.

#include "tile/convert.cuh"
#include "tile/warp.cuh"

constexpr int THREADS = WARPS_M * WARPS_N * WARP;

static_assert(PATCH_M * PATCH_N == WARP,
              "each lane stores one element of the patch: PATCH_M * PATCH_N has to be 32");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_warp_parallel(const IN* A, const IN* B, OUT* C, int M, int N, int K, int lda, int ldb, int ldc) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int m0 = (blockIdx.y * WARPS_M + warp / WARPS_N) * PATCH_M;
  const int n0 = (blockIdx.x * WARPS_N + warp % WARPS_N) * PATCH_N;
  if (m0 >= M || n0 >= N) return;

  // a patch over the edge computes the last row or column again, which is read safely and not stored
  const IN* a[PATCH_M];
  const IN* b[PATCH_N];
  const long long b_step = TRANS_B ? 1 : ldb;
#pragma unroll
  for (int i = 0; i < PATCH_M; ++i) a[i] = A + static_cast<long long>(min(m0 + i, M - 1)) * lda + lane;
#pragma unroll
  for (int j = 0; j < PATCH_N; ++j) {
    const long long n = min(n0 + j, N - 1);
    b[j] = B + (TRANS_B ? n * ldb : n) + lane * b_step;
  }

  float sum[WARP] = {};  // PATCH_M x PATCH_N
  for (int k = lane; k < K; k += WARP) {
    float b_k[PATCH_N];
#pragma unroll
    for (int j = 0; j < PATCH_N; ++j) {
      b_k[j] = to_float(*b[j]);
      b[j] += WARP * b_step;
    }
#pragma unroll
    for (int i = 0; i < PATCH_M; ++i) {
      const float a_k = to_float(*a[i]);
      a[i] += WARP;
#pragma unroll
      for (int j = 0; j < PATCH_N; ++j) sum[i * PATCH_N + j] += a_k * b_k[j];
    }
  }

  const float total = warp_sums(sum, lane);
  const int m = m0 + lane / PATCH_N, n = n0 + lane % PATCH_N;
  if (m < M && n < N) C[static_cast<long long>(m) * ldc + n] = from_float<OUT>(total);
}
