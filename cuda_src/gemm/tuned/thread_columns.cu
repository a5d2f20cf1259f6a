// C[m, n] = sum_k A[m, k] B[k, n], where m is small. A: (M, K), B: (K, N), C: (M, N), rows lda, ldb and ldc
// elements apart. with two COLUMNS, ldb is even.
//
// stage 18 of simt, a branch of stage 1, thread columns: a thread has COLUMNS neighbouring columns of B and
// multiplies them by all rows of A. the lanes of a warp have columns side by side, so a row of B may begin
// anywhere: no lane loads more than its own elements, and nothing is shifted. SHARE warps of a block and
// SPLIT blocks of a cluster share the same columns, and each of them has a part of k.
//
// what it gains: of rows that begin anywhere, `few_vectors` reads twice as many vectors as there are and
// shifts them.
//
// what limits it: a load of a warp has 128 bytes, or 64, and lies across two lines. for a large B, as many
// loads in flight as registers hold. elements of A are read again by every warp, from the L1.

#include "ptx/cluster.cuh"
#include "tile/convert.cuh"
#include "tile/vector.cuh"
#include "tile/warp.cuh"

constexpr int THREADS = WARPS * WARP, GROUPS = WARPS / SHARE;  // warps of a group share columns
constexpr int WIDTH = WARP * COLUMNS;                          // columns of a warp

// k-iterations from k on, of which K - k or more are there. `valid`: of the thread's columns
template <bool WHOLE>
__device__ __forceinline__ void multiply(float (&sum)[VECTORS][COLUMNS], const IN* __restrict__ A,
                                         const IN* __restrict__ B, int M, int K, int lda, int ldb, int k,
                                         int valid) {
  Vector<IN, COLUMNS> b[UNROLL];
  float a[UNROLL][VECTORS];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    b[u] = load_tail<COLUMNS>(B + static_cast<long long>(k + u) * ldb, WHOLE || k + u < K ? valid : 0, true);
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)  // the last row again where there are no more
      a[u][v] = WHOLE || k + u < K ? to_float(A[static_cast<long long>(min(v, M - 1)) * lda + k + u]) : 0.f;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) sum[v][c] += a[u][v] * to_float(b[u].x[c]);
}

// the sums of a block that are elements of C: group, row of A, column of the group and of C. (the oldest
// compilers take no lambda with an `auto` parameter)
struct BlockSums {
  int first, M, N;

  template <class Work>
  __device__ __forceinline__ void each(int from, int step, Work work) const {
    for (int i = from; i < GROUPS * VECTORS * WIDTH; i += step) {
      const int group = i / (VECTORS * WIDTH), v = i / WIDTH % VECTORS, column = i % WIDTH;
      const int at = first + group * WIDTH + column;
      if (v < M && at < N) work(group, v, column, at);
    }
  }
};

extern "C" __global__ void __cluster_dims__(SPLIT) __launch_bounds__(THREADS, RESIDENT / THREADS)
    gemm_thread_columns(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M, int N,
                        int K, int lda, int ldb, int ldc) {
  __shared__ float held[GROUPS][SHARE][VECTORS][WIDTH];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, rank = cluster_rank_of<SPLIT>();
  const int group = warp / SHARE, member = warp % SHARE;
  const int block_n = blockIdx.x / SPLIT * GROUPS * WIDTH, n = block_n + group * WIDTH + lane * COLUMNS;

  float sum[VECTORS][COLUMNS] = {};
  constexpr int STEP = SHARE * SPLIT * UNROLL;
  int k = (rank * SHARE + member) * UNROLL;
#pragma unroll 1
  for (; k + UNROLL <= K; k += STEP) multiply<true>(sum, A, B + n, M, K, lda, ldb, k, N - n);
  if (k < K) multiply<false>(sum, A, B + n, M, K, lda, ldb, k, N - n);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v)
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) held[group][member][v][lane * COLUMNS + c] = sum[v][c];
  __syncthreads();

  // the sums of the warps of a group, then those of the cluster's blocks, in their order
  const auto add_warps = [&](int g, int v, int column) {
    float all = held[g][0][v][column];
#pragma unroll
    for (int w = 1; w < SHARE; ++w) all += held[g][w][v][column];
    return all;
  };
  const auto store = [&](float all, int v, int at) {
    C[static_cast<long long>(v) * ldc + at] = from_float<OUT>(all);
  };
  const BlockSums of_block{block_n, M, N};
  if constexpr (SPLIT == 1) {
    of_block.each(threadIdx.x, THREADS,
                  [&](int g, int v, int column, int at) { store(add_warps(g, v, column), v, at); });
  } else {
    of_block.each(threadIdx.x, THREADS,
                  [&](int g, int v, int column, int) { held[g][0][v][column] = add_warps(g, v, column); });
    cluster_sync();
    of_block.each(rank * THREADS + threadIdx.x, SPLIT * THREADS, [&](int g, int v, int column, int at) {
      float all = 0.f;
#pragma unroll
      for (int from = 0; from < SPLIT; ++from) all += cluster_load(&held[g][0][v][column], from);
      store(all, v, at);
    });
    cluster_sync();  // the others have read what is here
  }
}
