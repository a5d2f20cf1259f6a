// ranked tiles that are drawn: the producer of a block draws the next one from a counter, and posts it to the
// consumers through shared memory. sm_90a.
#pragma once
#include "ranked.cuh"

// beside the memory of attention: the tile that the producer has drawn
struct Memory {
  Shared shared;
  Barrier full, empty;
  bool last;  // there is no more
  PackedTile tile;
};
static_assert(sizeof(Memory) <= roles::SHARED_BYTES,
              "the tiles do not fit into shared memory: lower TILE_KEYS");

// by a warp, all lanes
__device__ __forceinline__ void produce(const Operands& g, Memory& memory, const Ranked& ranked,
                                        int* ticket) {
  Producer producer{g, memory.shared};
  const bool first_lane = threadIdx.x == 0;
  for (int parity = 1;; parity ^= 1) {
    const int number = uniform(first_lane ? atomicAdd(ticket, 1) : 0);
    const bool last = number >= ranked.all(g.heads);  // not kept: the producer has few registers
    PackedTile tile;
    if (!last) tile = ranked.tile(g, number);
    if (first_lane) {
      mbarrier_wait(memory.empty, parity);
      memory.last = last, memory.tile = tile;
      mbarrier_arrive(memory.full);
      if (!last) producer.load(tile);
    }
    __syncwarp();
    if (last) return;
  }
}
