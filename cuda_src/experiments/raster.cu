// C[i, j] = sum_k A[i, k] B[j, k]. A: (M, K), B: (N, K), C: (M, N), float; rows are lda, ldb, ldc elements
// apart.
//
// swept: GROUP, in which order blocks take the elements of C: GROUP rows are walked together, column by
// column. a block, of one warp, reads a row of A and a row of B. what a wave of blocks reads is the same
// amount in any order; how much of it is different is not, and only that has to come from device memory if
// the L2 holds it.

#include "tile/dot.cuh"

constexpr int LOADS = 4;

extern "C" __global__ void __launch_bounds__(WARP)
    raster(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
           int K, int lda, int ldb, int ldc) {
  const int block = blockIdx.x, of_group = block % (GROUP * N);
  const int first = block / (GROUP * N) * GROUP, height = min(GROUP, M - first);
  const int i = first + of_group % height, j = of_group / height;
  const float* a = A + static_cast<long long>(i) * lda;
  const float* b = B + static_cast<long long>(j) * ldb;
  const bool aligned = lda % 4 == 0 && ldb % 4 == 0;
  const float sum = warp_dot<LOADS>(a, b, K, aligned, threadIdx.x);
  if (threadIdx.x == 0) C[static_cast<long long>(i) * ldc + j] = sum;
}
