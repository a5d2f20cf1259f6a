// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart. partial: (parts, M, N) fp32, scratch, where there are several parts.
//
// stage 11 of simt, split tiles: tiles are small, 16 or 64 rows and columns. gridDim.z blocks share a tile,
// and each of them adds up a part of k. while a block multiplies one k-tile, it loads the next one into
// registers. a second kernel adds up the parts, always in the same order.
//
// what it gains: where C is small or narrow and k is long, there are enough blocks for the whole device. rows
// may begin at any address.
//
// what limits it: a thread has 4 x 4 sums, so that reading shared memory takes as long as multiplying. where
// C is large, larger tiles read A and B less often.

#include "tile/convert.cuh"
#include "tile/row_reduce.cuh"
#include "tile/vector.cuh"

constexpr int BLOCK_K = 32, THREADS = 256, THREADS_N = BLOCK_N / THREAD_N;
constexpr int PAD = 4;  // spreads the transposing stores over the banks, and keeps rows multiples of 16 bytes

static_assert(BLOCK_M / THREAD_M * THREADS_N == THREADS, "each thread has a tile of C of its own");

// a ROWS x COLUMNS tile of a row-major matrix, element by element: a warp reads what lies side by side
template <int ROWS, int COLUMNS>
struct Held {
  static constexpr int EACH = ROWS * COLUMNS / THREADS;
  static_assert(EACH * THREADS == ROWS * COLUMNS, "threads copy as many elements each");
  float x[EACH];

  static __device__ __forceinline__ int row(int i) { return (threadIdx.x + i * THREADS) / COLUMNS; }
  static __device__ __forceinline__ int column(int i) { return (threadIdx.x + i * THREADS) % COLUMNS; }

  // what lies outside of the matrix becomes zero
  __device__ __forceinline__ void load(const IN* from, int ld, int row0, int column0, int rows, int columns) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int r = row0 + row(i), c = column0 + column(i);
      x[i] = r < rows && c < columns ? to_float(from[static_cast<long long>(r) * ld + c]) : 0.f;
    }
  }

  __device__ __forceinline__ void store(float (*tile)[COLUMNS + PAD]) const {
#pragma unroll
    for (int i = 0; i < EACH; ++i) tile[row(i)][column(i)] = x[i];
  }

  __device__ __forceinline__ void store_transposed(float (*tile)[ROWS + PAD]) const {
#pragma unroll
    for (int i = 0; i < EACH; ++i) tile[column(i)][row(i)] = x[i];
  }
};

using HeldB = Held<TRANS_B ? BLOCK_N : BLOCK_K, TRANS_B ? BLOCK_K : BLOCK_N>;

__device__ __forceinline__ void load_b(HeldB& held, const IN* b, int ldb, int n, int k, int columns,
                                       int end) {
  if (TRANS_B)
    held.load(b, ldb, n, k, columns, end);
  else
    held.load(b, ldb, k, n, end, columns);
}

template <class Tile>
__device__ __forceinline__ void store_b(const Tile& held, float (*tile)[BLOCK_N + PAD]) {
  if constexpr (TRANS_B)
    held.store_transposed(tile);
  else
    held.store(tile);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_split_tiles(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C,
                     float* __restrict__ partial, int M, int N, int K, int lda, int ldb, int ldc) {
  __shared__ __align__(VECTOR_BYTES) float a[2][BLOCK_K][BLOCK_M + PAD];
  __shared__ __align__(VECTOR_BYTES) float b[2][BLOCK_K][BLOCK_N + PAD];
  const int m = blockIdx.y * BLOCK_M, n = blockIdx.x * BLOCK_N;
  const int own_m = threadIdx.x / THREADS_N * THREAD_M, own_n = threadIdx.x % THREADS_N * THREAD_N;
  const int tiles = (K + BLOCK_K - 1) / BLOCK_K;
  const int first = static_cast<long long>(tiles) * blockIdx.z / gridDim.z * BLOCK_K;
  const int end =
      min(static_cast<int>(static_cast<long long>(tiles) * (blockIdx.z + 1) / gridDim.z) * BLOCK_K, K);

  float sum[THREAD_M][THREAD_N] = {};
  Held<BLOCK_M, BLOCK_K> next_a;
  HeldB next_b;
  next_a.load(A, lda, m, first, M, end);
  load_b(next_b, B, ldb, n, first, N, end);
  int buffer = 0;
  for (int k = first; k < end; k += BLOCK_K, buffer ^= 1) {
    next_a.store_transposed(a[buffer]);
    store_b(next_b, b[buffer]);
    __syncthreads();  // of the buffer before the last everyone is done
    next_a.load(A, lda, m, k + BLOCK_K, M, end);
    load_b(next_b, B, ldb, n, k + BLOCK_K, N, end);
#pragma unroll
    for (int i = 0; i < BLOCK_K; ++i) {
      const Vector<float, THREAD_M> left = load_vector<THREAD_M>(&a[buffer][i][own_m]);
      const Vector<float, THREAD_N> right = load_vector<THREAD_N>(&b[buffer][i][own_n]);
#pragma unroll
      for (int y = 0; y < THREAD_M; ++y)
#pragma unroll
        for (int x = 0; x < THREAD_N; ++x) sum[y][x] += left.x[y] * right.x[x];
    }
  }

#pragma unroll
  for (int y = 0; y < THREAD_M; ++y)
#pragma unroll
    for (int x = 0; x < THREAD_N; ++x) {
      const int row = m + own_m + y, column = n + own_n + x;
      if (row >= M || column >= N) continue;
      if (gridDim.z == 1)
        C[static_cast<long long>(row) * ldc + column] = from_float<OUT>(sum[y][x]);
      else
        partial[(static_cast<long long>(blockIdx.z) * M + row) * N + column] = sum[y][x];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_add_parts(const float* __restrict__ partial, OUT* __restrict__ C, int M, int N, int ldc, int parts) {
  __shared__ float scratch[THREADS];
  const int element = blockIdx.x * WARP + threadIdx.x % WARP;
  const float sum = add_up_parts<Sum>(partial, element, M * N, parts, scratch);
  if (threadIdx.x < WARP && element < M * N)
    C[static_cast<long long>(element / N) * ldc + element % N] = from_float<OUT>(sum);
}
