// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart.
//
// stage 3 of simt, shared memory tiling: a block computes BLOCK_M x BLOCK_N elements of C, one per thread. it
// copies a k-tile of A and a k-tile of B to shared memory, as float, and multiplies from there. a k-tile is
// BLOCK_K deep. both tiles are k-major, so neighbouring threads read neighbouring banks.
//
// what it gains: an element of A is loaded from global memory once for BLOCK_N multiplications, and an
// element of B once for BLOCK_M. both matrices are read along their rows, whatever the layout.
//
// what limits it: every multiplication still has two loads, now from shared memory. the block waits for these
// loads, not for the arithmetic.

#include "tile/convert.cuh"

constexpr int THREADS = BLOCK_M * BLOCK_N;
constexpr int PAD = 1;  // spreads the transposing stores over the banks

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
    gemm_smem_tiling(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M, int N,
                     int K, int lda, int ldb, int ldc) {
  __shared__ float a_tile[BLOCK_K][BLOCK_M + PAD];
  __shared__ float b_tile[BLOCK_K][BLOCK_N + PAD];
  const int m0 = blockIdx.y * BLOCK_M, n0 = blockIdx.x * BLOCK_N;
  const int tm = threadIdx.x / BLOCK_N, tn = threadIdx.x % BLOCK_N;

  float sum = 0.f;
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
    for (int k = 0; k < BLOCK_K; ++k) sum += a_tile[k][tm] * b_tile[k][tn];
  }

  const int m = m0 + tm, n = n0 + tn;
  if (m < M && n < N) C[static_cast<long long>(m) * ldc + n] = from_float<OUT>(sum);
}
