// gradients of o = softmax(scale q k^T) v: with p = exp(scale q k^T - lse) and ds = p (do v^T - rowsum(do
// o)), dq = scale ds k, dk = scale ds^T q, dv = p^T do. q, o, do, dq: (batch, heads, rows, dim), k, v, dk,
// dv: (batch, heads / group, keys, dim), with any strides; lse: (batch, heads, rows). dim up to DIM. sums:
// (batch heads, padded, DIM) fp32, scratch. bf16 and fp16.
//
// tensor cores: weights are computed again, from lse. a block owns 64 keys, with their values. it loops over
// the rows of all heads that share them, 64 at a time, so dk and dv stay in registers. a tile needs five
// products, all by mma.sync. two of them, the logits and do v^T, have keys as rows. p and ds are rounded and
// go to shared memory, where they are operands of the other three. the contribution of a tile to dq is added
// to memory atomically. a first kernel computes rowsum(do o), and a last one rounds dq.
//
// what it gains: memory holds no array with an element for each pair, and the products take a fraction of the
// time.
//
// what limits it: every operand passes through registers, and mma.sync cannot reach the full rate of the
// tensor cores of Hopper. all warps wait for each other twice per tile.

#include "../rows.cuh"
#include "products.cuh"
#include "tile/fragment.cuh"

constexpr int BANDS = 4, PARTS = 2;  // of 16 rows of a product, and of its columns: a warp has one of each
constexpr int THREADS = BANDS * PARTS * WARP, BLOCK = BANDS * 16;  // rows, and keys, of a tile
constexpr int COLUMNS = DIM / PARTS;

using Vectors = AsyncTile<IN, BLOCK, DIM, THREADS>;
using Scores = AsyncTile<IN, BLOCK, BLOCK, THREADS>;  // a key a row

struct Shared {
  Vectors k, v, q[2], d_o[2];
  Scores p, ds;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_backward_tensor_core(const IN* q, const IN* k, const IN* v, const IN* d_o, const float* lse2,
                                   const float* delta, float* sums, IN* dk, IN* dv, long long q_batch,
                                   long long q_head, long long q_row, long long k_batch, long long k_head,
                                   long long k_row, long long o_batch, long long o_head, long long o_row,
                                   long long dk_batch, long long dk_head, long long dk_row, int heads, int group,
                                   int rows, int keys, int dim, int padded, int causal, float scale, int aligned) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int lane = threadIdx.x % WARP, band = threadIdx.x / WARP % BANDS, part = threadIdx.x / WARP / BANDS;
  const int key_head = blockIdx.y % (heads / group), batch = blockIdx.y / (heads / group);
  const int first = blockIdx.x * BLOCK, behind = keys - rows;  // row i sees the keys up to i + behind
  const int first_tile = causal ? max(0, first - behind) / BLOCK : 0;
  const int tiles = (rows + BLOCK - 1) / BLOCK - first_tile, all = tiles * group;
  k += batch * k_batch + key_head * k_head;
  v += batch * k_batch + key_head * k_head;

  const auto load = [&](int i) {
    if (i < all) {
      const int head = key_head * group + i / tiles, row = (first_tile + i % tiles) * BLOCK;
      shared.q[i % 2].load(q + batch * q_batch + head * q_head, q_row, row, rows, dim, aligned);
      shared.d_o[i % 2].load(d_o + batch * o_batch + head * o_head, o_row, row, rows, dim, dim % CHUNK == 0);
    }
    cp_async_commit();
  };
  shared.k.load(k, k_row, first, keys, dim, aligned);
  shared.v.load(v, k_row, first, keys, dim, aligned);
  load(0);

  const int key = first + band * 16 + lane / 4;  // and that 8 further down
  float dk_sum[COLUMNS / 2] = {}, dv_sum[COLUMNS / 2] = {};
  auto& dk_sums = reinterpret_cast<float(&)[COLUMNS / 8][4]>(dk_sum);
  auto& dv_sums = reinterpret_cast<float(&)[COLUMNS / 8][4]>(dv_sum);
  for (int i = 0; i < all; ++i) {
    load(i + 1);
    cp_async_wait<1>();
    __syncthreads();  // this tile has come for everyone
    Vectors &q_tile = shared.q[i % 2], &o_tile = shared.d_o[i % 2];
    const int head = key_head * group + i / tiles, row = (first_tile + i % tiles) * BLOCK;
    const long long of_tile = (static_cast<long long>(batch) * heads + head) * padded + row;

    constexpr int QUERIES = BLOCK / PARTS;
    float p[QUERIES / 8][4] = {}, ds[QUERIES / 8][4] = {};
    multiply_rows(p, shared.k, band * 16, q_tile, part * QUERIES);
    multiply_rows(ds, shared.v, band * 16, o_tile, part * QUERIES);
#pragma unroll
    for (int n = 0; n < QUERIES / 8; ++n) {
      const int column = part * QUERIES + n * 8 + lane % 4 * 2;
      const auto base = load_vector<2>(lse2 + of_tile + column), less = load_vector<2>(delta + of_tile + column);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int of_key = key + j / 2 * 8, of_row = row + column + j % 2;
        const bool seen = of_key < keys && (!causal || of_key <= of_row + behind);
        p[n][j] = seen ? ex2(p[n][j] * (scale * LOG2_E) - base.x[j % 2]) : 0.f;
        ds[n][j] = p[n][j] * (ds[n][j] - less.x[j % 2]);
      }
    }
#pragma unroll
    for (int n = 0; n < QUERIES / 8; ++n) {  // not in the loop above, where registers would spill
      const int column = part * QUERIES + n * 8 + lane % 4 * 2;
      store_scores(shared.p, p[n], band * 16 + lane / 4, column);
      store_scores(shared.ds, ds[n], band * 16 + lane / 4, column);
    }
    __syncthreads();  // scores are there for everyone

    multiply_scores<false, BLOCK>(dv_sums, shared.p, band, o_tile, part * COLUMNS);
    multiply_scores<false, BLOCK>(dk_sums, shared.ds, band, q_tile, part * COLUMNS);
#pragma unroll(DIM > 128 ? 1 : COLUMNS / 32)  // of more columns registers would spill
    for (int c = 0; c < COLUMNS; c += 32) {
      float dq[4][4] = {};
      multiply_scores<true, BLOCK>(dq, shared.ds, band, shared.k, part * COLUMNS + c);
      float* const to = sums + (of_tile + band * 16 + lane / 4) * DIM + part * COLUMNS + c + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) atomicAdd(to + n * 8 + j / 2 * 8 * DIM + j % 2, dq[n][j]);
    }
    __syncthreads();  // everyone is done with the tile
  }

#pragma unroll
  for (float& x : dk_sum) x *= scale;
  const bool inside[2] = {key < keys, key + 8 < keys};
  const long long to = batch * dk_batch + key_head * dk_head + key * dk_row + part * COLUMNS;
  const bool whole = dim % CHUNK == 0;  // gradients have no gaps
  store_rows({dk + to, dk + to + 8 * dk_row}, inside, dk_sum, dim - part * COLUMNS, whole);
  store_rows({dv + to, dv + to + 8 * dk_row}, inside, dv_sum, dim - part * COLUMNS, whole);
}

// dq = scale sums
extern "C" __global__ void __launch_bounds__(256)
    attention_backward_queries(const float* sums, IN* dq, long long q_batch, long long q_head, long long q_row,
                               int heads, int rows, int dim, int all_heads, int padded, float scale) {
  constexpr int LANES = DIM / CHUNK;
  const int number = blockIdx.x * (256 / LANES) + threadIdx.x / LANES;
  const int head = number / padded, row = number % padded, column = threadIdx.x % LANES * CHUNK;
  if (head >= all_heads || row >= rows || column >= dim) return;
  const float* const from = sums + static_cast<long long>(number) * DIM + column;
  Vector<IN, CHUNK> out;
#pragma unroll
  for (int i = 0; i < CHUNK; i += 4) {
    const auto v = load_vector<4>(from + i);
#pragma unroll
    for (int j = 0; j < 4; ++j) out.x[i + j] = from_float<IN>(v.x[j] * scale);
  }
  IN* const to = dq + head / heads * q_batch + head % heads * q_head + row * q_row + column;
  store_tail(to, out, dim - column, dim % CHUNK == 0);
}
