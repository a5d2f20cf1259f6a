// what the warp-specialised stages have in common: the memory of a block, and its producer. keys and values come once,
// rows of q and of do have circular buffers of their own. sm_90a.
#pragma once
#include "pipeline/circular_buffer.cuh"
#include "pipeline/roles.cuh"
#include "tiles.cuh"

using roles = Roles<CONSUMERS, 24>;
using ring = Pipeline<2, roles::CONSUMER_WARPS>;

constexpr int SCORES_NAME = 1 + CONSUMERS;  // the named barrier of all consumers

struct Shared {
  Keys k, v;
  Rows q[ring::PIPELINE_STAGES], d_o[ring::PIPELINE_STAGES];
  Scores ds[2];  // of every other tile: consumers may be one apart
  alignas(128) Chunk staged[CONSUMERS];
  alignas(128) Statistic lse2[ring::PIPELINE_STAGES], delta[ring::PIPELINE_STAGES];
  ring rows, gradients;
  Barrier keys_full;

  // by all threads of the block
  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0) {
      rows.init();
      gradients.init();
      mbarrier_init(keys_full, 1);
      mbarrier_init_fence();
    }
    __syncthreads();
  }

  // by consumers: when all have written their part of the scores, and are done with those of two tiles ago
  static __device__ __forceinline__ void meet() {
    async_fence();
    named_sync<roles::CONSUMER_THREADS>(SCORES_NAME);
  }
};
static_assert(sizeof(Shared) <= roles::SHARED_BYTES, "the tiles do not fit into shared memory");

// by one thread: loads what the consumers multiply, ahead of time
__device__ __forceinline__ void produce(const Operands& g, Shared& shared, const WorkTile& tile) {
  mbarrier_arrive_expect(shared.keys_full, 2 * sizeof(Keys));
  shared.k.load(g.k, shared.keys_full, tile.batch, tile.key_head, tile.first);
  shared.v.load(g.v, shared.keys_full, tile.batch, tile.key_head, tile.first);
  int head = tile.key_head * g.group;
  for (RowTile at(g, tile); at.any();) {
    const ring::place to = at.buffer();
    shared.gradients.acquire(to);  // which are released first
    Barrier& gradients = shared.gradients.commit(to.stage, sizeof(Rows) + sizeof(Statistic));
    shared.d_o[to.stage].load(g.d_o, gradients, tile.batch, head, at.row);
    bulk_load(shared.delta[to.stage], g.delta + at.place, sizeof(Statistic), gradients);
    shared.rows.acquire(to);
    Barrier& rows = shared.rows.commit(to.stage, sizeof(Rows) + sizeof(Statistic));
    shared.q[to.stage].load(g.q, rows, tile.batch, head, at.row);
    bulk_load(shared.lse2[to.stage], g.lse2 + at.place, sizeof(Statistic), rows);
    const int last = at.row;
    at.advance(g, tile);
    head += at.row <= last;
  }
}
