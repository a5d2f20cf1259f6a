// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), with any strides; lse: (batch, heads, rows). dim up to
// DIM. bf16 and fp16.
//
// tensor cores: a block takes WARPS x 16 rows of a head, a warp 16 of them with all keys, a tile of BLOCK_N at a
// time. mma.sync multiplies queries and keys, and weights and values; the weights stay in registers, as the
// accumulators of the first product are the left operand of the second but for the rounding. two tiles of keys
// and values are in shared memory, swizzled: cp.async fills one while the other is multiplied.
//
// what it gains: the products take a fraction of the time, and all rows of a block share what is loaded.
//
// what limits it: a warp multiplies, or it computes exponentials; every operand passes through registers, and
// mma.sync alone cannot fill the tensor cores of Hopper.

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

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_tensor_core(const IN* q, const IN* k, const IN* v, IN* o, float* lse, long long q_batch,
                          long long q_head, long long q_row, long long k_batch, long long k_head,
                          long long k_row, long long o_batch, long long o_head, long long o_row, int heads,
                          int group, int rows, int keys, int dim, int causal, float scale, int aligned) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int head = blockIdx.y % heads, batch = blockIdx.y / heads;
  const int first = (gridDim.x - 1 - blockIdx.x) * BLOCK_M;  // the longest first
  q += batch * q_batch + head * q_head;
  k += batch * k_batch + head / group * k_head;
  v += batch * k_batch + head / group * k_head;
  const int behind = keys - rows;  // row i sees the keys up to i + behind
  const int seen = causal ? min(keys, first + BLOCK_M + behind) : keys;
  const int tiles = max(0, (seen + BLOCK_N - 1) / BLOCK_N);

  const auto load = [&](int tile) {
    if (tile < tiles) {
      shared.k[tile % 2].load(k, k_row, tile * BLOCK_N, keys, dim, aligned);
      shared.v[tile % 2].load(v, k_row, tile * BLOCK_N, keys, dim, aligned);
    }
    cp_async_commit();
  };
  shared.q.load(q, q_row, first, rows, dim, aligned);
  load(0);

  const int row = first + warp * 16 + lane / 4;  // and that 8 further down
  float sum[DIM / 2] = {};
  auto& sums = reinterpret_cast<float(&)[DIM / 8][4]>(sum);
  FragmentSoftmax softmax;
  for (int tile = 0; tile < tiles; ++tile) {
    load(tile + 1);
    cp_async_wait<1>();
    __syncthreads();  // this tile has come for everyone
    Tile<BLOCK_N>&key_tile = shared.k[tile % 2], &value_tile = shared.v[tile % 2];

    float logit[BLOCK_N / 2] = {};
    auto& logits = reinterpret_cast<float(&)[BLOCK_N / 8][4]>(logit);
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
  o += batch * o_batch + head * o_head;
  lse += static_cast<long long>(blockIdx.y) * rows;
  const bool inside[2] = {row < rows, row + 8 < rows};
  store_rows({o + row * o_row, o + (row + 8) * o_row}, inside, sum, dim, o_row % CHUNK == 0 && o_head % CHUNK == 0);
  if (lane % ROW_LANES == 0) {
    if (inside[0]) lse[row] = log_sum[0];
    if (inside[1]) lse[row + 8] = log_sum[1];
  }
}
