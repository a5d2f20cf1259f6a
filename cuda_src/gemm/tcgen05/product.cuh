// what the stages of this track have in common: C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]; k-tiles in
// shared memory as tensor maps bring them, and their product. sm_100a.
#pragma once
#include "epilogue/lanes.cuh"
#include "pipeline/circular_buffer.cuh"
#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"
#include "scheduler/tile_order.cuh"

constexpr int ROW_BYTES = 128;             // as wide as the swizzle
constexpr int ATOM_BYTES = 8 * ROW_BYTES;  // the swizzle repeats every 8 rows
constexpr int PANEL = ROW_BYTES / sizeof(IN);
constexpr int PRODUCT_K = 32 / sizeof(IN);

constexpr int SHARED_BYTES = 227 * 1024;  // that a block may have

// what the warps of a block do: four store tiles, each the lanes of tensor memory that it can read, and of one warp
// each a thread loads k-tiles and starts their products
struct TileWarps {
  static constexpr int EPILOGUE = 4, LOADS = 4, MULTIPLIES = 5, ALL = 6, THREADS = 32 * ALL;
};

static_assert(BLOCK_M == TENSOR_LANES, "BLOCK_M has to be 128: a row of the tile is a lane of tensor memory");
static_assert(BLOCK_N % PANEL == 0 && BLOCK_N <= 256, "BLOCK_N is 64, 128, 192 or 256: a product has 256 columns");
static_assert(BLOCK_K == PANEL, "BLOCK_K has to be 64, or 128 of 8 bits: a row of a k-tile is as wide as the swizzle");

// a k-tile of ROWS_OF_A rows of A and COLUMNS columns of B, which a block loads
template <int ROWS_OF_A, int COLUMNS>
struct KTiles {
  alignas(1024) IN a[ROWS_OF_A * BLOCK_K];  // rows of k
  alignas(1024) IN b[COLUMNS * BLOCK_K];    // rows of k, too. without TRANS_B: panels of 64 columns, in rows of n

  // by one thread: asks for the part of both that begins at these places. in a pair of blocks, `full` is reported to
  // in block `owner`
  __device__ __forceinline__ void load(const TensorMap& A, const TensorMap& B, Barrier& full, int m, int n, int k) {
    load_by([&](IN* to, const TensorMap& map, int row, int column) { tma_load(to, map, full, row, column); }, A, B, m,
            n, k);
  }
  __device__ __forceinline__ void load_for(int owner, const TensorMap& A, const TensorMap& B, Barrier& full, int m,
                                           int n, int k) {
    const auto ask = [&](IN* to, const TensorMap& map, int row, int column) {
      tma_load_pair(to, map, full, owner, row, column);
    };
    load_by(ask, A, B, m, n, k);
  }

  // by one thread: starts the product of GROUP times as many rows and columns, to be put into `sums`, or added
  template <int GROUP>
  __device__ __forceinline__ void multiply(u32 sums, bool add) const {
    constexpr u32 FORM = tensor_form<IN, GROUP * ROWS_OF_A, GROUP * COLUMNS, !TRANS_B>();
    constexpr int STEP = PRODUCT_K * sizeof(IN), B_STEP = TRANS_B ? STEP : PRODUCT_K * ROW_BYTES;
    const u64 rows = tensor_operand(a, 0, ATOM_BYTES);
    const u64 columns = tensor_operand(b, TRANS_B ? 0 : BLOCK_K * ROW_BYTES, ATOM_BYTES);
#pragma unroll
    for (int i = 0; i < BLOCK_K / PRODUCT_K; ++i)
      tensor_multiply<GROUP, sizeof(IN)>(sums, rows + (i * STEP >> 4), columns + (i * B_STEP >> 4), FORM, i > 0 || add);
  }

 private:
  template <class Ask>
  __device__ __forceinline__ void load_by(const Ask& ask, const TensorMap& A, const TensorMap& B, int m, int n, int k) {
    ask(a, A, m, k);
    if constexpr (TRANS_B)
      ask(b, B, n, k);
    else
#pragma unroll
      for (int i = 0; i < COLUMNS; i += PANEL) ask(&b[i * BLOCK_K], B, k, n + i);
  }
};

// by one thread: the k-tiles of a tile of C, as there is room for them. `load` asks for that of an iteration
template <class KTile, int STAGES_, class Load>
__device__ __forceinline__ void load_k_tiles(KTile (&k_tiles)[STAGES_], Pipeline<STAGES_, 1>& ring, Place<STAGES_>& at,
                                             int iterations, const Load& load) {
  for (int i = 0; i < iterations; ++i, at.advance()) {
    ring.acquire(at);
    load(k_tiles[at.stage], ring.commit(at.stage, sizeof(KTile)), i * BLOCK_K);
  }
}

// by one thread: starts the products of a tile of C as its k-tiles come, and has their end reported to `done`
template <int GROUP, class KTile, int STAGES_>
__device__ __forceinline__ void multiply_k_tiles(KTile (&k_tiles)[STAGES_], Pipeline<STAGES_, 1>& ring,
                                                 Place<STAGES_>& at, int iterations, u32 sums, Barrier& done) {
  for (int i = 0; i < iterations; ++i, at.advance()) {
    ring.wait(at);
    k_tiles[at.stage].template multiply<GROUP>(sums, i > 0);
    tensor_commit<GROUP>(ring.empty[at.stage]);
  }
  tensor_commit<GROUP>(done);
}

// by all threads of a block, or of a pair: they meet, and hand tensor memory to one another
template <int GROUP>
__device__ __forceinline__ void tensor_meet() {
  tensor_hand_over();
  if constexpr (GROUP == 1)
    __syncthreads();
  else
    cluster_sync();
  tensor_take_over();
}

// by all threads: at the beginning they get columns for sums, and pipelines. at the end no block frees before all are
// done with its memory
template <int COLUMNS, int GROUP, class... Pipelines>
__device__ __forceinline__ void tensor_begin(u32& sums, Pipelines&... pipelines) {
  if (threadIdx.x / 32 == TileWarps::MULTIPLIES) tensor_allocate<COLUMNS, GROUP>(sums);
  if (threadIdx.x == 0) {
    (pipelines.init(), ...);
    mbarrier_init_fence();
  }
  tensor_meet<GROUP>();
}
template <int COLUMNS, int GROUP>
__device__ __forceinline__ void tensor_end(u32 sums) {
  __syncwarp();
  tensor_meet<GROUP>();
  if (threadIdx.x / 32 == TileWarps::MULTIPLIES) tensor_free<COLUMNS, GROUP>(sums);
}

// how many tiles of so many rows or columns there are, or k-tiles
template <int OF>
__device__ __forceinline__ int tiles(int all) {
  return (all + OF - 1) / OF;
}
