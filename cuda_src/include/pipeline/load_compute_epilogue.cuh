// frame load / compute / epilogue: persistent blocks go through work tiles. a thread loads the blocks of a
// tile, one a k-iteration, into a circular buffer; warpgroups compute on them, and store what the tile gave
// while the next one is loaded. sm_90a.
//
// a kernel is a struct, here Kernel, with the pieces it is composed of,
//
//   roles           Roles<...>: how many warpgroups consume
//   ring            Pipeline<...>: the barriers of as many input blocks as there are to be
//
// with types of its own,
//
//   globals         what the kernel was given
//   input_block     what one k-iteration loads
//   shared_block    what else it needs of shared memory, for the epilogue for instance
//   work_tile       what everyone knows of a work tile. `iterations` says how many k-iterations it takes
//   accumulators    what a consumer carries from iteration to iteration, in registers
//
// two static functions, __device__ __forceinline__,
//
//   schedule(globals, work_tile, number)
//       describes the block's work tile 0, 1, ...; false where there is none. of its arguments alone:
//       producer and consumers each call it
//   load(globals, work_tile, input_block, full, iteration)
//       by one thread: asks for all bytes of the block and has them reported to `full`
//
// and a struct `consumer`, of which each thread has one for all its work tiles, beginning with the members
// `const globals& g; shared_block& shared; input_block* blocks`, and with
//
//   begin(work_tile, accumulators)
//   compute(work_tile, accumulators, input_block, consumed, iteration)
//       a k-iteration. it releases the block: consumed.release() when its reads are over, or
//       consumed.release_previous() when only those of this iteration are in flight
//   epilogue(work_tile, accumulators, consumed)
//       the end of a tile. where reads are in flight it waits for them and calls consumed.release_last()
//   finish()
//       after the last tile
#pragma once
#include "pipeline/circular_buffer.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/roles.cuh"

template <class Kernel>
struct LoadComputeEpilogue {
  using globals = typename Kernel::globals;
  using input_block = typename Kernel::input_block;
  using work_tile = typename Kernel::work_tile;
  using ring = typename Kernel::ring;
  using roles = typename Kernel::roles;
  static constexpr int ALIGNMENT = 1024;  // of the 128-byte swizzle
  static_assert(sizeof(input_block) % ALIGNMENT == 0,
                "an input_block has to be a multiple of 1024 bytes: pad it");

  struct Shared {
    alignas(ALIGNMENT) input_block blocks[ring::PIPELINE_STAGES];
    typename Kernel::shared_block own;
    ring barriers;
  };
  static_assert(sizeof(Shared) <= roles::SHARED_BYTES, "the ring has too many stages: let it have fewer");

  static __device__ __forceinline__ void consume(const globals& g, Shared& shared) {
    typename Kernel::consumer consumer{g, shared.own, shared.blocks};
    Consumed<ring> consumed{shared.barriers};
    work_tile tile;
    bool more = Kernel::schedule(g, tile, 0);
    for (int number = 0; more; ++number) {
      typename Kernel::accumulators sums;
      consumer.begin(tile, sums);
      consumed.held = -1;
      for (int iteration = 0; iteration < tile.iterations; ++iteration, consumed.advance()) {
        consumed.wait();
        consumer.compute(tile, sums, shared.blocks[consumed.stage()], consumed, iteration);
      }
      work_tile next;  // while the last iteration is computed
      more = Kernel::schedule(g, next, number + 1);
      consumer.epilogue(tile, sums, consumed);
      tile = next;
    }
    consumer.finish();
    tma_store_wait_read<0>();
  }

  // the kernel, by roles::THREADS threads. `memory` has roles::SHARED_BYTES bytes, aligned to ALIGNMENT
  static __device__ __forceinline__ void run(const globals& g, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    Producer<Kernel> producer;
    start(g, producer, shared.barriers, shared.blocks, [] {});
    if (roles::producing()) {
      roles::produce();
      if (threadIdx.x == 0) producer.run(g, shared.barriers, shared.blocks);
    } else {
      roles::consume();
      consume(g, shared);
    }
  }
};
