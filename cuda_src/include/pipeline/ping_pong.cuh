// frame ping-pong: load / compute / epilogue, where each of two consumer warpgroups has work tiles to itself,
// every other one, and computes while the other is in its epilogue. sm_90a.
//
// a kernel is the same struct as of load_compute_epilogue.cuh. a stage of its ring is released by the warps of
// one warpgroup, and the epilogue begins with consumed.pass()
#pragma once
#include "pipeline/circular_buffer.cuh"
#include "pipeline/ordered.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/roles.cuh"

// what compute and epilogue are given. the epilogue passes: the other consumer may compute, where it has a tile
template <class Ring>
struct Turn : Consumed<Ring> {
  int consumer;
  bool more;

  __device__ __forceinline__ void pass() const {
    if (more) PingPong<>::pass(consumer);
  }
};

template <class Kernel>
struct PingPongFrame {
  using globals = typename Kernel::globals;
  using input_block = typename Kernel::input_block;
  using work_tile = typename Kernel::work_tile;
  using ring = typename Kernel::ring;
  using roles = typename Kernel::roles;
  static constexpr int ALIGNMENT = 1024;  // of the 128-byte swizzle
  static_assert(roles::CONSUMERS == 2, "two consumers alternate: take 2");
  static_assert(sizeof(input_block) % ALIGNMENT == 0,
                "an input_block has to be a multiple of 1024 bytes: pad it");

  struct Shared {
    alignas(ALIGNMENT) input_block blocks[ring::PIPELINE_STAGES];
    typename Kernel::shared_block own;
    ring barriers;
  };
  static_assert(sizeof(Shared) <= roles::SHARED_BYTES, "the ring has too many stages: let it have fewer");

  static __device__ __forceinline__ void consume(const globals& g, Shared& shared) {
    const int mine = uniform(roles::consumer());
    typename Kernel::consumer consumer{g, shared.own, shared.blocks};
    Turn<ring> consumed{{shared.barriers}, mine, false};
    work_tile tile;
    PingPong<>::start(mine);
    bool more = Kernel::schedule(g, tile, 0);
    for (int number = 0; more; ++number) {
      if (number % 2 != mine) {
        consumed.skip(tile.iterations);
        more = Kernel::schedule(g, tile, number + 1);
        continue;
      }
      PingPong<>::wait(mine);
      typename Kernel::accumulators sums;
      consumer.begin(tile, sums);
      consumed.held = -1;
      for (int iteration = 0; iteration < tile.iterations; ++iteration, consumed.advance()) {
        consumed.wait();
        consumer.compute(tile, sums, shared.blocks[consumed.stage()], consumed, iteration);
      }
      work_tile next;
      more = consumed.more = Kernel::schedule(g, next, number + 1);
      consumer.epilogue(tile, sums, consumed);
      Kernel::schedule(g, tile, number + 1);  // again: not before the other may compute
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
