// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), with TRANS_A: (K, M), C: (M, N); rows
// are lda, ldb, ldc elements apart. batches and an epilogue as general.cuh has them. bf16 and fp16.
//
// stage 4 of mma, small tiles: the size of a tile depends on the problem, from 16 x 64 to 128 x 128. a
// cluster of SPLIT blocks shares a tile, and each block multiplies a part of k. rows of an operand may begin
// at any address. they are copied in pieces of PIECE_A or PIECE_B elements, the largest pieces that divide
// the distance between two rows. cp.async copies pieces of 4 bytes and more. single elements pass through
// registers: they are loaded while the k-tile before is multiplied. at the end, the sums are in shared
// memory. the blocks of a cluster add them up there, each block for a part of the rows, and store whole rows
// of C.
//
// what it gains: rows that are no multiples of 16 bytes need no copy beforehand, and no branch for each
// chunk. where C is small and k is long, there are enough tiles for the whole device, in one launch. the code
// is short. this matters when caches are cold: then a small product takes as long as fetching its
// instructions.
//
// what limits it: for large products, mma.sync. where pieces are small, the number of copies.

#include "epilogue/shared_sums.cuh"
#include "general.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma.cuh"
#include "tile/vector.cuh"

constexpr int WARP = 32, THREADS = WARPS_M * WARPS_N * WARP;
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;  // the shape of one mma.sync
constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr int TILES_M = WARP_M / MMA_M, TILES_N = WARP_N / MMA_N;
constexpr int PAD = 8;  // elements, 16 bytes: the chunks that ldmatrix reads lie in all banks

static_assert(sizeof(IN) == 2, "mma.sync takes bf16 and fp16 here");
static_assert(WARP_M % MMA_M == 0 && WARP_N % (2 * MMA_N) == 0,
              "a warp's tile has to be made of 16 x 16 pieces");
static_assert(STAGES >= 2, "one k-tile is multiplied while at least one is loaded");

// a tile of a row-major matrix in shared memory, which comes in pieces of PIECE elements
template <int ROWS, int COLUMNS, int PIECE>
struct Tile {
  static constexpr int PITCH = COLUMNS + PAD;
  static constexpr int ROW_PIECES = COLUMNS / PIECE, ROW_STEP = THREADS / ROW_PIECES;
  static constexpr bool IDLE = ROW_STEP > ROWS;            // some threads copy nothing
  static constexpr int EACH = IDLE ? 1 : ROWS / ROW_STEP;  // pieces of a thread, one below the other
  static_assert(THREADS % ROW_PIECES == 0 && (IDLE || ROWS % ROW_STEP == 0),
                "threads have to copy whole rows of a tile");
  static constexpr bool BY_REGISTERS = PIECE == 1;
  static constexpr int AT_ONCE = BY_REGISTERS ? EACH : 4;
  struct Held {
    IN x[BY_REGISTERS ? EACH : 1];
  };
  IN data[ROWS * PITCH];

  __device__ __forceinline__ const IN* at(int row, int column) const { return data + row * PITCH + column; }

  // starts to copy; what lies outside of the matrix becomes zero. single elements are only read
  __device__ __forceinline__ void load(Held& held, const IN* from, int ld, int row0, int column0, int rows,
                                       int columns) {
    if (IDLE && threadIdx.x / ROW_PIECES >= ROWS) return;
    const int row = row0 + threadIdx.x / ROW_PIECES, column = column0 + threadIdx.x % ROW_PIECES * PIECE;
    const IN* source = from + static_cast<long long>(row) * ld + column;
    const long long step = static_cast<long long>(ROW_STEP) * ld;
    const int valid = min(max(columns - column, 0), PIECE);
#pragma unroll AT_ONCE
    for (int i = 0; i < EACH; ++i, source += step) {
      const bool inside = row + i * ROW_STEP < rows && valid > 0;
      if constexpr (BY_REGISTERS)
        held.x[i] = inside ? *source : IN(0.f);
      else
        cp_async_past_l1<PIECE * sizeof(IN)>(own(i), inside ? source : from, inside ? valid * sizeof(IN) : 0);
    }
  }

  // single elements: puts them where they belong
  __device__ __forceinline__ void store(const Held& held) {
    if (!BY_REGISTERS || (IDLE && threadIdx.x / ROW_PIECES >= ROWS)) return;
#pragma unroll
    for (int i = 0; i < EACH; ++i) *own(i) = held.x[BY_REGISTERS ? i : 0];
  }

 private:
  __device__ __forceinline__ IN* own(int i) {
    return data + (threadIdx.x / ROW_PIECES + i * ROW_STEP) * PITCH + threadIdx.x % ROW_PIECES * PIECE;
  }
};

struct KTile {
  Tile<TRANS_A ? BLOCK_K : BLOCK_M, TRANS_A ? BLOCK_M : BLOCK_K, PIECE_A> a;
  Tile<TRANS_B ? BLOCK_N : BLOCK_K, TRANS_B ? BLOCK_K : BLOCK_N, PIECE_B> b;
};

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS)
    gemm_small_tiles(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M, int N,
                     int K, int lda, int ldb, int ldc, const OUT* added, int ld_added, float alpha,
                     float beta, long long step_a, long long step_b, long long step_c, long long step_added) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char shared[];
  KTile* const buffer = reinterpret_cast<KTile*>(shared);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int tiles_n = (N + BLOCK_N - 1) / BLOCK_N, number = blockIdx.x / SPLIT;
  const int m0 = number / tiles_n * BLOCK_M, n0 = number % tiles_n * BLOCK_N;
  const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  const int rank = cluster_rank_of<SPLIT>(), all = (K + BLOCK_K - 1) / BLOCK_K;
  const int first = all * rank / SPLIT, k_tiles = all * (rank + 1) / SPLIT - first;

  Epilogue epilogue{added, ld_added, M, N, alpha, beta};
  epilogue = epilogue.from(m0, n0, blockIdx.y, step_added);
#if BATCHED
  A += blockIdx.y * step_a, B += blockIdx.y * step_b, C += blockIdx.y * step_c;
#endif

  decltype(KTile::a)::Held held_a;
  decltype(KTile::b)::Held held_b;
  // one group of copies a k-tile, empty ones at the end: so the number of groups in flight is always the same
  const auto load = [&](int kt) {
    if (kt < k_tiles) {
      KTile& tile = buffer[kt % STAGES];
      const int k0 = (first + kt) * BLOCK_K;
      tile.a.load(held_a, A, lda, TRANS_A ? k0 : m0, TRANS_A ? m0 : k0, TRANS_A ? K : M, TRANS_A ? M : K);
      tile.b.load(held_b, B, ldb, TRANS_B ? n0 : k0, TRANS_B ? k0 : n0, TRANS_B ? N : K, TRANS_B ? K : N);
    }
    cp_async_commit();
  };
  const auto store = [&](int kt) {
    if (kt >= k_tiles) return;
    buffer[kt % STAGES].a.store(held_a);
    buffer[kt % STAGES].b.store(held_b);
  };
  float sum[TILES_M][TILES_N][4] = {};
#pragma unroll 1
  for (int kt = 1 - STAGES; kt < k_tiles; ++kt) {  // loads alone at first: so their code is there once
    if (kt >= 0) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // this k-tile has come for everyone, and everyone is done with the one before
    }
    load(kt + STAGES - 1);
    const KTile& tile = buffer[max(kt, 0) % STAGES];
    if (kt >= 0)
#pragma unroll
      for (int k = 0; k < BLOCK_K; k += MMA_K) {
        u32 a[TILES_M][4], b[TILES_N / 2][4];
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
          if constexpr (TRANS_A)
            ldmatrix_x4_trans(a[i],
                              tile.a.at(k + lane / 16 * 8 + lane % 8, warp_m + i * MMA_M + lane / 8 % 2 * 8));
          else
            ldmatrix_x4(a[i], tile.a.at(warp_m + i * MMA_M + lane % 16, k + lane / 16 * 8));
#pragma unroll
        for (int j = 0; j < TILES_N / 2; ++j) {
          // two pieces of B at once: n 0 to 7 and 8 to 15, each for k 0 to 7 and 8 to 15
          const int n = warp_n + j * 2 * MMA_N;
          if constexpr (TRANS_B)
            ldmatrix_x4(b[j], tile.b.at(n + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
          else
            ldmatrix_x4_trans(b[j], tile.b.at(k + lane % 16, n + lane / 16 * 8));
        }
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
          for (int j = 0; j < TILES_N; ++j)
            mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], IN());
      }
    store(kt + STAGES - 1);
  }

  float* const sums = reinterpret_cast<float*>(shared);
  cp_async_wait<0>();
  __syncthreads();  // nobody reads k-tiles any more, and none is on its way
  store_fragments<SPLIT, WARPS_M, WARPS_N, PIECE_C>(
      sums, sum, rank, C + static_cast<long long>(m0) * ldc + n0, ldc, M - m0, N - n0, epilogue);
}
