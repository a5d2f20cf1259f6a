// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart. bf16 and fp16.
//
// stage 5 of mma, shifted tiles: rows may begin at any address, and are still copied 16 bytes at a time.
// cp.async begins at the last multiple of 16 bytes before a row's part of the k-tile, and ends at the first
// multiple behind it. when the bytes have arrived, each thread shifts what it copied itself, two neighbouring
// pieces at a time, and writes the result where ldmatrix reads. a warp copies whole rows, so that only its
// own lanes wait for each other. rows that begin at a multiple of 16 bytes are read where they arrived. tiles
// and clusters are those of small_tiles.
//
// what it gains: rows at any address have as many k-tiles in flight as aligned rows have. the number of loads
// is an eighth of what single elements need.
//
// what limits it: shifting takes as many instructions as mma.sync does. besides, mma.sync does not fill the
// tensor cores. wgmma would fill them, but it needs a copy of the rows first.

#include "epilogue/shared_sums.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma.cuh"
#include "tile/vector.cuh"

constexpr int WARP = 32, THREADS = WARPS_M * WARPS_N * WARP;
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;  // the shape of one mma.sync
constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr int TILES_M = WARP_M / MMA_M, TILES_N = WARP_N / MMA_N;
constexpr int CHUNK = VECTOR_BYTES / sizeof(IN);
constexpr int PAD = CHUNK;  // the chunks that ldmatrix reads lie in all banks

static_assert(sizeof(IN) == 2, "mma.sync takes bf16 and fp16 here");
static_assert(WARP_M % MMA_M == 0 && WARP_N % (2 * MMA_N) == 0,
              "a warp's tile has to be made of 16 x 16 pieces");
static_assert(STAGES >= 2, "one k-tile is multiplied while at least one is loaded");

// k-tiles of a row-major matrix in shared memory. ALIGNED: its rows are multiples of 16 bytes apart
template <int ROWS, int COLUMNS, bool ALIGNED>
struct Operand {
  static constexpr int PITCH = COLUMNS + PAD;  // what comes of a row that begins anywhere is a chunk more
  static constexpr int ROW_CHUNKS = COLUMNS / CHUNK, ROW_STEP = THREADS / ROW_CHUNKS;
  static constexpr bool IDLE = ROW_STEP > ROWS;            // some threads copy nothing
  static constexpr int EACH = IDLE ? 1 : ROWS / ROW_STEP;  // chunks of a thread, one below the other
  static_assert(WARP % ROW_CHUNKS == 0 && (IDLE || ROWS % ROW_STEP == 0), "a warp has to copy whole rows");
  IN come[STAGES][ROWS * PITCH];
  IN shifted[ALIGNED ? 1 : 2][ALIGNED ? CHUNK : ROWS * PITCH];

  static __device__ __forceinline__ int first_row() { return threadIdx.x / ROW_CHUNKS; }
  static __device__ __forceinline__ int first_chunk() { return threadIdx.x % ROW_CHUNKS; }
  static __device__ __forceinline__ bool idle() { return IDLE && first_row() >= ROWS; }

  // how many bytes behind a multiple of 16 this part of a row begins
  static __device__ __forceinline__ unsigned begins(const IN* part) {
    return reinterpret_cast<size_t>(part) % VECTOR_BYTES;
  }

  // starts to copy the k-tile at (row0, column0) of `rows` x `columns` elements. what lies behind the end of
  // a row becomes zero
  __device__ __forceinline__ void load(int stage, const IN* from, int ld, int row0, int column0, int rows,
                                       int columns) {
    if (idle()) return;
    const IN* part = from + static_cast<long long>(row0 + first_row()) * ld + column0;
    const long long step = static_cast<long long>(ROW_STEP) * ld;
    IN* to = come[stage] + first_row() * PITCH + first_chunk() * CHUNK;
#pragma unroll 4
    for (int i = 0; i < EACH; ++i, part += step, to += ROW_STEP * PITCH) {
      const int before = ALIGNED ? 0 : begins(part) / static_cast<int>(sizeof(IN));
      const bool inside = row0 + first_row() + i * ROW_STEP < rows;
      const auto copy = [&](int chunk) {
        const int behind = chunk * CHUNK - before,
                  valid = inside ? min(max(columns - column0 - behind, 0), CHUNK) : 0;
        cp_async_past_l1<VECTOR_BYTES>(to + (chunk - first_chunk()) * CHUNK, valid > 0 ? part + behind : from,
                                       valid * sizeof(IN));
      };
      copy(first_chunk());
      if (!ALIGNED && first_chunk() == ROW_CHUNKS - 1) copy(ROW_CHUNKS);
    }
  }

  // by every warp, when what its lanes have copied has come: shifts that
  __device__ __forceinline__ void shift(int stage, int kt, const IN* from, int ld, int row0, int column0) {
    if (ALIGNED || idle()) return;
    unsigned bytes = begins(from + static_cast<long long>(row0 + first_row()) * ld + column0);
    const unsigned step = ROW_STEP * ld * static_cast<unsigned>(sizeof(IN));
    const int place = first_row() * PITCH + first_chunk() * CHUNK;
    const IN* came = come[stage] + place;
    IN* to = shifted[kt % 2] + place;
#pragma unroll 4
    for (int i = 0; i < EACH; ++i, came += ROW_STEP * PITCH, to += ROW_STEP * PITCH, bytes += step)
      store_vector(
          to, ::shifted(load_vector<CHUNK>(came), load_vector<CHUNK>(came + CHUNK), bytes % VECTOR_BYTES));
  }

  // k-tile `kt`, which has come to this stage
  __device__ __forceinline__ const IN* tile(int stage, int kt) const {
    return ALIGNED ? come[stage] : shifted[kt % 2];
  }
  static __device__ __forceinline__ const IN* at(const IN* tile, int row, int column) {
    return tile + row * PITCH + column;
  }
};

struct Shared {
  Operand<BLOCK_M, BLOCK_K, ALIGNED_A> a;
  Operand<TRANS_B ? BLOCK_N : BLOCK_K, TRANS_B ? BLOCK_K : BLOCK_N, ALIGNED_B> b;
};

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS)
    gemm_shifted_tiles(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M, int N,
                       int K, int lda, int ldb, int ldc) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int tiles_n = (N + BLOCK_N - 1) / BLOCK_N, number = blockIdx.x / SPLIT;
  const int m0 = number / tiles_n * BLOCK_M, n0 = number % tiles_n * BLOCK_N;
  const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  const int rank = cluster_rank_of<SPLIT>(), all = (K + BLOCK_K - 1) / BLOCK_K;
  const int first = all * rank / SPLIT, k_tiles = all * (rank + 1) / SPLIT - first;

  // one group of copies a k-tile, empty ones at the end: so the number of groups in flight is always the same
  const auto load = [&](int kt) {
    if (kt < k_tiles) {
      const int k0 = (first + kt) * BLOCK_K;
      shared.a.load(kt % STAGES, A, lda, m0, k0, M, K);
      shared.b.load(kt % STAGES, B, ldb, TRANS_B ? n0 : k0, TRANS_B ? k0 : n0, TRANS_B ? N : K,
                    TRANS_B ? K : N);
    }
    cp_async_commit();
  };
  float sum[TILES_M][TILES_N][4] = {};
#pragma unroll 1
  for (int kt = 1 - STAGES; kt < k_tiles; ++kt) {  // loads alone at first: so their code is there once
    if (kt >= 0) {
      cp_async_wait<STAGES - 2>();
      __syncwarp();
      const int k0 = (first + kt) * BLOCK_K;
      shared.a.shift(kt % STAGES, kt, A, lda, m0, k0);
      shared.b.shift(kt % STAGES, kt, B, ldb, TRANS_B ? n0 : k0, TRANS_B ? k0 : n0);
      __syncthreads();  // this k-tile is there for everyone, and everyone is done with the one before
    }
    load(kt + STAGES - 1);
    const int now = max(kt, 0);
    const IN *const tile_a = shared.a.tile(now % STAGES, now), *const tile_b =
                                                                   shared.b.tile(now % STAGES, now);
    if (kt >= 0)
#pragma unroll
      for (int k = 0; k < BLOCK_K; k += MMA_K) {
        u32 a[TILES_M][4], b[TILES_N / 2][4];
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
          ldmatrix_x4(a[i], shared.a.at(tile_a, warp_m + i * MMA_M + lane % 16, k + lane / 16 * 8));
#pragma unroll
        for (int j = 0; j < TILES_N / 2; ++j) {
          // two pieces of B at once: n 0 to 7 and 8 to 15, each for k 0 to 7 and 8 to 15
          const int n = warp_n + j * 2 * MMA_N;
          if constexpr (TRANS_B)
            ldmatrix_x4(b[j], shared.b.at(tile_b, n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
          else
            ldmatrix_x4_trans(b[j], shared.b.at(tile_b, k + lane % 16, n + lane / 16 * 8));
        }
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
          for (int j = 0; j < TILES_N; ++j)
            mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], IN());
      }
  }

  float* const sums = reinterpret_cast<float*>(memory);
  cp_async_wait<0>();
  __syncthreads();  // nobody reads k-tiles any more, and none is on its way
  store_fragments<SPLIT, WARPS_M, WARPS_N, PIECE_C>(
      sums, sum, rank, C + static_cast<long long>(m0) * ldc + n0, ldc, M - m0, N - n0);
}
