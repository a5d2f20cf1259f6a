// rows of attention by mma.sync: WARPS x 16 of a head, a warp 16 of them with all keys, a tile of BLOCK_N at
// a time.
#pragma once
#include "ptx/mma.cuh"
#include "tile/async_tile.cuh"
#include "tile/fragment.cuh"
#include "tile/fragment_softmax.cuh"

constexpr int THREADS = WARPS * WARP, BLOCK_M = WARPS * 16;
constexpr int CHUNK = VECTOR_BYTES / sizeof(IN);  // elements that move together
constexpr int ROW_CHUNKS = DIM / CHUNK;

static_assert(BLOCK_N % 16 == 0, "an mma takes 16 keys");

template <int ROWS>
using Tile = AsyncTile<IN, ROWS, DIM, THREADS>;

struct Shared {
  Tile<BLOCK_M> q;
  Tile<BLOCK_N> k[2], v[2];
};

// a head of a sequence: its first row, key and value, elements to the next ones, and how many there are
struct Head {
  const IN *q, *k, *v;
  long long q_row, k_row;
  int rows, keys, dim;
  bool aligned;  // all of these rows begin at multiples of 16 bytes
};

// where its results go
struct HeadResults {
  IN* o;
  float* lse;
  long long o_row;
  bool aligned;
};

// o and lse of BLOCK_M rows, from `first` on. results() is asked at the end: addresses would take registers
// until then
template <class Results>
__device__ __forceinline__ void attend_rows(Shared& shared, const Head& g, int first, bool causal,
                                            float scale, Results results) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, rows = g.rows, keys = g.keys;
  const int behind = keys - rows;  // row i sees the keys up to i + behind
  const int seen = causal ? min(keys, first + BLOCK_M + behind) : keys;
  const int tiles = max(0, (seen + BLOCK_N - 1) / BLOCK_N);

  const auto load = [&](int tile) {
    if (tile < tiles) {
      shared.k[tile % 2].load(g.k, g.k_row, tile * BLOCK_N, keys, g.dim, g.aligned);
      shared.v[tile % 2].load(g.v, g.k_row, tile * BLOCK_N, keys, g.dim, g.aligned);
    }
    cp_async_commit();
  };
  shared.q.load(g.q, g.q_row, first, rows, g.dim, g.aligned);
  load(0);

  const int row = first + warp * 16 + lane / 4;  // and that 8 further down
  float sum[DIM / 2] = {};
  auto& sums = reinterpret_cast<float (&)[DIM / 8][4]>(sum);
  FragmentSoftmax softmax;
  for (int tile = 0; tile < tiles; ++tile) {
    load(tile + 1);
    cp_async_wait<1>();
    __syncthreads();  // this tile has come for everyone
    Tile<BLOCK_N>&key_tile = shared.k[tile % 2], &value_tile = shared.v[tile % 2];

    float logit[BLOCK_N / 2] = {};
    auto& logits = reinterpret_cast<float (&)[BLOCK_N / 8][4]>(logit);
#pragma unroll
    for (int c = 0; c < ROW_CHUNKS; c += 2) {  // 16 elements of each vector
      u32 a[4];
      ldmatrix_x4(a, shared.q.chunk(warp * 16 + lane % 16, c + lane / 16));
#pragma unroll
      for (int n = 0; n < BLOCK_N; n += 16) {
        u32 b[4];  // keys n to n + 7, and 8 more, each in two chunks
        ldmatrix_x4(b, key_tile.chunk(n + lane / 16 * 8 + lane % 8, c + lane / 8 % 2));
        mma(logits[n / 8], a, b[0], b[1], IN());
        mma(logits[n / 8 + 1], a, b[2], b[3], IN());
      }
    }

    const int before = tile * BLOCK_N;
    if (before + BLOCK_N > (causal ? min(keys, first + 1 + behind) : keys)) {  // some row does not see all
      const int upper = causal ? min(keys, row + 1 + behind) : keys;
      const int lower = causal ? min(keys, row + 9 + behind) : keys;
      mask_columns(logit, {upper - before, lower - before});
    }
    float rescale[2];
    softmax.weigh(logit, scale * LOG2_E, rescale);
    scale_rows(sum, rescale);

    u32 weights[BLOCK_N / 16][4];
    to_left_operand<IN>(weights, logit);
#pragma unroll
    for (int n = 0; n < BLOCK_N; n += 16)
#pragma unroll
      for (int c = 0; c < ROW_CHUNKS; c += 2) {
        u32 b[4];  // columns of two chunks, each of keys n to n + 7 and 8 more
        ldmatrix_x4_trans(b, value_tile.chunk(n + lane % 16, c + lane / 16));
        mma(sums[c], weights[n / 16], b[0], b[1], IN());
        mma(sums[c + 1], weights[n / 16], b[2], b[3], IN());
      }
    __syncthreads();  // everyone is done with it
  }
  cp_async_wait<0>();

  float factor[2], log_sum[2];
  softmax.finish(scale, factor, log_sum);
  scale_rows(sum, factor);
  const bool inside[2] = {row < rows, row + 8 < rows};
  const HeadResults to = results();
  IN* const o = to.o + row * to.o_row;
  store_rows({o, o + 8 * to.o_row}, inside, sum, g.dim, to.aligned);
  if (lane % ROW_LANES == 0) {
    if (inside[0]) to.lse[row] = log_sum[0];
    if (inside[1]) to.lse[row + 8] = log_sum[1];
  }
}
