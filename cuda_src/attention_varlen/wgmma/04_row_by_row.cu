// o = softmax(scale q k^T) v of packed sequences, and lse, the logarithm of the sum of a row's exponentials.
// q, o: (rows, heads, dim), k, v: (keys, heads / group, dim); offsets_q, offsets_k: (batch + 1) int32, where
// sequences begin and end; lse: (heads, rows). q, k, v and o come as tensor maps, so their rows and heads are
// multiples of 16 bytes apart. dim up to DIM. bf16 and fp16, sm_90a.
//
// row by row, as attention's stage of that name: the weights of one row of a thread hide behind the products
// of the values before, those of the other row hide rescaling and rounding. averages go through shared
// memory, where the queries were, and TMA stores them from there; but a warp whose rows are not all of its
// sequence stores them itself.
//
// what it gains: nothing is left to do between the last weight and the next products, and nobody waits for
// stores.
//
// what limits it: tiles with few rows. a sequence that decodes fills only one row of 128.

#include "../../attention/wgmma/outputs.cuh"
#include "drawn.cuh"
#include "tile/staged_panels.cuh"
#include "tile/weigh_rows.cuh"

extern "C" __global__ void __launch_bounds__(RANKED* WARP)
    attention_varlen_rank(const int* offsets_q, const int* offsets_k, int* order, int* starts, int* ticket,
                          int batch) {
  rank_sequences(offsets_q, offsets_k, order, starts, batch);
  if (blockIdx.x == 0 && threadIdx.x == 0) *ticket = 0;
}

struct Consumer {
  const Operands& g;
  Shared& shared;
  Outputs outputs;
  Buffer keys{shared.keys}, values{shared.values};
  QueryPlace queries = {};

  __device__ __forceinline__ void consume(const PackedTile& tile) {
    const int consumer = uniform(roles::consumer());
    const float factor = g.scale * LOG2_E;
    Averages averages(tile, tile, consumer);
    if (tile.tiles > 0) multiply(tile, averages, consumer, factor);
    const long long lse = static_cast<long long>(tile.head) * g.rows + tile.row_offset;
    const int first = Outputs::first_row(consumer);
    if (tile.tiles > 0) Outputs::gather(consumer);
    if (tile.tiles > 0 && tile.first + first + Outputs::ROWS <= tile.rows) {
      Outputs::finish(g, averages, g.lse + lse, tile.rows);
      outputs.store(shared, averages, 0, tile.head, tile.query_row() + first, consumer, queries);
    } else {
      averages.store(g, tile.rows, tile.row_offset * g.o_row + tile.head * g.o_head, lse);
    }
    if (tile.tiles > 0) outputs.leave(shared, queries);
  }

  __device__ __forceinline__ void multiply(const PackedTile& tile, Averages& averages, int consumer,
                                           float factor) {
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

__device__ __forceinline__ void consume(const Operands& g, Memory& memory, const TensorMap& o) {
  Consumer consumer{g, memory.shared, {o}};
  Order::start(roles::consumer());
  for (int parity = 0;; parity ^= 1) {
    mbarrier_wait(memory.full, parity);
    if (memory.last) break;
    const PackedTile tile = memory.tile;
    __syncwarp();
    if (threadIdx.x % WARP == 0) mbarrier_arrive(memory.empty);
    consumer.consume(tile);
  }
  consumer.outputs.release(memory.shared);
  Order::finish(roles::consumer());
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_varlen_row_by_row(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                                const __grid_constant__ TensorMap v, const int* offsets_q,
                                const int* offsets_k, const int* order, const int* starts, int* ticket,
                                const __grid_constant__ TensorMap stored, IN* o, float* lse, long long o_row,
                                long long o_head, int batch, int heads, int group, int rows, int dim,
                                float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  const Operands g{q, k, v, o, lse, 0, o_head, o_row, heads, group, rows, 0, dim, scale};
  if (threadIdx.x == 0) {
    mbarrier_init(memory.full, 1);
    mbarrier_init(memory.empty, roles::CONSUMER_WARPS);
  }
  memory.shared.start();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x < WARP) produce(g, memory, {offsets_q, offsets_k, order, starts, batch}, ticket);
  } else {
    roles::consume();
    consume(g, memory, stored);
  }
}
