// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart. fp32.
//
// stage 7 of simt, operand reuse: a thread multiplies down one column of its tile and up the next, so that
// each multiplication has a factor in common with the one before.
//
// what it gains: the common factor is not read again. a multiply-add reads three registers, and the register
// banks cannot deliver three reads every clock.
//
// what limits it: neighbouring threads are neighbours along a row of C. so a warp reads one or two quads of A
// at once, but 16 or 32 different quads of B. these take one wavefront for each 128 bytes.

#include "ptx/cp_async.cuh"
#include "tile/convert.cuh"
#include "tile/vector.cuh"

constexpr int QUAD = 4;  // floats in 16 bytes
constexpr int QUADS_M = THREAD_M / QUAD, QUADS_N = THREAD_N / QUAD;
constexpr int THREADS_M = BLOCK_M / THREAD_M, THREADS_N = BLOCK_N / THREAD_N;
constexpr int THREADS = THREADS_M * THREADS_N;
// resident on a multiprocessor at least: 256 have 255 registers each
constexpr int MOST_THREADS = THREADS < 256 ? 256 : THREADS;
constexpr int PAD = 4;  // spreads the transposing copies over the banks, and keeps rows multiples of 16 bytes

static_assert(THREAD_M % QUAD == 0 && THREAD_N % QUAD == 0,
              "THREAD_M and THREAD_N have to be multiples of 4");
static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "a block is made of whole thread tiles");
static_assert(sizeof(IN) == sizeof(float), "cp.async converts nothing: inputs are fp32");
static_assert(STAGES >= 2, "one k-tile is multiplied while at least one is loaded");

struct KTile {
  float a[BLOCK_K][BLOCK_M + PAD], b[BLOCK_K][BLOCK_N + PAD];
};

// starts to copy ROWS x BLOCK_K floats of a matrix whose rows lie along k: each becomes a column. what lies
// outside becomes zero
template <int ROWS>
__device__ __forceinline__ void copy_transposed(float (*tile)[ROWS + PAD], const IN* from, int ld, int row0,
                                                int k0, int rows, int depth) {
  constexpr int ROW_STEP = THREADS / BLOCK_K;
  static_assert(THREADS % BLOCK_K == 0 && ROWS % ROW_STEP == 0, "threads have to copy whole rows of k");
  const int row = threadIdx.x / BLOCK_K, k = threadIdx.x % BLOCK_K;
  const IN* source = from + static_cast<long long>(row0 + row) * ld + k0 + k;
  const long long step = static_cast<long long>(ROW_STEP) * ld;
  float* target = &tile[k][row];
  if (row0 + ROWS <= rows && k0 + BLOCK_K <= depth) {
#pragma unroll
    for (int i = 0; i < ROWS; i += ROW_STEP, source += step) cp_async<4>(target + i, source);
  } else {
#pragma unroll
    for (int i = 0; i < ROWS; i += ROW_STEP, source += step) {
      const bool inside = row0 + row + i < rows && k0 + k < depth;
      cp_async<4>(target + i, inside ? source : from, inside ? sizeof(float) : 0);
    }
  }
}

// starts to copy BLOCK_K x COLUMNS floats of a matrix whose rows lie along n, as they are
template <int COLUMNS>
__device__ __forceinline__ void copy(float (*tile)[COLUMNS + PAD], const IN* from, int ld, int k0,
                                     int column0, int depth, int columns) {
  constexpr int ROW_QUADS = COLUMNS / QUAD;
#pragma unroll
  for (int i = threadIdx.x; i < BLOCK_K * ROW_QUADS; i += THREADS) {
    const int k = i / ROW_QUADS, column = i % ROW_QUADS * QUAD;
    const IN* source = from + static_cast<long long>(k0 + k) * ld + column0 + column;
    const int valid = k0 + k < depth ? min(max(columns - column0 - column, 0), QUAD) : 0;
    if (ld % QUAD == 0) {
      cp_async<VECTOR_BYTES>(&tile[k][column], valid > 0 ? source : from, valid * sizeof(float));
    } else {
#pragma unroll 1
      for (int j = 0; j < QUAD; ++j)
        cp_async<4>(&tile[k][column + j], j < valid ? source + j : from, j < valid ? sizeof(float) : 0);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, MOST_THREADS / THREADS)
    gemm_operand_reuse(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M, int N,
                       int K, int lda, int ldb, int ldc) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char memory[];
  KTile* buffer = reinterpret_cast<KTile*>(memory);
  const int m0 = blockIdx.y * BLOCK_M, n0 = blockIdx.x * BLOCK_N;
  const int k_tiles = (K + BLOCK_K - 1) / BLOCK_K;

  // a group of copies for every k-tile, empty behind the last k-tile
  const auto load = [&](int kt) {
    if (kt < k_tiles) {
      KTile& tile = buffer[kt % STAGES];
      copy_transposed<BLOCK_M>(tile.a, A, lda, m0, kt * BLOCK_K, M, K);
#if TRANS_B
      copy_transposed<BLOCK_N>(tile.b, B, ldb, n0, kt * BLOCK_K, N, K);
#else
      copy<BLOCK_N>(tile.b, B, ldb, kt * BLOCK_K, n0, K, N);
#endif
    }
    cp_async_commit();
  };
  for (int kt = 0; kt < STAGES - 1; ++kt) load(kt);

  // a thread has QUADS_M x QUADS_N quads, far apart: so neighbours read neighbouring quads
  const int tm = threadIdx.x / THREADS_N * QUAD, tn = threadIdx.x % THREADS_N * QUAD;
  float sum[THREAD_M][THREAD_N] = {};
  for (int kt = 0; kt < k_tiles; ++kt) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this k-tile is there for all, and all have read the one before it
    load(kt + STAGES - 1);
    const auto& [a_tile, b_tile] = buffer[kt % STAGES];
#pragma unroll
    for (int k = 0; k < BLOCK_K; ++k) {
      Vector<float, QUAD> a[QUADS_M], b[QUADS_N];
#pragma unroll
      for (int i = 0; i < QUADS_M; ++i) a[i] = load_vector<QUAD>(&a_tile[k][i * THREADS_M * QUAD + tm]);
#pragma unroll
      for (int j = 0; j < QUADS_N; ++j) b[j] = load_vector<QUAD>(&b_tile[k][j * THREADS_N * QUAD + tn]);
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j)
#pragma unroll
        for (int row = 0; row < THREAD_M; ++row) {  // down one column and up the next
          const int i = j % 2 ? THREAD_M - 1 - row : row;
          sum[i][j] += a[i / QUAD].x[i % QUAD] * b[j / QUAD].x[j % QUAD];
        }
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
