// what the stages with a dynamic tile scheduler have in common (see 06_dynamic.cu): the producer draws work
// tiles, consumers take them. sm_90a.
#pragma once
#include "pipeline/ordered.cuh"
#include "specialised.cuh"

using Order = PingPong<1, WARPGROUPS>;
using Buffer = Consumed<ring>;

// work tile `number`: rows of `together` heads in turn, the last rows first. rows that see no key get a tile
// of keys that is masked, so that all work tiles take the same way
__device__ __forceinline__ WorkTile work_tile(const Operands& g, int number, int heads, int together) {
  const int row_tiles = g.row_tiles(), first = number / (together * row_tiles) * together;
  const int within = number - first * row_tiles, of_group = min(together, heads - first);
  WorkTile tile(g, first + within % of_group, row_tiles - 1 - within / of_group);
  tile.tiles = max(1, tile.tiles);
  return tile;
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

// what a consumer keeps from one work tile to the next
struct Consuming {
  const Operands& g;
  Shared& shared;
  Buffer keys{shared.keys}, values{shared.values};
  QueryPlace queries = {};
};

// the kernel. Consumer is a Consuming that takes a tile: consume(tile). `more` is what it has beside that,
// and what it does at the end is finish()
template <class Consumer, class... More>
__device__ __forceinline__ void run(const Operands& g, Memory& memory, unsigned* ticket, int heads,
                                    int together, const More&... more) {
  if (threadIdx.x == 0) {
    mbarrier_init(memory.full, 1);
    mbarrier_init(memory.empty, roles::CONSUMER_WARPS);
  }
  memory.shared.start();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x == 0) produce(g, memory, ticket, heads * g.row_tiles(), heads, together);
  } else {
    roles::consume();
    Consumer consumer{{g, memory.shared}, more...};
    Order::start(roles::consumer());
    int parity = 0;
    for (WorkTile tile; (tile = drawn(memory, parity)).tiles >= 0; parity ^= 1) consumer.consume(tile);
    consumer.finish();
    Order::finish(roles::consumer());
  }
}
