// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k, v and o come as
// tensor maps, so their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM. bf16 and
// fp16, sm_90a.
//
// row by row: a thread has parts of two rows. it computes the weights of one row while the products of the
// values before are computed, then waits for those. what is left, the weights of the other row, rescaling and
// rounding, is one block of instructions: the exponentials take the special function units for 256 cycles,
// and the other instructions fit in between. the wait stands behind the one for the next keys, which is a
// loop, so that compilers move nothing across it.
//
// what it gains: nothing is left to do between the last weight and the next products.
//
// what limits it: at a dim of 128 the loop over keys takes 2,240 cycles a tile, 2,048 of them for its
// products. the rest is the beginning and the end of work tiles, and the clock, which the power limit of the
// device lowers.

#include "dynamic.cuh"
#include "outputs.cuh"
#include "tile/staged_panels.cuh"
#include "tile/weigh_rows.cuh"

struct Consumer : Consuming {
  Outputs outputs;

  __device__ __forceinline__ void consume(const WorkTile& tile) {
    const int consumer = uniform(roles::consumer());
    const float factor = g.scale * LOG2_E;
    Averages averages(g, tile, consumer);
    float logits[BLOCK_N / 2], rescale[2];
    u32 weights[BLOCK_N / WGMMA_K][4];
    mbarrier_wait(shared.q_full[queries.stage], queries.parity);
    keys.wait();
    multiply_stage(logits, shared.q[queries.stage], consumer * WGMMA_M, shared.k, keys.stage());
    outputs.release(shared);
    wgmma_wait<0>();
    keys.release();
    keys.advance();
    if (tile.tiles - 1 >= averages.whole) averages.mask(g, logits, tile.tiles - 1);
    averages.softmax.weigh(logits, factor, rescale);
    to_left_operand<IN>(weights, logits);
    for (int i = tile.tiles - 2; i >= 0; --i) {
      keys.wait();
      Order::wait(consumer);
      multiply_stage(logits, shared.q[queries.stage], consumer * WGMMA_M, shared.k, keys.stage());
      values.wait();
      add_stage(averages.sum, weights, shared.v, values.stage());
      Order::pass(consumer);
      wgmma_wait<1>();
      keys.release();
      keys.advance();
      if (i >= averages.whole) averages.mask(g, logits, i);
      const float base = take_maximum(averages.softmax, 0, logits, factor, rescale[0]);
      const float other = take_maximum(averages.softmax, 1, logits, factor, rescale[1]);
      weigh_row(averages.softmax, 0, logits, factor, base, rescale[0]);
      if (i > 0) keys.wait();
      wgmma_wait<0>();
      values.release();
      values.advance();
      weigh_row(averages.softmax, 1, logits, factor, other, rescale[1]);
      scale_rows(averages.sum, rescale);
      to_left_operand<IN>(weights, logits);
    }
    values.wait();
    add_stage(averages.sum, weights, shared.v, values.stage());
    wgmma_wait<0>();
    values.release();
    values.advance();
    store_tile(outputs, g, shared, tile, averages, consumer, queries);
  }
  __device__ __forceinline__ void finish() { outputs.release(shared); }
};

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_row_by_row(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                         const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap o, float* lse,
                         int heads, int group, int rows, int keys, int dim, float scale, int all_heads,
                         int together, unsigned* ticket) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  const Operands g{q, k, v, nullptr, lse, 0, 0, 0, heads, group, rows, keys, dim, scale};
  run<Consumer>(g, *reinterpret_cast<Memory*>(memory), ticket, all_heads, together, Outputs{o});
}
