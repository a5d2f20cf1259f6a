// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k and v come as tensor
// maps, so their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. bf16 and fp16,
// sm_90a.
//
// small blocks: a block has one or two warpgroups and no producer, so several blocks share a multiprocessor.
// keys and values each have a circular buffer. while one of the two buffers is in use, the first thread
// refills a stage of the other. by then, warps that are behind have had time to release that stage.
//
// what it gains: while a block starts, waits for keys, computes exponentials or stores, the products of other
// blocks are computed. where rows are few, less of a tile is empty. it also helps where there is only one
// tile of keys.
//
// what limits it: each block reads all its keys and values from the L2, for only 64 or 128 rows. where there
// are many tiles of keys, a block that overlaps its own work is faster.

#include "pipeline/circular_buffer.cuh"
#include "tiles.cuh"

constexpr int THREADS = WARPGROUPS * WARPGROUP;
using ring = Pipeline<STAGES, THREADS / WARP>;

struct Shared {
  Queries q;
  Keys k[STAGES], v[STAGES];
  ring keys, values;
  Barrier q_full;
};

// by thread 0, where there is such a tile: asks for it when all warps are done with what was in its stage
__device__ __forceinline__ void load(const TensorMap& map, const Operands& g, const WorkTile& tile,
                                     int number, ring& buffer, Keys (&to)[STAGES], const ring::place& place) {
  if (threadIdx.x > 0 || number < 0) return;
  buffer.acquire(place);
  Barrier& full = buffer.commit(place.stage, sizeof(Keys));
  to[place.stage].load(map, full, tile.batch, tile.head / g.group, tile.key_row(number));
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_small_blocks(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                           const __grid_constant__ TensorMap v, IN* o, float* lse, long long o_batch,
                           long long o_head, long long o_row, int heads, int group, int rows, int keys,
                           int dim, float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g{q, k, v, o, lse, o_batch, o_head, o_row, heads, group, rows, keys, dim, scale};
  const int last = g.row_tiles() - 1;
  const WorkTile tile(g, blockIdx.x / (last + 1), last - blockIdx.x % (last + 1));  // the longest first
  const auto load_keys = [&](int number, const ring::place& place) {
    load(k, g, tile, number, shared.keys, shared.k, place);
  };
  const auto load_values = [&](int number, const ring::place& place) {
    load(v, g, tile, number, shared.values, shared.v, place);
  };
  if (threadIdx.x == 0) {
    shared.keys.init();
    shared.values.init();
    mbarrier_init(shared.q_full, 1);
    mbarrier_init_fence();
    if (tile.tiles > 0) {
      mbarrier_arrive_expect(shared.q_full, sizeof(Queries));
      shared.q.load(q, shared.q_full, tile.batch, tile.head, tile.query_row());
    }
    for (int stage = 0; stage < STAGES; ++stage) {
      load_keys(tile.tiles - 1 - stage, {stage, 0});
      load_values(tile.tiles - 1 - stage, {stage, 0});
    }
  }
  __syncthreads();

  const int consumer = uniform(threadIdx.x / WARPGROUP);
  Averages averages(g, tile, consumer);
  ring::place of_keys, of_values;
  if (tile.tiles > 0) mbarrier_wait(shared.q_full, 0);
  float logits[BLOCK_N / 2], rescale[2];
  u32 weights[BLOCK_N / WGMMA_K][4];
  for (int i = tile.tiles - 1; i >= 0; --i) {
    shared.keys.wait(of_keys);
    multiply_keys(logits, shared.q, consumer * WGMMA_M, shared.k[of_keys.stage]);
    wgmma_wait<0>();
    shared.keys.release(of_keys.stage);
    if (i < tile.tiles - 1) {  // not before: the others may be behind
      load_values(i + 1 - STAGES, {of_values.stage, of_values.parity ^ 1});
      of_values.advance();
    }
    if (i >= averages.whole) averages.mask(g, logits, i);
    averages.softmax.weigh(logits, g.scale * LOG2_E, rescale);
    scale_rows(averages.sum, rescale);
    to_left_operand<IN>(weights, logits);
    load_keys(i - STAGES, {of_keys.stage, of_keys.parity ^ 1});
    of_keys.advance();
    shared.values.wait(of_values);
    add_values(averages.sum, weights, shared.v[of_values.stage]);
    wgmma_wait<0>();
    shared.values.release(of_values.stage);
  }
  averages.store(g, tile);
}
