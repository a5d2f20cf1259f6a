// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart. fp32.
//
// stage 12 of simt, a branch of stage 8, split warp tiles: tiles are 64 x 64 or smaller, so that several
// blocks share a multiprocessor. while a block multiplies one k-tile, the next one is on its way through
// registers: a warp reads neighbours, wherever rows begin, and a thread stores quads of four rows as columns.
// a cluster of SPLIT blocks shares a tile, and each block multiplies a part of k. at the end, they add up the
// sums in shared memory, each for a part of the tile, and store whole rows of C.
//
// what it gains: the device is full even where there are few tiles of 128 rows and columns.
//
// what limits it: reading shared memory, as a thread has only 8 x 4 sums. where k is short, the first k-tile.

#include "epilogue/shared_sums.cuh"

constexpr int WARP = 32, QUAD = 4, LANES_M = 8, LANES_N = 4;  // how the threads of a warp lie over its tile
constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int WARPS_N = BLOCK_N / WARP_N, WARPS = BLOCK_M / WARP_M * WARPS_N, THREADS = WARPS * WARP;
constexpr int QUADS_M = THREAD_M / QUAD, QUADS_N = THREAD_N / QUAD;
constexpr int BLOCK_K = WARP, DEPTH = 16;  // of k that are multiplied without asking whether there are more
constexpr int PAD = 4, C_PITCH = BLOCK_N + PAD;  // quads of eight neighbouring k are in all banks
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "a block is made of whole warp tiles");
struct KTile {
  float a[BLOCK_K][BLOCK_M + PAD], b[BLOCK_K][BLOCK_N + PAD];
};

// LINES rows of a k-tile, which lie along k. a thread has PIECE of k of four neighbouring rows, and eight
// neighbouring lanes store to all banks
template <bool ALONG_K, int LINES, int PIECE>
struct Operand {
  static constexpr int EACH = LINES / QUAD / PIECE / WARPS;
  const int lane = threadIdx.x % WARP, k = (lane % 8 / PIECE + lane / 8 * (8 / PIECE)) * PIECE;
  const int line = (threadIdx.x / WARP * PIECE + lane % PIECE) * QUAD;
  Vector<float, PIECE> x[EACH][QUAD];

  // rows behind the last one are as that one: what becomes of them is not stored
  __device__ __forceinline__ void load(const IN* from, int ld, int line0, int k0, int lines, int end) {
#pragma unroll
    for (int i = 0; i < EACH * QUAD; ++i) {
      const int row = min(line0 + line + i / QUAD * (WARPS * PIECE * QUAD) + i % QUAD, lines - 1);
      const IN* const source = from + static_cast<long long>(row) * ld + k0 + k;
      x[i / QUAD][i % QUAD] =
          k0 + BLOCK_K <= end ? load_vector<PIECE>(source) : load_tail<PIECE>(source, end - k0 - k, true);
    }
  }
  __device__ __forceinline__ void store(float (*tile)[LINES + PAD]) const {
#pragma unroll
    for (int i = 0; i < EACH * PIECE; ++i) {
      const auto& [r0, r1, r2, r3] = x[i / PIECE];
      const int e = i % PIECE, column = line + i / PIECE * (WARPS * PIECE * QUAD);
      store_vector<QUAD>(&tile[k + e][column], {r0.x[e], r1.x[e], r2.x[e], r3.x[e]});
    }
  }
};

// the same of rows that lie along n: PIECE neighbours stay together
template <int LINES, int PIECE>
struct Operand<false, LINES, PIECE> {
  static constexpr int ROW_PIECES = LINES / PIECE, STEP = THREADS / ROW_PIECES;
  const int k = threadIdx.x / ROW_PIECES, line = threadIdx.x % ROW_PIECES * PIECE;
  Vector<float, PIECE> x[BLOCK_K / STEP];

  __device__ __forceinline__ void load(const IN* from, int ld, int line0, int k0, int lines, int end) {
#pragma unroll
    for (int i = 0; i < BLOCK_K; i += STEP)
      x[i / STEP] = load_tail<PIECE>(from + static_cast<long long>(k0 + k + i) * ld + line0 + line,
                                     k0 + k + i < end ? lines - line0 - line : 0, true);
  }
  __device__ __forceinline__ void store(float (*tile)[LINES + PAD]) const {
#pragma unroll
    for (int i = 0; i < BLOCK_K; i += STEP) store_vector(&tile[k + i][line], x[i / STEP]);
  }
};

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, 512 / THREADS)
    gemm_split_warp_tiles(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M,
                          int N, int K, int lda, int ldb, int ldc) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char memory[];
  KTile* const buffer = reinterpret_cast<KTile*>(memory);
  const int tiles_n = (N + BLOCK_N - 1) / BLOCK_N, number = blockIdx.x / SPLIT;
  const int m0 = number / tiles_n * BLOCK_M, n0 = number % tiles_n * BLOCK_N;
  const int rank = cluster_rank_of<SPLIT>(), all = (K + BLOCK_K - 1) / BLOCK_K;
  const int first = all * rank / SPLIT, end = min(all * (rank + 1) / SPLIT * BLOCK_K, K);

  Operand<true, BLOCK_M, PIECE_A> next_a;
  Operand<TRANS_B, BLOCK_N, PIECE_B> next_b;
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int tm = warp / WARPS_N * WARP_M + (lane / 8 * 2 + lane % 2) * QUAD;
  const int tn = warp % WARPS_N * WARP_N + lane / 2 % LANES_N * QUAD;
  float sum[THREAD_M][THREAD_N] = {};
#pragma unroll 1
  for (int kt = first - 1, k0 = kt * BLOCK_K; k0 < end; ++kt, k0 += BLOCK_K) {  // loads alone at first
    const bool more = k0 + BLOCK_K < end;
    if (more) {
      next_a.load(A, lda, m0, k0 + BLOCK_K, M, end);
      next_b.load(B, ldb, n0, k0 + BLOCK_K, N, end);
    }
    const auto& [a_tile, b_tile] = buffer[kt & 1];
#pragma unroll
    for (int from = 0; from < BLOCK_K; from += DEPTH) {
      if (kt < first || from >= end - k0) break;
#pragma unroll
      for (int k = from; k < from + DEPTH; ++k) {
        Vector<float, QUAD> a[QUADS_M], b[QUADS_N];
#pragma unroll
        for (int i = 0; i < QUADS_M; ++i) a[i] = load_vector<QUAD>(&a_tile[k][tm + i * LANES_M * QUAD]);
#pragma unroll
        for (int j = 0; j < QUADS_N; ++j) b[j] = load_vector<QUAD>(&b_tile[k][tn + j * LANES_N * QUAD]);
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j)
#pragma unroll
          for (int row = 0; row < THREAD_M; ++row) {  // down one column and up the next
            const int i = j % 2 ? THREAD_M - 1 - row : row;
            sum[i][j] += a[i / QUAD].x[i % QUAD] * b[j / QUAD].x[j % QUAD];
          }
      }
    }
    if (more) {
      next_a.store(buffer[(kt + 1) & 1].a);
      next_b.store(buffer[(kt + 1) & 1].b);
    }
    __syncthreads();  // the next k-tile is there for all, and all have read this one
  }

  float* const sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
    for (int j = 0; j < THREAD_N; j += QUAD) {
      const int row = tm + i / QUAD * LANES_M * QUAD + i % QUAD, column = tn + j * LANES_N;
      store_vector<QUAD>(sums + row * C_PITCH + column,
                         {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]});
    }
  store_shared_sums<SPLIT, BLOCK_M, BLOCK_N, C_PITCH, THREADS, PIECE_C>(
      sums, rank, C + static_cast<long long>(m0) * ldc + n0, ldc, M - m0, N - n0);
}
