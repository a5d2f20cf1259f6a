// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k, v and o come as
// tensor maps, so their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. bf16 and
// fp16, sm_90a.
//
// TMA store: a warp writes its averages to shared memory, where its queries were, and TMA stores them while
// the next work tile is computed. where queries have two places, this place is released one work tile later.
//
// what it gains: stores from registers write 64 bytes of 8 rows each, and a warp waits until the
// multiprocessor has taken them: 3,300 cycles a work tile at a dim of 128, where a tile of keys takes 2,300.
// now it is 1,200.
//
// what limits it: after the products of the values, their sums are rescaled and the weights rounded, and
// nothing hides that.

#include "dynamic.cuh"
#include "outputs.cuh"

struct Consumer : Consuming {
  Outputs outputs;

  __device__ __forceinline__ void consume(const WorkTile& tile) {
    const int consumer = uniform(roles::consumer());
    Averages averages(g, tile, consumer);
    float logits[BLOCK_N / 2], rescale[2];
    u32 weights[BLOCK_N / WGMMA_K][4];
    mbarrier_wait(shared.q_full[queries.stage], queries.parity);
    keys.wait();
    multiply_keys(logits, shared.q[queries.stage], consumer * WGMMA_M, shared.k[keys.stage()]);
    outputs.release(shared);
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
    wgmma_wait<0>();
    values.release_last();
    scale_rows(averages.sum, rescale);
    to_left_operand<IN>(weights, logits);
    values.wait();
    add_values(averages.sum, weights, shared.v[values.stage()]);
    wgmma_wait<0>();
    values.release();
    values.advance();
    store_tile(outputs, g, shared, tile, averages, consumer, queries);
  }
  __device__ __forceinline__ void finish() { outputs.release(shared); }
};

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_tma_store(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                        const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap o, float* lse,
                        int heads, int group, int rows, int keys, int dim, float scale, int all_heads,
                        int together, unsigned* ticket) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  const Operands g{q, k, v, nullptr, lse, 0, 0, 0, heads, group, rows, keys, dim, scale};
  run<Consumer>(g, *reinterpret_cast<Memory*>(memory), ticket, all_heads, together, Outputs{o});
}
