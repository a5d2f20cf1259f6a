// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k and v come as tensor
// maps, so their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. bf16 and fp16,
// sm_100a.
//
// tensor memory: a block takes 128 rows of a head, and a tile of BLOCK_N keys at a time. the logits and the sums of
// both products lie in tensor memory, a row in each lane. a thread has a row: it reads its logits, and writes weights
// where the logits were. the second product takes them from there. before that the thread multiplies its sums with
// the change of the largest logit, unless no row of its warp has a larger one.
//
// what it gains: a maximum and a sum of a row take no exchange between threads, and neither weights nor sums take
// registers from one tile to the next.
//
// what limits it: products, softmax and loads take turns. one block with 128 threads has too few to hide that.

#include "lanes.cuh"

struct Shared {
  Queries q;
  Keys k, v;
  Barrier q_full, k_full, v_full;
  Barrier logits_done, sums_done;  // of products; one alone could go on by two phases while a warp waits
  u32 columns;
};
constexpr int COLUMNS = BLOCK_N + DIM <= 128 ? 128 : BLOCK_N + DIM <= 256 ? 256 : 512;

__device__ __forceinline__ void load(Keys& to, const TensorMap& map, Barrier& full, const Operands& g,
                                     const WorkTile& tile, int number) {
  if (number < 0) return;
  mbarrier_arrive_expect(full, sizeof(Keys));
  to.load(map, full, tile.batch, tile.head / g.group, number * BLOCK_N);
}

extern "C" __global__ void __launch_bounds__(TENSOR_LANES)
    attention_tensor_memory(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                            const __grid_constant__ TensorMap v, IN* o, float* lse, long long o_batch, long long o_head,
                            long long o_row, int heads, int group, int rows, int keys, int dim, float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g{q, k, v, o, lse, o_batch, o_head, o_row, heads, group, rows, keys, dim, scale};
  const int last = g.row_tiles() - 1, warp = threadIdx.x / WARP;
  const WorkTile tile(g, blockIdx.x / (last + 1), last - blockIdx.x % (last + 1));  // the longest first
  const bool leader = threadIdx.x == 0;

  if (warp == 0) tensor_allocate<COLUMNS, 1>(shared.columns);
  if (leader) {
    mbarrier_init(shared.q_full, 1);
    mbarrier_init(shared.k_full, 1);
    mbarrier_init(shared.v_full, 1);
    mbarrier_init(shared.logits_done, 1);
    mbarrier_init(shared.sums_done, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(shared.q_full, sizeof(Queries));
    shared.q.load(q, shared.q_full, tile.batch, tile.head, tile.first);
    load(shared.k, k, shared.k_full, g, tile, tile.tiles - 1);
    load(shared.v, v, shared.v_full, g, tile, tile.tiles - 1);
    mbarrier_wait(shared.q_full, 0);
  }
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();

  const u32 logits = shared.columns, sums = logits + BLOCK_N, own = warp * WARP << 16;
  LaneAverage average(g, tile, threadIdx.x);
  int parity = 0;
  for (int i = tile.tiles - 1; i >= 0; --i, parity ^= 1) {
    const bool first = i == tile.tiles - 1;
    if (leader) {
      mbarrier_wait(shared.k_full, parity);
      multiply_keys(logits, shared.q, shared.k);
      tensor_commit(shared.logits_done);
    }
    mbarrier_wait(shared.logits_done, parity);
    tensor_take_over();
    if (leader) load(shared.k, k, shared.k_full, g, tile, i - 1);
    float x[BLOCK_N];
    load_logits(x, logits + own);
    const float rescale = average.weigh(g, x, i);
    if (!first) rescale_sums(sums + own, rescale);
    store_weights(logits + own, x);
    tensor_hand_over();
    __syncthreads();
    tensor_take_over();
    if (leader) {
      mbarrier_wait(shared.v_full, parity);
      add_values(sums, logits, shared.v, first);
      tensor_commit(shared.sums_done);
    }
    mbarrier_wait(shared.sums_done, parity);
    tensor_take_over();
    if (leader) load(shared.v, v, shared.v_full, g, tile, i - 1);
  }
  average.store(g, tile, sums + own);
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();
  if (warp == 0) tensor_free<COLUMNS, 1>(shared.columns);
}
