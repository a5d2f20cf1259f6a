// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart. bf16 and fp16.
//
// stage 6 of mma, a branch of stage 4, last block: where tiles are few and k is long, CLUSTERS clusters of
// SPLIT blocks share a tile. each cluster adds up its sums and leaves them in `partial`: (tiles, CLUSTERS,
// BLOCK_M, BLOCK_N). a block does this for a part of the rows, and counts itself in `counters`: (tiles,
// SPLIT), zero before and after. the last block of all clusters to finish these rows adds up what the
// clusters have left, always in the same order, and stores C.
//
// what it gains: a cluster has eight blocks at most. four tiles then occupy 32 multiprocessors, and each of
// their blocks waits for one k-tile after the other.
//
// what limits it: the sums of a part are written to the L2 and read again, after all blocks have counted.

#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma.cuh"
#include "tile/convert.cuh"
#include "tile/last_block.cuh"
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
  Tile<BLOCK_M, BLOCK_K, PIECE_A> a;
  Tile<TRANS_B ? BLOCK_N : BLOCK_K, TRANS_B ? BLOCK_K : BLOCK_N, PIECE_B> b;
};

constexpr int C_PITCH = BLOCK_N + PAD;  // of sums

// a block's part of a tile's pieces of PIECE_C sums, of those that C has: work(piece, row, column)
template <class Work>
__device__ __forceinline__ void each_piece(int rank, int rows, int columns, Work work) {
  constexpr int ROW_PIECES = BLOCK_N / PIECE_C, AT_ONCE = SPLIT < 4 ? 4 / SPLIT : 1;
#pragma unroll AT_ONCE
  for (int i = rank * THREADS + threadIdx.x; i < BLOCK_M * ROW_PIECES; i += SPLIT * THREADS) {
    const int row = i / ROW_PIECES, column = i % ROW_PIECES * PIECE_C;
    if (row < rows && column < columns) work(i, row, column);
  }
}

// adds up the sums of a cluster and leaves them in memory, and, by the last block, those of all clusters.
// `partial` and `counter` are those of the tile
__device__ __forceinline__ void store(const float* sums, int rank, int part, float* partial,
                                      unsigned* counter, OUT* to, int ldc, int rows, int columns) {
  using Piece = Vector<float, PIECE_C>;
  const auto left_by = [&](int other, int i) {
    return partial + static_cast<long long>(other) * BLOCK_M * BLOCK_N + i * PIECE_C;
  };
  const auto add = [](Piece& total, const Piece& v) {
#pragma unroll
    for (int e = 0; e < PIECE_C; ++e) total.x[e] += v.x[e];
  };
  if constexpr (SPLIT > 1)
    cluster_sync();
  else
    __syncthreads();
  each_piece(rank, rows, columns, [&](int i, int row, int column) {
    const float* const own = sums + row * C_PITCH + column;
    Piece total = {};
#pragma unroll
    for (int from = 0; from < SPLIT; ++from) {
      Piece v;
      if constexpr (SPLIT > 1)
        cluster_load(v.x, own, from);
      else
        v = load_vector<PIECE_C>(own);
      add(total, v);
    }
    store_vector(left_by(part, i), total);
  });
  if constexpr (SPLIT > 1)
    cluster_sync();  // the others have read what is here, and all of this block has stored
  else
    __syncthreads();
  if (!last_block(counter, CLUSTERS)) return;
  each_piece(rank, rows, columns, [&](int i, int row, int column) {
    Piece total = {};
#pragma unroll
    for (int other = 0; other < CLUSTERS; ++other) add(total, load_vector<PIECE_C>(left_by(other, i)));
    Vector<OUT, PIECE_C> out;
#pragma unroll
    for (int e = 0; e < PIECE_C; ++e) out.x[e] = from_float<OUT>(total.x[e]);
    store_tail(to + static_cast<long long>(row) * ldc + column, out, columns - column, true);
  });
}

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS)
    gemm_last_block(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, float* partial,
                    unsigned* counters, int M, int N, int K, int lda, int ldb, int ldc) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char shared[];
  KTile* const buffer = reinterpret_cast<KTile*>(shared);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int tiles_n = (N + BLOCK_N - 1) / BLOCK_N, cluster = blockIdx.x / SPLIT;
  const int part = cluster % CLUSTERS, number = cluster / CLUSTERS;
  const int m0 = number / tiles_n * BLOCK_M, n0 = number % tiles_n * BLOCK_N;
  const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  const int rank = cluster_rank_of<SPLIT>(), all = (K + BLOCK_K - 1) / BLOCK_K;
  const int own = part * SPLIT + rank;  // of the blocks that share k
  const int first = all * own / (CLUSTERS * SPLIT), k_tiles = all * (own + 1) / (CLUSTERS * SPLIT) - first;

  decltype(KTile::a)::Held held_a;
  decltype(KTile::b)::Held held_b;
  // one group of copies a k-tile, empty ones at the end: so the number of groups in flight is always the same
  const auto load = [&](int kt) {
    if (kt < k_tiles) {
      KTile& tile = buffer[kt % STAGES];
      const int k0 = (first + kt) * BLOCK_K;
      tile.a.load(held_a, A, lda, m0, k0, M, K);
      tile.b.load(held_b, B, ldb, TRANS_B ? n0 : k0, TRANS_B ? k0 : n0, TRANS_B ? N : K, TRANS_B ? K : N);
    }
    cp_async_commit();
  };
  const auto put = [&](int kt) {
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
    put(kt + STAGES - 1);
  }

  float* const sums = reinterpret_cast<float*>(shared);
  cp_async_wait<0>();
  __syncthreads();  // nobody reads k-tiles any more, and none is on its way
#pragma unroll
  for (int i = 0; i < TILES_M * 2; ++i)
#pragma unroll
    for (int j = 0; j < TILES_N; ++j) {
      const float* s = &sum[i / 2][j][i % 2 * 2];
      store_vector(sums + (warp_m + i * 8 + lane / 4) * C_PITCH + warp_n + j * MMA_N + lane % 4 * 2,
                   Vector<float, 2>{s[0], s[1]});
    }
  store(sums, rank, part, partial + static_cast<long long>(number) * CLUSTERS * BLOCK_M * BLOCK_N,
        counters + number * SPLIT + rank, C + static_cast<long long>(m0) * ldc + n0, ldc, M - m0, N - n0);
}
