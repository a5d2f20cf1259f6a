// gradients of o = softmax(scale q k^T) v: with p = exp(scale q k^T - lse) and ds = p (do v^T - rowsum(do
// o)), dq = scale ds k, dk = scale ds^T q, dv = p^T do. q, o, do, dq: (batch, heads, rows, dim), k, v, dk,
// dv: (batch, heads / group, keys, dim), with any strides; lse: (batch, heads, rows). dim up to DIM, and up
// to BLOCK_N keys. bf16 and fp16.
//
// all keys: a block owns all keys of a head. it loops over the rows of all heads that share them, BLOCK_M at a
// time. so no other block adds to dq: it stays in registers, and is scaled, rounded and stored at once. rows
// of o come beside those of do, and the block computes rowsum(do o) itself.
//
// what it gains: one launch instead of three, no scratch memory, no atomics. so two runs give the same bits,
// and short sequences, whose time is that of launches and of memory, take a fraction of the time.
//
// what limits it: sequences of at most BLOCK_N keys. a head is solved by one block, whose warps wait for each
// other four times per tile.

#include "products.cuh"
#include "ptx/ex2.cuh"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"
#include "tile/online_softmax.cuh"

constexpr int BANDS = BLOCK_N / 16, PARTS = 2;  // of 16 keys, and of the rows of a tile, or columns
constexpr int WARPS = BANDS * PARTS, THREADS = WARPS * WARP;
constexpr int ROW_BANDS = BLOCK_M / 16, ROW_PARTS = WARPS / ROW_BANDS;  // of dq: a warp has one of each
constexpr int QUERIES = BLOCK_M / PARTS, COLUMNS = DIM / PARTS, ROW_COLUMNS = DIM / ROW_PARTS;
static_assert(WARPS % ROW_BANDS == 0 && ROW_COLUMNS % 32 == 0, "a warp stores 32 columns of dq at once");

using Keys = AsyncTile<IN, BLOCK_N, DIM, THREADS>;
using Rows = AsyncTile<IN, BLOCK_M, DIM, THREADS>;
using Scores = AsyncTile<IN, BLOCK_N, BLOCK_M, THREADS>;

struct Tile {
  Rows q, d_o, o;
};

struct Shared {
  Keys k, v;
  Scores p, ds;
  float lse2[BLOCK_M], delta[BLOCK_M];
  Tile tiles[2];  // the second one is there where a block has more than one
};

// rowsum(do o) of the rows of a tile, THREADS / BLOCK_M lanes each, and the logarithms of their sums, in base 2:
// where a row sees nothing, or is none, infinity, which makes all its weights 0
__device__ __forceinline__ void summarise(Shared& shared, Tile& tile, float log_sum) {
  constexpr int LANES = THREADS / BLOCK_M;
  const int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  float products = 0.f;
#pragma unroll
  for (int c = 0; c < DIM / CHUNK; c += LANES) {
    const auto x = load_vector<CHUNK>(tile.o.chunk(row, c + lane)),
               y = load_vector<CHUNK>(tile.d_o.chunk(row, c + lane));
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) products += to_float(x.x[i]) * to_float(y.x[i]);
  }
  products = warp_reduce<Sum, LANES>(products);
  if (lane > 0) return;
  shared.lse2[row] = log_sum == -infinity() ? infinity() : log_sum * LOG2_E;
  shared.delta[row] = products;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_backward_all_keys(const IN* q, const IN* k, const IN* v, const IN* o, const IN* d_o,
                                const float* lse, IN* dq, IN* dk, IN* dv, long long q_batch, long long q_head,
                                long long q_row, long long k_batch, long long k_head, long long k_row,
                                long long o_batch, long long o_head, long long o_row, long long dk_batch,
                                long long dk_head, long long dk_row, int heads, int group, int rows, int keys,
                                int dim, int causal, float scale, int aligned) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int band = warp % BANDS, part = warp / BANDS, row_band = warp % ROW_BANDS,
            row_part = warp / ROW_BANDS;
  const int key_head = blockIdx.x % (heads / group), batch = blockIdx.x / (heads / group);
  const int behind = keys - rows;  // row i sees the keys up to i + behind
  const int tiles = (rows + BLOCK_M - 1) / BLOCK_M, all = tiles * group;
  const bool whole = dim % CHUNK == 0;  // o and gradients have no gaps
  k += batch * k_batch + key_head * k_head;
  v += batch * k_batch + key_head * k_head;

  const auto head_of = [&](int i) { return key_head * group + i / tiles; };
  const auto load = [&](int i) {
    if (i < all) {
      Tile& tile = shared.tiles[i % 2];
      const int row = i % tiles * BLOCK_M;
      const long long of_head = batch * o_batch + head_of(i) * o_head;
      tile.q.load(q + batch * q_batch + head_of(i) * q_head, q_row, row, rows, dim, aligned);
      tile.d_o.load(d_o + of_head, o_row, row, rows, dim, whole);
      tile.o.load(o + of_head, o_row, row, rows, dim, whole);
    }
    cp_async_commit();
  };
  shared.k.load(k, k_row, 0, keys, dim, aligned);
  shared.v.load(v, k_row, 0, keys, dim, aligned);
  load(0);

  const int key = band * 16 + lane / 4;  // and that 8 further down
  float dk_sum[COLUMNS / 2] = {}, dv_sum[COLUMNS / 2] = {};
  auto& dk_sums = reinterpret_cast<float (&)[COLUMNS / 8][4]>(dk_sum);
  auto& dv_sums = reinterpret_cast<float (&)[COLUMNS / 8][4]>(dv_sum);
  for (int i = 0; i < all; ++i) {
    const int row = i % tiles * BLOCK_M, of_lane = row + threadIdx.x / (THREADS / BLOCK_M);
    const long long first = (static_cast<long long>(batch) * heads + head_of(i)) * rows;
    const float log_sum = of_lane < rows ? lse[first + of_lane] : -infinity();
    load(i + 1);
    cp_async_wait<1>();
    __syncthreads();  // this tile has come for everyone
    Tile& tile = shared.tiles[i % 2];
    summarise(shared, tile, log_sum);
    float p[QUERIES / 8][4] = {}, ds[QUERIES / 8][4] = {};
    multiply_rows(p, shared.k, band * 16, tile.q, part * QUERIES);
    multiply_rows(ds, shared.v, band * 16, tile.d_o, part * QUERIES);
    __syncthreads();  // what is known of its rows is there for everyone
#pragma unroll
    for (int n = 0; n < QUERIES / 8; ++n) {
      const int column = part * QUERIES + n * 8 + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int of_key = key + j / 2 * 8, in_tile = column + j % 2;
        const bool seen = of_key < keys && (!causal || of_key <= row + in_tile + behind);
        p[n][j] = seen ? ex2(p[n][j] * (scale * LOG2_E) - shared.lse2[in_tile]) : 0.f;
        ds[n][j] = p[n][j] * (ds[n][j] - shared.delta[in_tile]);
      }
      store_scores(shared.p, p[n], key, column);
      store_scores(shared.ds, ds[n], key, column);
    }
    __syncthreads();  // scores are there for everyone

    multiply_scores<false, BLOCK_M>(dv_sums, shared.p, band, tile.d_o, part * COLUMNS);
    multiply_scores<false, BLOCK_M>(dk_sums, shared.ds, band, tile.q, part * COLUMNS);
    const int of_row = row + row_band * 16 + lane / 4;  // and that 8 further down
    const bool inside[2] = {of_row < rows, of_row + 8 < rows};
    IN* const to = dq + batch * o_batch + head_of(i) * o_head + of_row * o_row;
#pragma unroll
    for (int c = 0; c < ROW_COLUMNS; c += 32) {
      float sum[16] = {};
      const int column = row_part * ROW_COLUMNS + c;
      multiply_scores<true, BLOCK_N>(reinterpret_cast<float (&)[4][4]>(sum), shared.ds, row_band, shared.k,
                                  column);
#pragma unroll
      for (float& x : sum) x *= scale;
      store_rows({to + column, to + column + 8 * o_row}, inside, sum, dim - column, whole);
    }
    __syncthreads();  // everyone is done with the tile
  }

#pragma unroll
  for (float& x : dk_sum) x *= scale;
  const bool inside[2] = {key < keys, key + 8 < keys};
  const long long to = batch * dk_batch + key_head * dk_head + key * dk_row + part * COLUMNS;
  store_rows({dk + to, dk + to + 8 * dk_row}, inside, dk_sum, dim - part * COLUMNS, whole);
  store_rows({dv + to, dv + to + 8 * dk_row}, inside, dv_sum, dim - part * COLUMNS, whole);
}
