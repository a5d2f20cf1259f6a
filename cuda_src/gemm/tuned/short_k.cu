// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart. K is at most DEPTH.
//
// stage 16 of simt, a branch of stage 2, short k: each thread holds COLUMNS columns of B in registers, for
// all of k, and walks down the rows of a tile. the lanes of a warp have neighbouring columns. so each store
// of a warp writes 32 neighbouring elements, wherever rows of C begin. A comes from shared memory, and all
// lanes read the same element. with TRANS_B, columns of B come by shared memory, too: their elements lie side
// by side, and all warps of the block need them.
//
// what it gains: each element of C needs few products, so the kernel only takes as long as storing C. thread
// tiles store four neighbouring elements per thread. where rows begin at no multiple of 16 bytes, they have
// to split these up.
//
// what limits it: device memory.

#include "tile/convert.cuh"
#include "tile/vector.cuh"

constexpr int WARP = 32, WARPS = 8, THREADS = WARPS * WARP, QUAD = 4;
constexpr int COLUMNS = 4, BLOCK_N = COLUMNS * WARP;
constexpr int QUADS = (DEPTH + QUAD - 1) / QUAD;  // of k

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_short_k(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M, int N, int K,
                 int lda, int ldb, int ldc) {
  __shared__ Vector<float, QUAD> rows[BLOCK_M][QUADS];
  __shared__ float columns[TRANS_B ? DEPTH : 1][BLOCK_N + 1];  // neighbouring k in neighbouring banks
  const int tiles_n = (N + BLOCK_N - 1) / BLOCK_N;
  const int lane = threadIdx.x % WARP;
  const int m0 = blockIdx.x / tiles_n * BLOCK_M, n0 = blockIdx.x % tiles_n * BLOCK_N + lane;
  for (int i = threadIdx.x; i < BLOCK_M * QUADS * QUAD; i += THREADS) {
    const int row = i / (QUADS * QUAD), k = i % (QUADS * QUAD);
    const bool inside = m0 + row < M && k < K;
    rows[row][k / QUAD].x[k % QUAD] = inside ? to_float(A[static_cast<long long>(m0 + row) * lda + k]) : 0.f;
  }
  if (TRANS_B)
    for (int i = threadIdx.x; i < BLOCK_N * DEPTH; i += THREADS) {
      const int column = i / DEPTH, k = i % DEPTH, n = n0 - lane + column;
      columns[k][column] = n < N && k < K ? to_float(B[static_cast<long long>(n) * ldb + k]) : 0.f;
    }
  __syncthreads();
  float b[COLUMNS][DEPTH];
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      const int n = n0 + j * WARP;
      if (TRANS_B)
        b[j][k] = columns[k][lane + j * WARP];
      else
        b[j][k] = n < N && k < K ? to_float(B[static_cast<long long>(k) * ldb + n]) : 0.f;
    }
  const int end = min(BLOCK_M, M - m0);
#pragma unroll 2
  for (int row = threadIdx.x / WARP; row < end; row += WARPS) {
    float sum[COLUMNS] = {};
#pragma unroll
    for (int quad = 0; quad < QUADS; ++quad) {
      const Vector<float, QUAD> a = rows[row][quad];
#pragma unroll
      for (int k = 0; k < QUAD && quad * QUAD + k < DEPTH; ++k)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) sum[j] += a.x[k] * b[j][quad * QUAD + k];
    }
    OUT* const to = C + static_cast<long long>(m0 + row) * ldc + n0;
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
      if (n0 + j * WARP < N) to[j * WARP] = from_float<OUT>(sum[j]);
  }
}
