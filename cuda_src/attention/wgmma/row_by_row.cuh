// the loop over keys that waits between the weights of the two rows of a thread (see 09_row_by_row.cu).
// sm_90a.
#pragma once
#include "outputs.cuh"
#include "tile/staged_panels.cuh"
#include "tile/weigh_rows.cuh"

// by a consumer: sums up the values of a work tile that has keys, the last ones first. `own` is what it keeps
// from one work tile to the next: g, shared, keys, values, queries and outputs. `sequence` knows how many
// keys a row sees. before the first values are multiplied, first_values() may change them
template <class Order, class Own, class Sequence, class Tile, class FirstValues>
__device__ __forceinline__ void average_row_by_row(Own& own, const Sequence& sequence, const Tile& tile,
                                                   Averages& averages, int consumer,
                                                   FirstValues first_values) {
  Shared& shared = own.shared;
  auto &keys = own.keys, &values = own.values;
  const Queries& queries = shared.q[own.queries.stage];
  const float factor = own.g.scale * LOG2_E;
  float logits[BLOCK_N / 2], rescale[2];
  u32 weights[BLOCK_N / WGMMA_K][4];
  mbarrier_wait(shared.q_full[own.queries.stage], own.queries.parity);
  keys.wait();
  multiply_stage(logits, queries, consumer * WGMMA_M, shared.k, keys.stage());
  own.outputs.release(shared);
  wgmma_wait<0>();
  keys.release();
  keys.advance();
  if (tile.tiles - 1 >= averages.whole) averages.mask(sequence, logits, tile.tiles - 1);
  averages.softmax.weigh(logits, factor, rescale);
  to_left_operand<IN>(weights, logits);
  first_values();
  for (int i = tile.tiles - 2; i >= 0; --i) {
    keys.wait();
    Order::wait(consumer);
    multiply_stage(logits, queries, consumer * WGMMA_M, shared.k, keys.stage());
    values.wait();
    add_stage(averages.sum, weights, shared.v, values.stage());
    Order::pass(consumer);
    wgmma_wait<1>();
    keys.release();
    keys.advance();
    if (i >= averages.whole) averages.mask(sequence, logits, i);
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
