// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k and v come as tensor
// maps, so their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. bf16 and fp16,
// sm_90a.
//
// dynamic tile scheduler: while the producer of a block loads its present work tile, it draws the number of
// the next one from a counter in memory, `ticket`. it posts the tile to the consumers through shared memory.
// if there is room for two buffers of queries, the queries of the next tile are loaded early. `ticket` is
// zero at the beginning and at the end.
//
// what it gains: under a mask, tiles differ in length. in the fixed order of `persistent`, a block may get
// the longest tile of one group of heads after the other, and all others wait for it.
//
// what limits it: a block draws one tile ahead. so its last tile may be longer than what other blocks have
// left. where tiles are few, a fixed order is better.

#include "dynamic.cuh"

struct Consumer : Consuming {
  __device__ __forceinline__ void consume(const WorkTile& tile) {
    const int consumer = uniform(roles::consumer());
    Averages averages(g, tile, consumer);
    float logits[BLOCK_N / 2], rescale[2];
    u32 weights[BLOCK_N / WGMMA_K][4];
    mbarrier_wait(shared.q_full[queries.stage], queries.parity);
    keys.wait();
    multiply_keys(logits, shared.q[queries.stage], consumer * WGMMA_M, shared.k[keys.stage()]);
    wgmma_wait<0>();
    keys.release();
    keys.advance();
    if (tile.tiles - 1 >= averages.whole) averages.mask(g, logits, tile.tiles - 1);
    averages.softmax.weigh(logits, g.scale * LOG2_E, rescale);
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
    release_queries(shared, queries);
    wgmma_wait<0>();
    values.release_last();
    scale_rows(averages.sum, rescale);
    to_left_operand<IN>(weights, logits);
    values.wait();
    add_values(averages.sum, weights, shared.v[values.stage()]);
    wgmma_wait<0>();
    values.release();
    values.advance();
    averages.store(g, tile);
  }
  __device__ __forceinline__ void finish() {}
};

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_dynamic(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                      const __grid_constant__ TensorMap v, IN* o, float* lse, long long o_batch,
                      long long o_head, long long o_row, int heads, int group, int rows, int keys, int dim,
                      float scale, int all_heads, int together, unsigned* ticket) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  const Operands g{q, k, v, o, lse, o_batch, o_head, o_row, heads, group, rows, keys, dim, scale};
  run<Consumer>(g, *reinterpret_cast<Memory*>(memory), ticket, all_heads, together);
}
