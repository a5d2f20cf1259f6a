// what the stages of this track have in common: a block computes a tile of rows of a sequence, with the
// pieces of attention's warp-specialised stages. sm_90a.
#pragma once
#include "../../attention/wgmma/specialised.cuh"
#include "../row_tiles.cuh"
#include "pipeline/ordered.cuh"

using Order = PingPong<1, WARPGROUPS>;
constexpr int CLEARED = 1 + WARPGROUPS;  // named barrier behind those

// BLOCK_M rows of a head of a sequence, from `first` on, and how many tiles of keys they see
struct PackedTile {
  static constexpr int batch = 0;  // tensor maps have one, of all rows
  int head, first, tiles, row_offset, rows, key_offset, keys;

  PackedTile() = default;

  __device__ __forceinline__ PackedTile(const Sequence& sequence, int of_head, int row_tile)
      : head(uniform(of_head)),
        first(uniform(row_tile) * BLOCK_M),
        row_offset(uniform(sequence.row_offset)),
        rows(uniform(sequence.rows)),
        key_offset(uniform(sequence.key_offset)),
        keys(uniform(sequence.keys)) {
    tiles = (seen(min(first + BLOCK_M, rows) - 1) + BLOCK_N - 1) / BLOCK_N;
  }

  __device__ __forceinline__ int seen(int row) const {
    return CAUSAL ? max(0, min(keys, row + 1 + keys - rows)) : keys;
  }
  __device__ __forceinline__ int query_row() const { return row_offset + first; }
  __device__ __forceinline__ int key_row(int tile) const { return key_offset + tile * BLOCK_N; }
  // whether the last tile of keys that is loaded has some of the next sequence
  __device__ __forceinline__ bool beyond() const { return tiles * BLOCK_N > keys; }
};

// by all consumers: values behind the end of the sequence become zero. their weights are, but what is not
// finite would still reach the sums
__device__ __forceinline__ void clear_beyond(Keys& values, int rows) {
  const int first = rows * (ROW_BYTES / VECTOR_BYTES);
#pragma unroll
  for (int i = 0; i < Keys::PANELS; ++i)
    for (int j = first + threadIdx.x - WARPGROUP; j < BLOCK_N * (ROW_BYTES / VECTOR_BYTES);
         j += roles::CONSUMER_THREADS)
      reinterpret_cast<int4*>(values.panel[i])[j] = int4{};
  async_fence();
  named_sync<roles::CONSUMER_THREADS>(CLEARED);
}

using Buffer = Consumed<ring>;

// a consumer: products of the next keys are issued before those of the values, as in attention's `overlap`.
// `queries` is where those of the tile are
__device__ __forceinline__ void consume(const Operands& g, Shared& shared, const PackedTile& tile,
                                        Buffer& keys, Buffer& values, QueryPlace& queries) {
  const int consumer = uniform(roles::consumer());
  Averages averages(tile, tile, consumer);
  float logits[BLOCK_N / 2], rescale[2];
  u32 weights[BLOCK_N / WGMMA_K][4];
  if (tile.tiles > 0) {
    mbarrier_wait(shared.q_full[queries.stage], queries.parity);
    keys.wait();
    multiply_keys(logits, shared.q[queries.stage], consumer * WGMMA_M, shared.k[keys.stage()]);
    wgmma_wait<0>();
    keys.release();
    keys.advance();
    if (tile.tiles - 1 >= averages.whole) averages.mask(tile, logits, tile.tiles - 1);
    averages.softmax.weigh(logits, g.scale * LOG2_E, rescale);
    if (tile.beyond()) {
      values.wait();
      clear_beyond(shared.v[values.stage()], tile.keys - (tile.tiles - 1) * BLOCK_N);
    }
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
    if (i >= averages.whole) averages.mask(tile, logits, i);
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
  averages.store(g, tile.rows, tile.row_offset * g.o_row + tile.head * g.o_head,
                 static_cast<long long>(tile.head) * g.rows + tile.row_offset);
}

// one work tile, by all threads of the block
__device__ __forceinline__ void attend(const Operands& g, Shared& shared, const PackedTile& tile) {
  shared.start();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x == 0) Producer{g, shared}.load(tile);
  } else {
    roles::consume();
    Buffer keys{shared.keys}, values{shared.values};
    QueryPlace queries;
    Order::start(roles::consumer());
    consume(g, shared, tile, keys, values, queries);
    Order::finish(roles::consumer());
  }
}
