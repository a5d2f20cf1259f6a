// a consumer that weighs one row after the other (see attention's `row_by_row`), and takes the tiles that the
// producer draws. sm_90a.
#pragma once
#include "../../attention/wgmma/outputs.cuh"
#include "drawn.cuh"
#include "tile/staged_panels.cuh"
#include "tile/weigh_rows.cuh"

struct Consumer {
  const Operands& g;
  Shared& shared;
  Outputs outputs;
  Buffer keys{shared.keys}, values{shared.values};
  QueryPlace queries = {};

  // all keys of a tile that has some
  template <class Tile>
  __device__ __forceinline__ void multiply(const Tile& tile, Averages& averages, int consumer, float factor) {
    float logits[BLOCK_N / 2], rescale[2];
    u32 weights[BLOCK_N / WGMMA_K][4];
    mbarrier_wait(shared.q_full[queries.stage], queries.parity);
    keys.wait();
    multiply_stage(logits, shared.q[queries.stage], consumer * WGMMA_M, shared.k, keys.stage());
    outputs.release(shared);
    wgmma_wait<0>();
    keys.release();
    keys.advance();
    if (tile.tiles - 1 >= averages.whole) averages.mask(tile, logits, tile.tiles - 1);
    averages.softmax.weigh(logits, factor, rescale);
    to_left_operand<IN>(weights, logits);
    if (tile.beyond()) {
      values.wait();
      clear_beyond(shared.v[values.stage()], tile.keys - (tile.tiles - 1) * BLOCK_N);
    }
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
      if (i >= averages.whole) averages.mask(tile, logits, i);
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
  }
};

// by a consumer warpgroup: `consumer` gets all tiles of the block
template <class Each, class Tile>
__device__ __forceinline__ void consume_drawn(Each consumer, Drawn<Tile>& memory) {
  Order::start(roles::consumer());
  for (typename Drawn<Tile>::place from; memory.take(from); memory.leave(from))
    consumer.consume(memory.tile[from.stage]);
  consumer.outputs.release(memory.shared);
  Order::finish(roles::consumer());
}
