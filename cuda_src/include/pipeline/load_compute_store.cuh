// frame load / compute / store / epilogue: as load_compute_epilogue.cuh, but every k-iteration has a result.
// consumers write it to a block of shared memory, all together, and another thread of the producers' warpgroup
// has it stored while they compute the next. sm_90a.
//
// the struct Kernel has in addition
//
//   output_block    what one k-iteration stores
//   store(globals, work_tile, output_block, iteration)
//       by one thread: asks TMA to store what is in the block
//
// and its consumer's compute writes the output block and is given it before `consumed`; it releases the input
// block when it returns
#pragma once
#include "pipeline/circular_buffer.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/roles.cuh"

template <class Kernel>
struct LoadComputeStore {
  using globals = typename Kernel::globals;
  using input_block = typename Kernel::input_block;
  using output_block = typename Kernel::output_block;
  using work_tile = typename Kernel::work_tile;
  using ring = typename Kernel::ring;
  using roles = typename Kernel::roles;
  static constexpr int ALIGNMENT = 1024, OUTPUTS = 2;
  static_assert(sizeof(input_block) % ALIGNMENT == 0,
                "an input_block has to be a multiple of 1024 bytes: pad it");
  static_assert(sizeof(output_block) % ALIGNMENT == 0,
                "an output_block has to be a multiple of 1024 bytes: pad it");
  using out_ring = Pipeline<OUTPUTS, 1>;

  struct Shared {
    alignas(ALIGNMENT) input_block blocks[ring::PIPELINE_STAGES];
    alignas(ALIGNMENT) output_block outputs[OUTPUTS];
    typename Kernel::shared_block own;
    ring barriers;
    out_ring out_barriers;
  };
  static_assert(sizeof(Shared) <= roles::SHARED_BYTES, "the ring has too many stages: let it have fewer");

  // an output block may be written again when TMA has read it. meanwhile the next one is stored
  static __device__ __forceinline__ void store(const globals& g, Shared& shared) {
    typename out_ring::place from;
    work_tile tile;
    int before = -1;  // the stage of the iteration before
    for (int number = 0; Kernel::schedule(g, tile, number); ++number)
      for (int iteration = 0; iteration < tile.iterations; ++iteration, from.advance()) {
        shared.out_barriers.wait(from);
        Kernel::store(g, tile, shared.outputs[from.stage], iteration);
        tma_store_commit();
        tma_store_wait_read<1>();
        if (before >= 0) mbarrier_arrive(shared.out_barriers.empty[before]);
        before = from.stage;
      }
    tma_store_wait_read<0>();
  }

  static __device__ __forceinline__ void consume(const globals& g, Shared& shared) {
    typename Kernel::consumer consumer{g, shared.own, shared.blocks};
    Consumed<ring> consumed{shared.barriers};
    typename out_ring::place to;
    work_tile tile;
    bool more = Kernel::schedule(g, tile, 0);
    for (int number = 0; more; ++number) {
      typename Kernel::accumulators sums;
      consumer.begin(tile, sums);
      for (int iteration = 0; iteration < tile.iterations; ++iteration) {
        consumed.wait();
        shared.out_barriers.acquire(to);
        consumer.compute(tile, sums, shared.blocks[consumed.stage()], shared.outputs[to.stage], iteration);
        async_fence();
        consumed.release();
        consumed.advance();
        shared.out_barriers.commit_written(to.stage);
        to.advance();
      }
      work_tile next;  // while the last iteration is computed
      more = Kernel::schedule(g, next, number + 1);
      consumer.epilogue(tile, sums);
      tile = next;
    }
    consumer.finish();
    tma_store_wait_read<0>();
  }

  // the kernel, by roles::THREADS threads. `memory` has roles::SHARED_BYTES bytes, aligned to ALIGNMENT
  static __device__ __forceinline__ void run(const globals& g, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    Producer<Kernel> producer;
    start(g, producer, shared.barriers, shared.blocks,
          [&] { shared.out_barriers.init(roles::CONSUMER_WARPS); });
    if (roles::producing()) {
      roles::produce();
      if (threadIdx.x == 0) producer.run(g, shared.barriers, shared.blocks);
      if (threadIdx.x == roles::LANES) store(g, shared);
    } else {
      roles::consume();
      consume(g, shared);
    }
  }
};
