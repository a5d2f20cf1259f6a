// what the stages of this track have in common: gradients of o = softmax(scale q k^T) v. which keys of which head a
// block owns, and which rows see those; products of tiles; how dq is added up in memory. sm_90a.
//
// a block owns BLOCK_N keys, with their values, and goes through tiles of BLOCK_M rows. logits are transposed, keys as
// rows. up to dim 128 a consumer warpgroup has 64 of the keys, and weights and gradients of logits are left operands of
// its dv and dk as they are in registers. of more elements dk and dv of 64 keys are all that the registers of both
// consumers hold: each has half of the columns, WIDE. dq is computed in chunks of 64 x 64, each by one consumer.
#pragma once
#include "../rows.cuh"
#include "pipeline/circular_buffer.cuh"
#include "ptx/bulk.cuh"
#include "ptx/mma.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/wgmma_all.cuh"
#include "tile/fragment.cuh"
#include "tile/fragment_softmax.cuh"
#include "tile/panels.cuh"

constexpr bool WIDE = DIM > 128;
constexpr int CONSUMERS = 2, BLOCK_N = WIDE ? WGMMA_M : CONSUMERS * WGMMA_M, BANDS = BLOCK_M / WGMMA_M;
constexpr int COLUMNS = WIDE ? DIM / CONSUMERS : DIM;  // of dk and dv that a consumer has
constexpr int CHUNKS = BANDS * DIM / 64, CONSUMER_CHUNKS = CHUNKS / CONSUMERS;  // of dq of a tile
constexpr int VECTOR = VECTOR_BYTES / sizeof(IN);

static_assert(BANDS * 64 == BLOCK_M && (BANDS == 1 || DIM == 64), "tiles of 128 rows at dim 64, of 64 rows at others");

using Keys = Panels<IN, BLOCK_N, DIM>;
using Rows = Panels<IN, BLOCK_M, DIM>;
using Operand = u32[BLOCK_M / WGMMA_K][4];

// of the rows of a tile, see rows.cuh
using Statistic = float[BLOCK_M];

// what a kernel is given: tensor maps of (batch, head, row, element); lse2, delta: (batch heads, padded); sums: (batch
// heads, padded, DIM), a tile of BLOCK_M rows in chunks of 64 x 64, in the order of Gradients::add
struct Operands {
  const TensorMap &q, &k, &v, &d_o;
  const float *lse2, *delta;
  float* sums;
  IN *dk, *dv;
  long long dk_batch, dk_head, dk_row;  // elements to the next
  int heads, group, rows, keys, dim, padded;
  float scale;

  // row i sees the keys up to i + behind()
  __device__ __forceinline__ int behind() const { return keys - rows; }
};

#define BACKWARD_MAPS                                                                       \
  const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,                 \
      const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap d_o
#define BACKWARD_PARAMETERS                                                                                      \
  const float *lse2, const float *delta, float *sums, IN *dk, IN *dv, long long dk_batch, long long dk_head,     \
      long long dk_row, int heads, int group, int rows, int keys, int dim, int padded, float scale
#define BACKWARD_OPERANDS                                                                                   \
  {q,      k,       v,     d_o,   lse2, delta, sums, dk,     dv, dk_batch, dk_head, dk_row, heads, group, \
   rows, keys,    dim,   padded, scale}

// BLOCK_N keys of a head, from `first` on, and the first row of the tiles that see some of them
struct WorkTile {
  int batch, key_head, first, first_row;

  // key tile `number` of all: those that most rows see come first
  __device__ __forceinline__ WorkTile(const Operands& g, int number) {
    const int key_tiles = (g.keys + BLOCK_N - 1) / BLOCK_N, key_heads = g.heads / g.group;
    first = number % key_tiles * BLOCK_N;
    key_head = number / key_tiles % key_heads;
    batch = number / key_tiles / key_heads;
    first_row = CAUSAL ? max(0, first - g.behind()) / BLOCK_M * BLOCK_M : 0;
  }
};

// the tiles of rows that a work tile goes through: those of all heads that share its keys, one after the other
struct RowTile {
  int row, place;  // the first row, in its head and in lse2 and delta
  int number = 0, all;

  __device__ __forceinline__ RowTile(const Operands& g, const WorkTile& tile)
      : row(tile.first_row), all((g.padded - row) / BLOCK_M * g.group) {
    place = (tile.batch * g.heads + tile.key_head * g.group) * g.padded + row;
  }

  __device__ __forceinline__ bool any() const { return number < all; }
  // of a circular buffer of two, in which such tiles are one after the other
  __device__ __forceinline__ Place<2> buffer() const { return {number % 2, number / 2 % 2}; }
  __device__ __forceinline__ void advance(const Operands& g, const WorkTile& tile) {
    ++number;
    row += BLOCK_M, place += BLOCK_M;
    if (row == g.padded) row = tile.first_row, place += row;
  }
};

// weights, or gradients of the logits, of a tile, a key a row: panels of 64 of the tile's rows
struct alignas(ATOM_BYTES) Scores {
  IN panel[BANDS][BLOCK_N * 64];

  // by a consumer: writes those of 64 keys, from `first` on
  __device__ __forceinline__ void put(int first, const Operand& x) {
#pragma unroll
    for (int i = 0; i < BLOCK_M / WGMMA_K; ++i) stmatrix_x4(place(first, i), x[i]);
  }
  // reads them
  __device__ __forceinline__ void get(int first, Operand& x) {
#pragma unroll
    for (int i = 0; i < BLOCK_M / WGMMA_K; ++i) ldmatrix_x4(x[i], place(first, i));
  }

 private:
  // of 16 rows of the tile. the swizzle permutes 16 bytes of a row: of its address, bits 4 to 6
  __device__ __forceinline__ void* place(int first, int operand) {
    const int lane = threadIdx.x % WARP, key = first + threadIdx.x % WARPGROUP / WARP * 16 + lane % 16;
    const u32 row = shared_address(panel[0] + key * 64 + (lane / 16 ^ key % 8) * VECTOR);
    return __cvta_shared_to_generic((row ^ operand % 4 * 2 * VECTOR_BYTES) + operand / 4 * sizeof(panel[0]));
  }
};

// by a consumer: has a chunk of dq computed: a band of 64 rows, or, where a tile has one alone, 64 columns
__device__ __forceinline__ void multiply_scores(float (&dq)[32], const Scores& ds, int chunk, const Keys& k) {
  const u64 rows = swizzled_operand(shared_address(ds.panel[BANDS == 1 ? 0 : chunk]), 0, ATOM_BYTES);
  const u64 columns = swizzled_operand(shared_address(k.panel[BANDS == 1 ? chunk : 0]), 0, ATOM_BYTES);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < BLOCK_N / WGMMA_K; ++i)
    wgmma<1, 1>(dq, operand_at(rows, i * WGMMA_K * ROW_BYTES), operand_at(columns, i * WGMMA_K * ROW_BYTES), IN(),
                i > 0);
  wgmma_commit();
}

// by a consumer: has scores of 64 keys, times its columns of rows, added to dk or dv. WIDE
template <int SUMS>
__device__ __forceinline__ void add_scores(float (&sum)[SUMS], const Scores& scores, const Rows& rows, int consumer) {
  const u64 keys = swizzled_operand(shared_address(scores.panel), 0, ATOM_BYTES);
  const u32 from = shared_address(rows.panel[consumer * COLUMNS / 64]);
  const u64 columns = swizzled_operand(from, BLOCK_M * ROW_BYTES, ATOM_BYTES);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < BLOCK_M / WGMMA_K; ++i)
    wgmma<1>(sum, operand_at(keys, i * WGMMA_K * sizeof(IN)), operand_at(columns, i * WGMMA_K * ROW_BYTES), IN());
  wgmma_commit();
}

// a chunk of dq, on the way to memory
using Chunk = float[WGMMA_M * 64];

// what a consumer keeps of 64 keys: a thread of two of them
struct Gradients {
  const Operands& g;
  const WorkTile& tile;
  float dk[COLUMNS / 2] = {}, dv[COLUMNS / 2] = {};
  int consumer;

  __device__ __forceinline__ Gradients(const Operands& g, const WorkTile& tile, int consumer)
      : g(g), tile(tile), consumer(consumer) {}

  // the first of the consumer's keys, and of the thread's, the other of which is 8 further down
  __device__ __forceinline__ int first() const { return tile.first + (WIDE ? 0 : consumer * WGMMA_M); }
  __device__ __forceinline__ int first_of_thread() const {
    return first() + threadIdx.x % WARPGROUP / WARP * 16 + threadIdx.x % WARP / ROW_LANES;
  }

  // products of keys and rows become weights. rows of the tile begin at `row`
  __device__ __forceinline__ void weigh(float (&p)[BLOCK_M / 2], const Statistic& lse2, int row) const {
    const int last = first() + WGMMA_M - 1;
    if (last >= g.keys || (CAUSAL && last > row + g.behind())) {  // some row does not see all
      const int key = first_of_thread(), before = CAUSAL ? -g.behind() - row : -g.keys;
      mask_columns_before(p, {key < g.keys ? key + before : BLOCK_M, key + 8 < g.keys ? key + 8 + before : BLOCK_M});
    }
    const float factor = g.scale * LOG2_E;
#pragma unroll
    for (int i = 0; i < BLOCK_M / 2; i += 4) {
      const auto base = load_vector<2>(&lse2[i * 2 + threadIdx.x % ROW_LANES * 2]);
#pragma unroll
      for (int j = 0; j < 4; ++j) p[i + j] = ex2(p[i + j] * factor - base.x[j % 2]);
    }
  }

  // products of values and gradients of o become gradients of the logits
  __device__ __forceinline__ void differentiate(float (&ds)[BLOCK_M / 2], const float (&p)[BLOCK_M / 2],
                                                const Statistic& delta) const {
#pragma unroll
    for (int i = 0; i < BLOCK_M / 2; i += 4) {
      const auto less = load_vector<2>(&delta[i * 2 + threadIdx.x % ROW_LANES * 2]);
#pragma unroll
      for (int j = 0; j < 4; ++j) ds[i + j] = p[i + j] * (ds[i + j] - less.x[j % 2]);
    }
  }

  // by a consumer: adds a chunk of dq of a tile to memory, when what was added before has left `staged`
  __device__ __forceinline__ void add(Chunk& staged, const float (&dq)[32], int place, int chunk) const {
    if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read<0>();
    stage(staged, dq);
    send(staged, place, chunk);
  }

  // the two halves of that: the threads write it, one has it added
  __device__ __forceinline__ void stage(Chunk& staged, const float (&dq)[32]) const {
    const int thread = threadIdx.x % WARPGROUP;
    named_sync<WARPGROUP>(1 + consumer);
#pragma unroll
    for (int j = 0; j < 32; j += 4)
      store_vector(&staged[(j / 4 * WARPGROUP + thread) * 4], Vector<float, 4>{dq[j], dq[j + 1], dq[j + 2], dq[j + 3]});
    async_fence();
    named_sync<WARPGROUP>(1 + consumer);
  }
  __device__ __forceinline__ void send(const Chunk& staged, int place, int chunk) const {
    if (threadIdx.x % WARPGROUP > 0) return;
    bulk_add(g.sums + static_cast<long long>(place) * DIM + chunk * WGMMA_M * 64, staged, sizeof(Chunk));
    tma_store_commit();
  }

  __device__ __forceinline__ void store() {
    if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read<0>();
#pragma unroll
    for (float& x : dk) x *= g.scale;
    const int key = first_of_thread(), column = WIDE ? consumer * COLUMNS : 0;
    const long long to = tile.batch * g.dk_batch + tile.key_head * g.dk_head + key * g.dk_row + column;
    const bool inside[2] = {key < g.keys, key + 8 < g.keys};
    // without gaps, and tensor maps are there only for a dim that is a multiple of 8: whole vectors
    store_rows({g.dk + to, g.dk + to + 8 * g.dk_row}, inside, dk, g.dim - column, true);
    store_rows({g.dv + to, g.dv + to + 8 * g.dk_row}, inside, dv, g.dim - column, true);
  }
};

// dq = scale sums: a block has a tile of BLOCK_M rows, a warpgroup a chunk of it
extern "C" __global__ void __launch_bounds__(CHUNKS* WARPGROUP)
    attention_backward_queries(const float* sums, IN* dq, long long q_batch, long long q_head, long long q_row,
                               int heads, int rows, int dim, int padded, float scale) {
  const int tiles = padded / BLOCK_M, head = blockIdx.x / tiles, chunk = threadIdx.x / WARPGROUP;
  const int thread = threadIdx.x % WARPGROUP, first = BANDS == 1 ? 0 : chunk * WGMMA_M;
  const int row = blockIdx.x % tiles * BLOCK_M + first + thread / WARP * 16 + thread % WARP / ROW_LANES;
  const int column = BANDS == 1 ? chunk * 64 : 0;
  const float* const from = sums + (static_cast<long long>(blockIdx.x) * CHUNKS + chunk) * WGMMA_M * 64;
  float sum[32];
#pragma unroll
  for (int j = 0; j < 32; j += 4) {
    const auto four = load_vector<4>(from + (j / 4 * WARPGROUP + thread) * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[j + i] = four.x[i] * scale;
  }
  IN* const to = dq + head / heads * q_batch + head % heads * q_head + row * q_row + column;
  const bool inside[2] = {row < rows, row + 8 < rows};
  store_rows({to, to + 8 * q_row}, inside, sum, dim - column, q_row % VECTOR == 0 && q_head % VECTOR == 0);
}
