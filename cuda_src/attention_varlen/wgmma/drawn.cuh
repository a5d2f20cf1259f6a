// ranked tiles that are drawn: the producer of a block draws the next one from a counter, and posts it to the
// consumers through shared memory. sm_90a.
#pragma once
#include "ranked.cuh"

// beside the memory of attention: the tile that is consumed, and the next one, which the producer has drawn
template <class Tile>
struct Drawn {
  static constexpr int TILES = 2;
  using place = Place<TILES>;
  Shared shared;
  Barrier full[TILES], empty[TILES];
  bool last[TILES];  // there is no more
  Tile tile[TILES];

  // by all threads of the block
  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0)
      for (int i = 0; i < TILES; ++i) {
        mbarrier_init(full[i], 1);
        mbarrier_init(empty[i], roles::CONSUMER_WARPS);
      }
    shared.start();
  }

  // a consumer warp: until there is a tile, and when it is done with it
  __device__ __forceinline__ bool take(const place& from) {
    mbarrier_wait(full[from.stage], from.parity);
    return !last[from.stage];
  }
  __device__ __forceinline__ void leave(place& from) {
    __syncwarp();
    if (threadIdx.x % WARP == 0) mbarrier_arrive(empty[from.stage]);
    from.advance();
  }
};
using Memory = Drawn<PackedTile>;
static_assert(sizeof(Memory) <= roles::SHARED_BYTES,
              "the tiles do not fit into shared memory: lower TILE_KEYS");

// by a warp, all lanes. `ranked` is a table of work tiles, which a Loader loads
template <class Loader = Producer, class Tile, class Table>
__device__ __forceinline__ void produce(const Operands& g, Drawn<Tile>& memory, const Table& ranked,
                                        int* ticket) {
  Loader loader{g, memory.shared};
  const bool first_lane = threadIdx.x == 0;
  for (typename Drawn<Tile>::place to;; to.advance()) {
    const int number = uniform(first_lane ? atomicAdd(ticket, 1) : 0);
    const bool last = number >= ranked.all(g.heads);  // not kept: the producer has few registers
    Tile tile;
    if (!last) tile = ranked.tile(g, number);
    if (first_lane) {
      mbarrier_wait(memory.empty[to.stage], to.parity ^ 1);
      memory.last[to.stage] = last, memory.tile[to.stage] = tile;
      mbarrier_arrive(memory.full[to.stage]);
      if (!last) loader.load(tile);
    }
    __syncwarp();
    if (last) return;
  }
}
