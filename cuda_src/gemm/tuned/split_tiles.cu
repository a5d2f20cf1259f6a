// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), with TRANS_A: (K, M), C: (M, N); rows
// are lda, ldb, ldc elements apart. batches and an epilogue as general.cuh has them. partial: (products,
// parts, M, N) fp32, scratch, where there are several parts.
//
// stage 11 of simt, split tiles: tiles are small, 16 or 64 rows and columns. `parts` blocks share a tile,
// and each of them adds up a part of k. while a block multiplies one k-tile, it loads the next one into
// registers. a second kernel adds up the parts, always in the same order.
//
// what it gains: where C is small or narrow and k is long, there are enough blocks for the whole device. rows
// may begin at any address.
//
// what limits it: a thread has 4 x 4 sums, so that reading shared memory takes as long as multiplying. where
// C is large, larger tiles read A and B less often.

#include "general.cuh"
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

// the same of an operand of so many LINES, rows of A or columns of B, which is stored ALONG_K or not
template <bool ALONG_K, int LINES>
struct Operand {
  Held<ALONG_K ? LINES : BLOCK_K, ALONG_K ? BLOCK_K : LINES> held;

  __device__ __forceinline__ void load(const IN* from, int ld, int line, int k, int lines, int end) {
    if (ALONG_K)
      held.load(from, ld, line, k, lines, end);
    else
      held.load(from, ld, k, line, end, lines);
  }

  __device__ __forceinline__ void store(float (*tile)[LINES + PAD]) const {
    if constexpr (ALONG_K)
      held.store_transposed(tile);
    else
      held.store(tile);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_split_tiles(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C,
                     float* __restrict__ partial, int M, int N, int K, int lda, int ldb, int ldc, int parts,
                     const OUT* added, int ld_added, float alpha, float beta, long long step_a,
                     long long step_b, long long step_c, long long step_added) {
  __shared__ __align__(VECTOR_BYTES) float a[2][BLOCK_K][BLOCK_M + PAD];
  __shared__ __align__(VECTOR_BYTES) float b[2][BLOCK_K][BLOCK_N + PAD];
  const int m = blockIdx.y * BLOCK_M, n = blockIdx.x * BLOCK_N;
  const int own_m = threadIdx.x / THREADS_N * THREAD_M, own_n = threadIdx.x % THREADS_N * THREAD_N;
  const int tiles = (K + BLOCK_K - 1) / BLOCK_K;
  const int number = BATCHED ? blockIdx.z / parts : 0, part = blockIdx.z - number * parts;
  const int first = static_cast<long long>(tiles) * part / parts * BLOCK_K;
  const int end = min(static_cast<int>(static_cast<long long>(tiles) * (part + 1) / parts) * BLOCK_K, K);
#if BATCHED
  A += number * step_a, B += number * step_b, C += number * step_c;
#endif

  float sum[THREAD_M][THREAD_N] = {};
  Operand<!TRANS_A, BLOCK_M> next_a;
  Operand<TRANS_B, BLOCK_N> next_b;
  next_a.load(A, lda, m, first, M, end);
  next_b.load(B, ldb, n, first, N, end);
  int buffer = 0;
  for (int k = first; k < end; k += BLOCK_K, buffer ^= 1) {
    next_a.store(a[buffer]);
    next_b.store(b[buffer]);
    __syncthreads();  // of the buffer before the last everyone is done
    next_a.load(A, lda, m, k + BLOCK_K, M, end);
    next_b.load(B, ldb, n, k + BLOCK_K, N, end);
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

  const Epilogue epilogue = Epilogue{added, ld_added, M, N, alpha, beta}.from(0, 0, number, step_added);
#pragma unroll
  for (int y = 0; y < THREAD_M; ++y)
#pragma unroll
    for (int x = 0; x < THREAD_N; ++x) {
      const int row = m + own_m + y, column = n + own_n + x;
      if (row >= M || column >= N) continue;
      if (parts == 1)
        C[static_cast<long long>(row) * ldc + column] = from_float<OUT>(epilogue(sum[y][x], row, column));
      else
        partial[(static_cast<long long>(blockIdx.z) * M + row) * N + column] = sum[y][x];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_add_parts(const float* __restrict__ partial, OUT* __restrict__ C, int M, int N, int ldc, int parts,
                   const OUT* added, int ld_added, float alpha, float beta, long long step_c,
                   long long step_added) {
  __shared__ float scratch[THREADS];
  const int number = blockIdx.y;
  const Epilogue epilogue = Epilogue{added, ld_added, M, N, alpha, beta}.from(0, 0, number, step_added);
  partial += static_cast<long long>(number) * parts * M * N;
  const int element = blockIdx.x * WARP + threadIdx.x % WARP;
  const float sum = add_up_parts<Sum>(partial, element, M * N, parts, scratch);
  if (threadIdx.x < WARP && element < M * N)
    C[number * step_c + static_cast<long long>(element / N) * ldc + element % N] =
        from_float<OUT>(epilogue(sum, element / N, element % N));
}
