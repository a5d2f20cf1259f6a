// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart. fp32.
//
// stage 12 of simt, a branch of stage 8, split warp tiles: the size of a tile depends on the problem, from 32
// x 32 to 128 x 128. a cluster of SPLIT blocks shares a tile, and each block multiplies a part of k. the
// threads of a warp cover a tile of their own, as in warp_tiles. at the end, the sums are in shared memory.
// the blocks of a cluster add them up there, each block for a part of the tile, and store whole rows of C.
//
// what it gains: the device is full even where there are few tiles of 128 rows and columns. a thread has 8 x
// 8 sums. so it reads half as much from shared memory for each product as with 4 x 4.
//
// what limits it: the fp32 units. where k is short, adding up the parts.

#include "epilogue/shared_sums.cuh"
#include "ptx/cp_async.cuh"

constexpr int WARP = 32, QUAD = 4;       // floats in 16 bytes
constexpr int LANES_M = 8, LANES_N = 4;  // how the threads of a warp lie over its tile
constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int WARPS_N = BLOCK_N / WARP_N, THREADS = BLOCK_M / WARP_M * WARPS_N * WARP;
constexpr int QUADS_M = THREAD_M / QUAD, QUADS_N = THREAD_N / QUAD;
constexpr int PAD = 4;  // spreads the transposing copies over the banks, and keeps rows multiples of 16 bytes
constexpr int C_PITCH = BLOCK_N + PAD;

static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "a block is made of whole warp tiles");
static_assert(sizeof(IN) == sizeof(float), "cp.async converts nothing: inputs are fp32");
static_assert(STAGES >= 2, "one k-tile is multiplied while at least one is loaded");

struct KTile {
  float a[BLOCK_K][BLOCK_M + PAD], b[BLOCK_K][BLOCK_N + PAD];
};

// starts to copy ROWS x BLOCK_K floats of a matrix whose rows lie along k: each becomes a column. what lies
// outside becomes zero. a warp copies 8 of k of 4 rows: what it stores is in all banks, what it reads in
// whole sectors
template <int ROWS>
__device__ __forceinline__ void copy_transposed(float (*tile)[ROWS + PAD], const IN* from, int ld, int row0,
                                                int k0, int rows, int depth) {
  constexpr int EIGHTS = BLOCK_K / 8, WARPS = THREADS / WARP;
  static_assert(ROWS / 4 * EIGHTS % WARPS == 0, "warps have to copy as much each");
  const int lane = threadIdx.x % WARP;
#pragma unroll 8
  for (int i = threadIdx.x / WARP; i < ROWS / 4 * EIGHTS; i += WARPS) {
    const int k = i % EIGHTS * 8 + lane % 8, row = i / EIGHTS * 4 + lane / 8;
    const bool inside = row0 + row < rows && k0 + k < depth;
    const IN* const source = from + static_cast<long long>(row0 + row) * ld + k0 + k;
    cp_async<4>(&tile[k][row], inside ? source : from, inside ? sizeof(float) : 0);
  }
}

// starts to copy BLOCK_K x COLUMNS floats of a matrix whose rows lie along n, as they are, in pieces as large
// as the distance of rows divides
template <int COLUMNS>
__device__ __forceinline__ void copy(float (*tile)[COLUMNS + PAD], const IN* from, int ld, int k0,
                                     int column0, int depth, int columns) {
  constexpr int ROW_PIECES = COLUMNS / PIECE_B;
#pragma unroll 4
  for (int i = threadIdx.x; i < BLOCK_K * ROW_PIECES; i += THREADS) {
    const int k = i / ROW_PIECES, column = i % ROW_PIECES * PIECE_B;
    const int valid = k0 + k < depth ? min(max(columns - column0 - column, 0), PIECE_B) : 0;
    const IN* const source = from + static_cast<long long>(k0 + k) * ld + column0 + column;
    cp_async_past_l1<PIECE_B * sizeof(float)>(&tile[k][column], valid > 0 ? source : from,
                                              valid * sizeof(float));
  }
}

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS)
    gemm_split_warp_tiles(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M,
                          int N, int K, int lda, int ldb, int ldc) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char memory[];
  KTile* const buffer = reinterpret_cast<KTile*>(memory);
  const int tiles_n = (N + BLOCK_N - 1) / BLOCK_N, number = blockIdx.x / SPLIT;
  const int m0 = number / tiles_n * BLOCK_M, n0 = number % tiles_n * BLOCK_N;
  const int rank = cluster_rank_of<SPLIT>(), all = (K + BLOCK_K - 1) / BLOCK_K;
  const int first = all * rank / SPLIT, k_tiles = all * (rank + 1) / SPLIT - first;

  // a group of copies for every k-tile, empty behind the last k-tile
  const auto load = [&](int kt) {
    if (kt < k_tiles) {
      KTile& tile = buffer[kt % STAGES];
      const int k0 = (first + kt) * BLOCK_K;
      copy_transposed<BLOCK_M>(tile.a, A, lda, m0, k0, M, K);
#if TRANS_B
      copy_transposed<BLOCK_N>(tile.b, B, ldb, n0, k0, N, K);
#else
      copy<BLOCK_N>(tile.b, B, ldb, k0, n0, K, N);
#endif
    }
    cp_async_commit();
  };

  // quads of lanes as in warp tiles
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int tm = warp / WARPS_N * WARP_M + (lane / 8 * 2 + lane % 2) * QUAD;
  const int tn = warp % WARPS_N * WARP_N + lane / 2 % LANES_N * QUAD;
  float sum[THREAD_M][THREAD_N] = {};
#pragma unroll 1
  for (int kt = 1 - STAGES; kt < k_tiles; ++kt) {  // loads alone at first: so their code is there once
    if (kt >= 0) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // this k-tile is there for all, and all have read the one before it
    }
    load(kt + STAGES - 1);
    if (kt < 0) continue;
    const auto& [a_tile, b_tile] = buffer[kt % STAGES];
#pragma unroll 16
    for (int k = 0; k < BLOCK_K; ++k) {
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

  float* const sums = reinterpret_cast<float*>(memory);
  cp_async_wait<0>();
  __syncthreads();  // nobody reads k-tiles any more, and none is on its way
#pragma unroll
  for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
    for (int j = 0; j < QUADS_N; ++j) {
      const int row = tm + i / QUAD * LANES_M * QUAD + i % QUAD, column = tn + j * LANES_N * QUAD;
      const float* const s = &sum[i][j * QUAD];
      store_vector(sums + row * C_PITCH + column, Vector<float, QUAD>{s[0], s[1], s[2], s[3]});
    }
  store_shared_sums<SPLIT, BLOCK_M, BLOCK_N, C_PITCH, THREADS, PIECE_C>(
      sums, rank, C + static_cast<long long>(m0) * ldc + n0, ldc, M - m0, N - n0);
}
