// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart.
//
// stage 4 of simt, thread tile: each thread computes THREAD_M x THREAD_N elements of the block's tile of C,
// in registers. the elements of a thread are THREADS_M rows and THREADS_N columns apart, so neighbouring
// threads still have neighbouring columns.
//
// what it gains: an element of A is read from shared memory once for THREAD_N multiplications, and an element
// of B once for THREAD_M. so 32 multiplications need 12 loads, where they needed 64 before. the block's tile
// can be larger, and then less is loaded from global memory.
//
// what limits it: the number of loads and stores. each of them moves only 2 or 4 bytes, from or to global or
// shared memory.

#include "tile/convert.cuh"

constexpr int THREADS_M = BLOCK_M / THREAD_M, THREADS_N = BLOCK_N / THREAD_N;
constexpr int THREADS = THREADS_M * THREADS_N;
constexpr int PAD = 1;  // spreads the transposing stores over the banks

static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "a block is made of whole thread tiles");
static_assert(BLOCK_M * BLOCK_K % THREADS == 0 && BLOCK_N * BLOCK_K % THREADS == 0,
              "every thread copies the same number of elements of A, and of B");

// the part of a ROWS x COLUMNS tile of a row-major matrix that this thread copies, on its way through
// registers. what lies outside of the matrix becomes zero
template <int ROWS, int COLUMNS>
struct Copy {
  static constexpr int THREAD_ELEMENTS = ROWS * COLUMNS / THREADS;
  IN elements[THREAD_ELEMENTS];

  __device__ int row(int i) const { return (threadIdx.x + i * THREADS) / COLUMNS; }
  __device__ int column(int i) const { return (threadIdx.x + i * THREADS) % COLUMNS; }

  __device__ void load(const IN* from, int ld, int row0, int column0, int rows, int columns) {
#pragma unroll
    for (int i = 0; i < THREAD_ELEMENTS; ++i) {
      const int r = row0 + row(i), c = column0 + column(i);
      const bool valid = r < rows && c < columns;
      elements[i] = valid ? from[static_cast<long long>(r) * ld + c] : IN(0.f);
    }
  }

  __device__ void store(float (*tile)[COLUMNS + PAD]) const {
#pragma unroll
    for (int i = 0; i < THREAD_ELEMENTS; ++i) tile[row(i)][column(i)] = to_float(elements[i]);
  }

  __device__ void store_transposed(float (*tile)[ROWS + PAD]) const {
#pragma unroll
    for (int i = 0; i < THREAD_ELEMENTS; ++i) tile[column(i)][row(i)] = to_float(elements[i]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_thread_tile(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M, int N,
                     int K, int lda, int ldb, int ldc) {
  __shared__ float a_tile[BLOCK_K][BLOCK_M + PAD];
  __shared__ float b_tile[BLOCK_K][BLOCK_N + PAD];
  const int m0 = blockIdx.y * BLOCK_M, n0 = blockIdx.x * BLOCK_N;
  const int tm = threadIdx.x / THREADS_N, tn = threadIdx.x % THREADS_N;

  float sum[THREAD_M][THREAD_N] = {};
  for (int k0 = 0; k0 < K; k0 += BLOCK_K) {
    Copy<BLOCK_M, BLOCK_K> a_copy;
    a_copy.load(A, lda, m0, k0, M, K);
#if TRANS_B
    Copy<BLOCK_N, BLOCK_K> b_copy;
    b_copy.load(B, ldb, n0, k0, N, K);
#else
    Copy<BLOCK_K, BLOCK_N> b_copy;
    b_copy.load(B, ldb, k0, n0, K, N);
#endif
    __syncthreads();  // everyone has read the k-tile before
    a_copy.store_transposed(a_tile);
#if TRANS_B
    b_copy.store_transposed(b_tile);
#else
    b_copy.store(b_tile);
#endif
    __syncthreads();

#pragma unroll
    for (int k = 0; k < BLOCK_K; ++k) {
      float a[THREAD_M], b[THREAD_N];
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i) a[i] = a_tile[k][i * THREADS_M + tm];
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j) b[j] = b_tile[k][j * THREADS_N + tn];
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) sum[i][j] += a[i] * b[j];
    }
  }

#pragma unroll
  for (int i = 0; i < THREAD_M; ++i) {
    const int m = m0 + i * THREADS_M + tm;
    if (m >= M) continue;
#pragma unroll
    for (int j = 0; j < THREAD_N; ++j) {
      const int n = n0 + j * THREADS_N + tn;
      if (n < N) C[static_cast<long long>(m) * ldc + n] = from_float<OUT>(sum[i][j]);
    }
  }
}
