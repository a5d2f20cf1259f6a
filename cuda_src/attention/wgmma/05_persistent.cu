// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k and v come as tensor
// maps, so their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. bf16 and fp16,
// sm_90a.
//
// persistent: as many blocks as fit on the device stay there and take one work tile after the other. while
// the consumers end a tile, the producer already loads queries and keys of the next one. causal tiles have
// different lengths. the longest come first, and the order of blocks alternates from round to round, so that
// all blocks end at about the same time. `together` heads are taken at a time: as many as have room in the L2
// for their keys and values.
//
// what it gains: only the first tile waits for its first keys, and the last tiles are short.
//
// what limits it: the exponentials. at dim 128 they take half as long as the products, at dim 64 as long as
// the products.

#include "pipeline/ordered.cuh"
#include "specialised.cuh"

using Order = PingPong<1, WARPGROUPS>;

// the block's work tile 0, 1, ... of all; -1 where there is none
__device__ __forceinline__ int number_of(int mine, int all) {
  const int number = mine * gridDim.x + (mine % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  return number < all ? number : -1;
}

// work tile `number`: rows of `together` heads in turn, the last rows first
__device__ __forceinline__ WorkTile work_tile(const Operands& g, int number, int heads, int together) {
  const int row_tiles = g.row_tiles(), first = number / (together * row_tiles) * together;
  const int within = number - first * row_tiles, of_group = min(together, heads - first);
  return WorkTile(g, first + within % of_group, row_tiles - 1 - within / of_group);
}

using Buffer = Consumed<ring>;

__device__ __forceinline__ void consume(const Operands& g, Shared& shared, const WorkTile& tile, Buffer& keys,
                                        Buffer& values, QueryPlace& queries) {
  const int consumer = uniform(roles::consumer());
  Averages averages(g, tile, consumer);
  if (tile.tiles > 0) {
    mbarrier_wait(shared.q_full[queries.stage], queries.parity);
  }
  float logits[BLOCK_N / 2], rescale[2];
  u32 weights[BLOCK_N / WGMMA_K][4];
  if (tile.tiles > 0) {
    keys.wait();
    multiply_keys(logits, shared.q[queries.stage], consumer * WGMMA_M, shared.k[keys.stage()]);
    wgmma_wait<0>();
    keys.release();
    keys.advance();
    if (tile.tiles - 1 >= averages.whole) averages.mask(g, logits, tile.tiles - 1);
    averages.softmax.weigh(logits, g.scale * LOG2_E, rescale);
  }
  for (int i = tile.tiles - 2; i >= 0; --i) {
    // at the beginning of an iteration: elsewhere compilers would wait before the logits are weighed
    wgmma_wait<0>();
    values.release_last();
    scale_rows(averages.sum, rescale);
    to_left_operand<IN>(weights, logits);
    keys.wait();
    Order::wait(consumer);
    multiply_keys(logits, shared.q[queries.stage], consumer * WGMMA_M, shared.k[keys.stage()]);
    values.wait();
    add_values(averages.sum, weights, shared.v[values.stage()]);
    Order::pass(consumer);
    wgmma_wait<1>();
    keys.release();
    keys.advance();
    values.release_previous();
    values.advance();
    if (i >= averages.whole) averages.mask(g, logits, i);
    averages.softmax.weigh(logits, g.scale * LOG2_E, rescale);
  }
  if (tile.tiles > 0) release_queries(shared, queries);
  wgmma_wait<0>();
  values.release_last();
  if (tile.tiles > 0) {
    scale_rows(averages.sum, rescale);
    to_left_operand<IN>(weights, logits);
    values.wait();
    add_values(averages.sum, weights, shared.v[values.stage()]);
    wgmma_wait<0>();
    values.release();
    values.advance();
  }
  averages.store(g, tile);
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_persistent(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                         const __grid_constant__ TensorMap v, IN* o, float* lse, long long o_batch,
                         long long o_head, long long o_row, int heads, int group, int rows, int keys, int dim,
                         float scale, int all_heads, int together) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g{q, k, v, o, lse, o_batch, o_head, o_row, heads, group, rows, keys, dim, scale};
  const int all = all_heads * g.row_tiles();
  shared.start();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x > 0) return;
    Producer producer{g, shared};
    for (int mine = 0, number; (number = number_of(mine, all)) >= 0; ++mine)
      producer.load(work_tile(g, number, all_heads, together));
  } else {
    roles::consume();
    Buffer of_keys{shared.keys}, of_values{shared.values};
    QueryPlace queries;
    Order::start(roles::consumer());
    for (int mine = 0, number; (number = number_of(mine, all)) >= 0; ++mine)
      consume(g, shared, work_tile(g, number, all_heads, together), of_keys, of_values, queries);
    Order::finish(roles::consumer());
  }
}
