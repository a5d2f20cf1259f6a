// what the warp-specialised stages have in common: the memory of a block, and its producer. queries come once
// a work tile, to one of QUERY_BUFFERS places in turn; keys and values have circular buffers of their own.
// sm_90a.
#pragma once
#include "pipeline/circular_buffer.cuh"
#include "pipeline/roles.cuh"
#include "tiles.cuh"

using roles = Roles<WARPGROUPS, WARPGROUPS == 2 ? 24 : 32>;
using QueryPlace = Place<QUERY_BUFFERS>;

// tiles of keys and of values in flight: as many as fit, no more than are of use
constexpr int FITTING =
    stages_that_fit(roles::SHARED_BYTES, 2 * sizeof(Keys), QUERY_BUFFERS * sizeof(Queries) + 256);
using ring = Pipeline<(FITTING < 4 ? FITTING : 4), roles::CONSUMER_WARPS>;

struct Shared {
  Queries q[QUERY_BUFFERS];
  Keys k[ring::PIPELINE_STAGES], v[ring::PIPELINE_STAGES];
  ring keys, values;
  Barrier q_full[QUERY_BUFFERS], q_empty[QUERY_BUFFERS];

  // by all threads of the block
  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0) {
      keys.init();
      values.init();
      for (int i = 0; i < QUERY_BUFFERS; ++i) {
        mbarrier_init(q_full[i], 1);
        mbarrier_init(q_empty[i], roles::CONSUMER_WARPS);
      }
      mbarrier_init_fence();
    }
    __syncthreads();
  }
};
static_assert(sizeof(Shared) <= roles::SHARED_BYTES,
              "the tiles do not fit into shared memory: lower BLOCK_N");

// one thread, which loads what the consumers multiply, ahead of time
struct Producer {
  const Operands& g;
  Shared& shared;
  ring::place to = {};  // of keys and of values
  QueryPlace queries = {};

  // keys and queries of a work tile, the last keys first: there may be room for these before there is for the
  // queries. values behind the next keys, as they are multiplied
  template <class Tile>
  __device__ __forceinline__ void load(const Tile& tile) {
    if (tile.tiles == 0) return;
    load_keys(tile, tile.tiles - 1, to);
    load_queries(tile);
    for (int i = tile.tiles - 1; i >= 0; --i) {
      const ring::place values = to;
      to.advance();
      if (i > 0) load_keys(tile, i - 1, to);
      shared.values.acquire(values);
      Barrier& full = shared.values.commit(values.stage, sizeof(Keys));
      shared.v[values.stage].load(g.v, full, tile.batch, tile.head / g.group, tile.key_row(i));
    }
  }

 private:
  template <class Tile>
  __device__ __forceinline__ void load_queries(const Tile& tile) {
    mbarrier_wait(shared.q_empty[queries.stage], queries.parity ^ 1);
    Barrier& full = shared.q_full[queries.stage];
    mbarrier_arrive_expect(full, sizeof(Queries));
    shared.q[queries.stage].load(g.q, full, tile.batch, tile.head, tile.query_row());
    queries.advance();
  }

  template <class Tile>
  __device__ __forceinline__ void load_keys(const Tile& tile, int number, const ring::place& keys) {
    shared.keys.acquire(keys);
    Barrier& full = shared.keys.commit(keys.stage, sizeof(Keys));
    shared.k[keys.stage].load(g.k, full, tile.batch, tile.head / g.group, tile.key_row(number));
  }
};

// a consumer warp: its lanes meet, then it is done with the queries
__device__ __forceinline__ void release_queries(Shared& shared, QueryPlace& queries) {
  __syncwarp();
  if (threadIdx.x % WARP == 0) mbarrier_arrive(shared.q_empty[queries.stage]);
  queries.advance();
}
