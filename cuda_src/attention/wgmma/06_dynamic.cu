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

#include "pipeline/ordered.cuh"
#include "specialised.cuh"

using Order = PingPong<1, WARPGROUPS>;

// work tile `number`: rows of `together` heads in turn, the last rows first. rows that see no key get a tile of
// keys that is masked, so that all work tiles take the same way
__device__ __forceinline__ WorkTile work_tile(const Operands& g, int number, int heads, int together) {
  const int row_tiles = g.row_tiles(), first = number / (together * row_tiles) * together;
  const int within = number - first * row_tiles, of_group = min(together, heads - first);
  WorkTile tile(g, first + within % of_group, row_tiles - 1 - within / of_group);
  tile.tiles = max(1, tile.tiles);
  return tile;
}

using Buffer = Consumed<ring>;

__device__ __forceinline__ void consume(const Operands& g, Shared& shared, const WorkTile& tile, Buffer& keys,
                                        Buffer& values, QueryPlace& queries) {
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

// beside the memory of the tiles: the work tile that the producer has drawn; one of -1 tiles of keys where
// there is none
struct Memory {
  Shared shared;
  Barrier full, empty;
  WorkTile tile;
};
static_assert(sizeof(Memory) <= roles::SHARED_BYTES,
              "the tiles do not fit into shared memory: lower BLOCK_N");

// by one thread. `all` tickets are drawn: by every block that has a tile one for each, the last in vain
__device__ __forceinline__ void produce(const Operands& g, Memory& memory, unsigned* ticket, int all,
                                        int heads, int together) {
  Producer producer{g, memory.shared};
  int number = blockIdx.x;
  for (int parity = 1;; parity ^= 1) {
    WorkTile tile;
    tile.tiles = -1;
    if (number < all) tile = work_tile(g, number, heads, together);
    mbarrier_wait(memory.empty, parity);
    memory.tile = tile;
    mbarrier_arrive(memory.full);
    if (number >= all) return;
    number = gridDim.x + atomicInc(ticket, all - 1);  // on its way while tiles are loaded
    producer.load(tile);
  }
}

// by a consumer warp
__device__ __forceinline__ WorkTile drawn(Memory& memory, int parity) {
  mbarrier_wait(memory.full, parity);
  WorkTile tile;
  tile.batch = uniform(memory.tile.batch), tile.head = uniform(memory.tile.head);
  tile.first = uniform(memory.tile.first), tile.tiles = uniform(memory.tile.tiles);
  if (threadIdx.x % WARP == 0) mbarrier_arrive(memory.empty);
  return tile;
}

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_dynamic(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                      const __grid_constant__ TensorMap v, IN* o, float* lse, long long o_batch,
                      long long o_head, long long o_row, int heads, int group, int rows, int keys, int dim,
                      float scale, int all_heads, int together, unsigned* ticket) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  const Operands g{q, k, v, o, lse, o_batch, o_head, o_row, heads, group, rows, keys, dim, scale};
  if (threadIdx.x == 0) {
    mbarrier_init(memory.full, 1);
    mbarrier_init(memory.empty, roles::CONSUMER_WARPS);
  }
  memory.shared.start();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x == 0) produce(g, memory, ticket, all_heads * g.row_tiles(), all_heads, together);
  } else {
    roles::consume();
    Buffer of_keys{memory.shared.keys}, of_values{memory.shared.values};
    QueryPlace of_queries;
    Order::start(roles::consumer());
    int parity = 0;
    for (WorkTile tile; (tile = drawn(memory, parity)).tiles >= 0; parity ^= 1)
      consume(g, memory.shared, tile, of_keys, of_values, of_queries);
    Order::finish(roles::consumer());
  }
}
