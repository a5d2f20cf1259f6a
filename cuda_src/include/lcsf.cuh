// load, compute, store, finish: the frame of a kernel whose warps specialise. persistent blocks work through
// items; one thread, the producer, loads the inputs of an item step by step, ahead of time and across items;
// warpgroups of consumers compute on them and finish the item. sm_90a.
//
// the author writes a struct, here Kernel, of types
//
//   globals         what the kernel was given
//   input_block     what one step loads; as many as fit into shared memory form the ring
//   finish_block    shared memory of one consumer warpgroup, for its results on their way out
//   common_state    what producer and consumers know of an item. its `steps` says how often to load
//   consumer_state  what a consumer carries from step to step, in registers
//
// and these, all static __device__ __forceinline__:
//
//   common_setup(globals, common, item)
//       describes the block's item 0, 1, ...; false where there is none
//   producer::load(globals, common, input, full, step)
//       by one thread: asks for the bytes of one input_block, all of them, and has them reported to `full`
//   consumer::setup(common, state)
//       before the first step of an item
//   consumer::compute(common, state, input)
//       a step. its own reads of `input` may still be in flight, those of the step before may not
//   consumer::drain()
//       waits for all reads in flight
//   consumer::finish(globals, common, state, finish_block, ring)
//       the end of an item: the producer is already loading the next. if there is none the ring may be used
//
// a constant CONSUMERS says how many warpgroups consume. what a consumer needs once an item, and not in
// registers, is a further type
//
//   scratch_block   shared memory of one consumer warpgroup, from setup to finish
//
// with which the two are consumer::setup(globals, common, state, scratch_block) and
// consumer::finish(globals, common, state, scratch_block, finish_block). with a constant IN_FLIGHT = 0
// compute leaves no reads in flight, there is no drain, and inputs are released a step earlier.
//
// SHARING blocks of a cluster may load for each other: each asks for its part of an input_block with
// tma_load_to, and a block has all of it when all parts have come. they go through the same steps of the same
// number of items. with TURNS the two consumers do not work on every item together: they take turns, so that
// one finishes an item while the other computes the next.
//
// the template owns the rest: the loop, the ring and its barriers, its depth, registers, and the waiting for
// stores in flight before the block ends.
#pragma once
#include "cluster.cuh"
#include "named_barrier.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

template <class...>
using Exists = void;

// what a kernel may say and need not: its scratch_block, and its IN_FLIGHT
struct NoScratch {};
template <class Kernel, class = void>
struct ScratchOf {
  using type = NoScratch;
  static constexpr int BYTES = 0;
};
template <class Kernel>
struct ScratchOf<Kernel, Exists<typename Kernel::scratch_block>> {
  using type = typename Kernel::scratch_block;
  static constexpr int BYTES = sizeof(type);
};

template <class Kernel, class = void>
struct InFlightOf {
  static constexpr int STEPS = 1;
};
template <class Kernel>
struct InFlightOf<Kernel, Exists<decltype(Kernel::IN_FLIGHT)>> {
  static constexpr int STEPS = Kernel::IN_FLIGHT;
};

template <class Kernel, int SHARING = 1, bool TURNS = false>
struct Lcsf {
  using globals = typename Kernel::globals;
  using input_block = typename Kernel::input_block;
  using finish_block = typename Kernel::finish_block;
  using common_state = typename Kernel::common_state;
  using consumer_state = typename Kernel::consumer_state;
  using scratch_block = typename ScratchOf<Kernel>::type;
  using producer = typename Kernel::producer;
  using consumer = typename Kernel::consumer;

  static constexpr int LANES = 32, CONSUMERS = Kernel::CONSUMERS;
  static constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
  static constexpr int CONSUMER_WARPS = CONSUMERS * WARPGROUP / LANES;
  static constexpr int SHARED_BYTES = 227 * 1024;  // all that a block may have: ask for it at launch

  // what remains of shared memory beside the finish and scratch blocks is the ring
  static constexpr int ALIGNMENT = 1024;                       // of the 128-byte swizzle
  static constexpr int IN_FLIGHT = InFlightOf<Kernel>::STEPS;  // steps that compute may leave
  static_assert(IN_FLIGHT == 0 || IN_FLIGHT == 1,
                "compute may leave reads of one step in flight, or of none");
  static constexpr bool SCRATCH = ScratchOf<Kernel>::BYTES > 0;
  static constexpr int FIXED =
      CONSUMERS * (static_cast<int>(sizeof(finish_block)) + ScratchOf<Kernel>::BYTES) + ALIGNMENT;
  static constexpr int DEPTH =
      (SHARED_BYTES - FIXED) / static_cast<int>(sizeof(input_block) + 2 * sizeof(Barrier));
  static_assert(
      DEPTH >= 2,
      "not even two input blocks fit beside the finish and scratch blocks: make one of them smaller");
  static_assert(sizeof(input_block) % ALIGNMENT == 0 && sizeof(finish_block) % ALIGNMENT == 0,
                "input_block and finish_block have to be multiples of 1024 bytes: pad them");

  // a thread starts with an equal share of the registers. the producer keeps few, the consumers take the rest
  static constexpr int UNIT = 8, REGISTER_FILE = 64 * 1024;
  static constexpr int SHARE = REGISTER_FILE / THREADS / UNIT * UNIT, PRODUCER_REGISTERS = 40;
  static constexpr int LEFT = (SHARE * (1 + CONSUMERS) - PRODUCER_REGISTERS) / CONSUMERS / UNIT * UNIT;
  static constexpr int CONSUMER_REGISTERS = LEFT < 240 ? LEFT : 240;
  static_assert(CONSUMERS >= 2 && CONSUMERS <= 3,
                "one consumer warpgroup cannot use the registers, four have too few: take 2 or 3");

  struct Shared {
    alignas(ALIGNMENT) input_block ring[DEPTH];
    finish_block finish[CONSUMERS];
    Barrier full[DEPTH], empty[DEPTH];  // all bytes have come; all consumer warps are done
    scratch_block scratch[CONSUMERS];
  };
  static_assert(sizeof(Shared) <= SHARED_BYTES, "the ring is too deep");

  // barriers 1 and 2: whose turn it is to compute
  static constexpr int TURN = 1, TURN_THREADS = 2 * WARPGROUP;
  static_assert(!TURNS || CONSUMERS == 2, "two consumers take turns");
  static constexpr int RELEASES = (TURNS ? WARPGROUP / LANES : CONSUMER_WARPS) * SHARING;  // of a slot

  // a place in the ring, and the parity of the round
  struct Place {
    int slot = 0, parity = 0;

    __device__ __forceinline__ void skip(int steps) {
      slot += steps;
      parity ^= slot / DEPTH & 1;
      slot %= DEPTH;
    }

    __device__ __forceinline__ void advance() {
      if (++slot == DEPTH) slot = 0, parity ^= 1;
    }
  };

  static __device__ __forceinline__ void produce(const globals& g, Shared& shared) {
    Place to;
    common_state common;
    for (int item = 0; Kernel::common_setup(g, common, item); ++item)
      for (int step = 0; step < common.steps; ++step, to.advance()) {
        mbarrier_wait(shared.empty[to.slot], to.parity ^ 1);
        mbarrier_arrive_expect(shared.full[to.slot], sizeof(input_block));
        producer::load(g, common, shared.ring[to.slot], shared.full[to.slot], step);
      }
    if constexpr (SHARING > 1)  // other blocks still have to release slots here: this one must not end before
      for (int slot = 0; slot < DEPTH; ++slot, to.advance())
        mbarrier_wait(shared.empty[to.slot], to.parity ^ 1);
  }

  static __device__ __forceinline__ void consume(const globals& g, Shared& shared) {
    const int mine = uniform(warpgroup());
    Place from;
    common_state common;
    const auto release = [&](int slot) {
      __syncwarp();
      const int lane = threadIdx.x % LANES;
      if constexpr (SHARING > 1) {
        if (lane < SHARING) mbarrier_arrive_at(shared.empty[slot], lane);
      } else if (lane == 0) {
        mbarrier_arrive(shared.empty[slot]);
      }
    };
    if constexpr (TURNS)
      if (mine == 1) named_arrive<TURN_THREADS>(TURN);  // the first turn is the other's
    for (int item = 0; Kernel::common_setup(g, common, item); ++item) {
      if constexpr (TURNS) {
        if (item % 2 != mine) {
          from.skip(common.steps);
          continue;
        }
        named_sync<TURN_THREADS>(TURN + mine);
      }
      consumer_state state;
      if constexpr (SCRATCH)
        consumer::setup(g, common, state, shared.scratch[mine]);
      else
        consumer::setup(common, state);
      int before = -1;  // the slot of the step before
      for (int step = 0; step < common.steps; ++step, from.advance()) {
        mbarrier_wait(shared.full[from.slot], from.parity);
        consumer::compute(common, state, shared.ring[from.slot]);
        if constexpr (IN_FLIGHT == 0) {
          release(from.slot);
        } else {
          if (before >= 0) release(before);
          before = from.slot;
        }
      }
      if constexpr (TURNS) {
        common_state next;
        if (Kernel::common_setup(g, next, item + 1)) named_arrive<TURN_THREADS>(TURN + 1 - mine);
      }
      if constexpr (IN_FLIGHT > 0) {
        consumer::drain();
        if (before >= 0) release(before);
      }
      if constexpr (SCRATCH)
        consumer::finish(g, common, state, shared.scratch[mine], shared.finish[mine]);
      else
        consumer::finish(g, common, state, shared.finish[mine], shared.ring);
    }
    tma_store_wait_read<0>();
  }

  // which consumer this thread belongs to
  static __device__ __forceinline__ int warpgroup() { return threadIdx.x / WARPGROUP - 1; }

  // the kernel: THREADS threads, SHARED_BYTES bytes at `memory`
  static __device__ __forceinline__ void run(const globals& g, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
      for (int s = 0; s < DEPTH; ++s) {
        mbarrier_init(shared.full[s], 1);
        mbarrier_init(shared.empty[s], RELEASES);
      }
      mbarrier_init_fence();
    }
    __syncthreads();
    if constexpr (SHARING > 1) cluster_started();
    if (threadIdx.x < WARPGROUP) {
      keep_registers<PRODUCER_REGISTERS>();
      if (threadIdx.x == 0) produce(g, shared);
    } else {
      take_registers<CONSUMER_REGISTERS>();
      consume(g, shared);
    }
  }
};
