// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart.
//
// stage 5 of simt, vectorized: every load and store moves a quad, four neighbouring elements. quads go from
// global memory to registers (16 bytes of fp32, 8 of bf16 and fp16), from shared memory to the thread's tile,
// and from there to C. so the elements of a thread form groups of four rows and of four columns.
//
// what it gains: a quarter of the loads, stores and address computations. 3 loads of 16 bytes from shared
// memory feed 32 multiplications. three blocks share a multiprocessor, so one multiplies while others load.
// loading the next k-tile ahead, into registers, was slower. a block of 128 x 128 with 8 x 8 a thread is a
// tenth faster at 4096^3. at 1024^3 it leaves half of the device idle, and loses to warp_parallel.
//
// what limits it: the instructions between the multiplications, whatever the input type. warp_tiles and
// fp32_pipeline keep the same fp32 units busier. tensor cores are much faster.

#include "tile/convert.cuh"
#include "tile/vector.cuh"

constexpr int QUAD = 4;  // floats in 16 bytes
constexpr int QUADS_M = THREAD_M / QUAD, QUADS_N = THREAD_N / QUAD;
constexpr int THREADS_M = BLOCK_M / THREAD_M, THREADS_N = BLOCK_N / THREAD_N;
constexpr int THREADS = THREADS_M * THREADS_N;
constexpr int PAD = 4;  // spreads the transposing stores over the banks, and keeps rows multiples of 16 bytes

static_assert(THREAD_M % QUAD == 0 && THREAD_N % QUAD == 0,
              "THREAD_M and THREAD_N have to be multiples of 4");
static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "a block is made of whole thread tiles");
static_assert(BLOCK_M * BLOCK_K % (THREADS * QUAD) == 0 && BLOCK_N * BLOCK_K % (THREADS * QUAD) == 0,
              "every thread copies the same number of quads of A, and of B");

// the part of a ROWS x COLUMNS tile of a row-major matrix that this thread copies, on its way through
// registers. what lies outside of the matrix becomes zero
template <int ROWS, int COLUMNS>
struct Copy {
  static constexpr int ROW_QUADS = COLUMNS / QUAD, THREAD_QUADS = ROWS * ROW_QUADS / THREADS;
  Vector<IN, QUAD> quads[THREAD_QUADS];

  __device__ int row(int i) const { return (threadIdx.x + i * THREADS) / ROW_QUADS; }
  __device__ int column(int i) const { return (threadIdx.x + i * THREADS) % ROW_QUADS * QUAD; }

  __device__ void load(const IN* from, int ld, int row0, int column0, int rows, int columns) {
#pragma unroll
    for (int i = 0; i < THREAD_QUADS; ++i) {
      const int r = row0 + row(i), c = column0 + column(i);
      const int valid = r < rows ? columns - c : 0;
      quads[i] = load_tail<QUAD>(from + static_cast<long long>(r) * ld + c, valid, ld % QUAD == 0);
    }
  }

  __device__ void store(float (*tile)[COLUMNS + PAD]) const {
#pragma unroll
    for (int i = 0; i < THREAD_QUADS; ++i) {
      Vector<float, QUAD> quad;
#pragma unroll
      for (int j = 0; j < QUAD; ++j) quad.x[j] = to_float(quads[i].x[j]);
      store_vector(&tile[row(i)][column(i)], quad);
    }
  }

  __device__ void store_transposed(float (*tile)[ROWS + PAD]) const {
#pragma unroll
    for (int i = 0; i < THREAD_QUADS; ++i)
#pragma unroll
      for (int j = 0; j < QUAD; ++j) tile[column(i) + j][row(i)] = to_float(quads[i].x[j]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_vectorized(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M, int N,
                    int K, int lda, int ldb, int ldc) {
  __shared__ __align__(VECTOR_BYTES) float a_tile[BLOCK_K][BLOCK_M + PAD];
  __shared__ __align__(VECTOR_BYTES) float b_tile[BLOCK_K][BLOCK_N + PAD];
  const int m0 = blockIdx.y * BLOCK_M, n0 = blockIdx.x * BLOCK_N;
  // a thread has QUADS_M x QUADS_N quads, far apart: so neighbours read neighbouring quads
  const int tm = threadIdx.x / THREADS_N * QUAD, tn = threadIdx.x % THREADS_N * QUAD;

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
      Vector<float, QUAD> a[QUADS_M], b[QUADS_N];
#pragma unroll
      for (int i = 0; i < QUADS_M; ++i) a[i] = load_vector<QUAD>(&a_tile[k][i * THREADS_M * QUAD + tm]);
#pragma unroll
      for (int j = 0; j < QUADS_N; ++j) b[j] = load_vector<QUAD>(&b_tile[k][j * THREADS_N * QUAD + tn]);
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) sum[i][j] += a[i / QUAD].x[i % QUAD] * b[j / QUAD].x[j % QUAD];
    }
  }

#pragma unroll
  for (int i = 0; i < THREAD_M; ++i) {
    const int m = m0 + i / QUAD * THREADS_M * QUAD + tm + i % QUAD;
    if (m >= M) continue;
#pragma unroll
    for (int j = 0; j < QUADS_N; ++j) {
      const int n = n0 + j * THREADS_N * QUAD + tn;
      Vector<OUT, QUAD> out;
#pragma unroll
      for (int x = 0; x < QUAD; ++x) out.x[x] = from_float<OUT>(sum[i][j * QUAD + x]);
      store_tail(C + static_cast<long long>(m) * ldc + n, out, N - n, ldc % QUAD == 0);
    }
  }
}
