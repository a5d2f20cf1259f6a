// the producer of a frame: one thread that loads the blocks of a work tile, one a k-iteration, ahead of time
// and across work tiles. sm_90a.
#pragma once
#include "pipeline/circular_buffer.cuh"
#include "ptx/tma.cuh"

template <class Kernel>
struct Producer {
  using globals = typename Kernel::globals;
  using input_block = typename Kernel::input_block;
  using work_tile = typename Kernel::work_tile;
  using ring = typename Kernel::ring;

  // blocks of its first work tile that it asks for while the kernel starts. few: the rest of its warps wait
  // for it meanwhile
  static constexpr int EARLY = sizeof(input_block) > 24 * 1024 ? 1 : 2;

  work_tile tile;
  bool more;
  int iteration = 0;

  static __device__ __forceinline__ void ask(const globals& g, ring& barriers, input_block* blocks,
                                             const work_tile& tile, int stage, int iteration) {
    Barrier& full = barriers.commit(stage, sizeof(input_block));
    Kernel::load(g, tile, blocks[stage], full, iteration);
  }

  // when the barriers are initialised: no stage is taken yet
  __device__ __forceinline__ void begin(const globals& g, ring& barriers, input_block* blocks) {
    if (!more) return;
    for (; iteration < min(EARLY, tile.iterations); ++iteration)
      ask(g, barriers, blocks, tile, iteration, iteration);
  }

  // everything else
  __device__ __forceinline__ void run(const globals& g, ring& barriers, input_block* blocks) const {
    typename ring::place to;
    to.skip(iteration);
    work_tile present = tile;
    int number = 0, i = iteration;
    for (bool any = more; any; any = Kernel::schedule(g, present, ++number), i = 0)
      for (; i < present.iterations; ++i, to.advance()) {
        barriers.acquire(to);
        ask(g, barriers, blocks, present, to.stage, i);
      }
    barriers.drain(to);
  }
};

// by all threads of a block: the barriers are initialised by `init`, called by thread 0, and the producer, that
// thread, has begun
template <class Kernel, class Init>
__device__ __forceinline__ void start(const typename Kernel::globals& g, Producer<Kernel>& producer,
                                      typename Kernel::ring& barriers, typename Kernel::input_block* blocks,
                                      const Init& init) {
  constexpr bool ALONE = Kernel::ring::CLUSTER_BLOCKS == 1;
  if (threadIdx.x == 0) {
    barriers.init();
    init();
    mbarrier_init_fence();
    producer.more = Kernel::schedule(g, producer.tile, 0);
    if constexpr (ALONE) producer.begin(g, barriers, blocks);
  }
  __syncthreads();
  if constexpr (!ALONE) {
    cluster_started();
    if (threadIdx.x == 0) producer.begin(g, barriers, blocks);
  }
}
