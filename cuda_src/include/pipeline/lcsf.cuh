// load, compute, store, finish: the frame of a kernel whose warps specialise. persistent blocks work through
// items; the producer, one thread or a warpgroup, loads the inputs of an item step by step, ahead of time and
// across items; warpgroups of consumers compute on them and finish the item. sm_90a.
//
// the author writes a struct, here Kernel, of types
//
//   globals         what the kernel was given
//   input_block     what one step loads; as many as fit into shared memory form the ring
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
//
// a constant CONSUMERS says how many warpgroups consume. with a constant IN_FLIGHT = 0 compute leaves no
// reads in flight, there is no drain, and inputs are released a step earlier.
//
// results leave at the end of an item, or with every step, or both: the kernel has one of these or both
//
//   finish_block    shared memory of one consumer warpgroup, and
//   consumer::finish(globals, common, state, finish_block, ring)
//       the end of an item: the producer is already loading the next. if there is none the ring may be used
//
//   output_block    what one step stores; two of them form a ring, and IN_FLIGHT is 0
//   consumer::compute(common, state, input, output)
//       instead of the one above. all consumers together write the block
//   producer::store(globals, common, output, step)
//       by one thread, another one than that of load: asks the copy engine to store what is in the block
//
// what a consumer needs once an item, and not in registers, is
//
//   scratch_block   shared memory of one consumer warpgroup, from setup to finish, with
//   consumer::setup(globals, common, state, scratch_block) and
//   consumer::finish(globals, common, state, scratch_block, finish_block)
//
// what a producer carries from step to step of an item is
//
//   producer_state  in registers, with
//   producer::setup(globals, common, state) and
//   producer::load(globals, common, state, input, full, step)
//
// what the copy engine brings may have to lie otherwise for the consumers, rows as columns for instance. then
//
//   raw_block       is what one step loads: there is one of them, and load is given it instead of `input`
//   producer::arrange(globals, common, raw, input, full, step)
//       by ARRANGERS threads, from thread 32 on: writes the input_block. parts that need no change one of
//       the threads can ask for, with mbarrier_expect and tma_load
//
// the results of an item may leave while the next one is computed, in parts, with some of the steps of its
// first half. then there are, instead of finish,
//
//   result_state    what is kept of them, in registers, and LATER, a constant: in how many parts they leave
//   consumer::keep(globals, common, state, result)
//       the end of an item; returns whether there is anything to leave
//   consumer::leave<PART>(globals, result, finish_block)
//       has part PART stored
//
// of what a step loads, a part may have a longer way. then
//
//   far_block       is that part. it has a ring of its own, of all the memory that RING_DEPTH input blocks
//                   leave, so it can be asked for earlier
//   producer::load_far(globals, common, far, full, step)
//       as load, by another thread, BURST steps at once, a constant: where what they load lies side by side
//   consumer::compute(common, state, input, far)
//       instead of the one above
//
// a kernel may have two more constants:
//
//   RING_DEPTH      so many input blocks form the ring, where all that fit are more than it needs
//   BLOCKS_PER_SM   so many blocks are to fit on a multiprocessor at once, instead of one: each has its part
//                   of the shared memory and of the registers
//
// SHARING blocks of a cluster may load for each other: each asks for its part of an input_block with
// tma_load_to, and a block has all of it when all parts have come. they go through the same steps of the same
// number of items. with TURNS the two consumers do not work on every item together: they take turns, so that
// one finishes an item while the other computes the next.
//
// the template owns the rest: the loop, the ring and its barriers, its depth, registers, and the waiting for
// stores in flight before the block ends. the first warpgroup produces: registers move between warpgroups.
#pragma once
#include "ptx/cluster.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

template <class...>
using Exists = void;

// one of two types
template <bool FIRST, class A, class B>
struct Choice {
  using type = A;
};
template <class A, class B>
struct Choice<false, A, B> {
  using type = B;
};
template <bool FIRST, class A, class B>
using Either = typename Choice<FIRST, A, B>::type;

// a block of memory that a kernel may name and need not
struct Nothing {};
template <class Block>
constexpr int BYTES_OF = sizeof(Block);
template <>
constexpr int BYTES_OF<Nothing> = 0;
#define OPTIONAL(BLOCK)                                       \
  template <class Kernel, class = void>                       \
  struct Of_##BLOCK {                                         \
    using type = Nothing;                                     \
    static constexpr int BYTES = 0;                           \
  };                                                          \
  template <class Kernel>                                     \
  struct Of_##BLOCK<Kernel, Exists<typename Kernel::BLOCK>> { \
    using type = typename Kernel::BLOCK;                      \
    static constexpr int BYTES = BYTES_OF<type>;              \
  };
OPTIONAL(output_block)
OPTIONAL(finish_block)
OPTIONAL(scratch_block)
OPTIONAL(raw_block)
OPTIONAL(far_block)
OPTIONAL(producer_state)
OPTIONAL(result_state)
#undef OPTIONAL

// a constant of a kernel, or what it is where the kernel does not say
#define OPTIONAL(CONSTANT, OTHERWISE)                                \
  template <class Kernel, class = void>                              \
  struct Of_##CONSTANT {                                             \
    static constexpr int VALUE = OTHERWISE;                          \
  };                                                                 \
  template <class Kernel>                                            \
  struct Of_##CONSTANT<Kernel, Exists<decltype(Kernel::CONSTANT)>> { \
    static constexpr int VALUE = Kernel::CONSTANT;                   \
  };
OPTIONAL(IN_FLIGHT, 1)   // steps that compute leaves
OPTIONAL(RING_DEPTH, 0)  // 0: what fits
OPTIONAL(BURST, 1)       // steps of a far_block
OPTIONAL(LATER, 0)       // parts of an item's results that leave during the next
OPTIONAL(BLOCKS_PER_SM, 1)
#undef OPTIONAL

template <class Kernel, int SHARING = 1, bool TURNS = false>
struct Lcsf {
  using globals = typename Kernel::globals;
  using input_block = typename Kernel::input_block;
  using output_block = typename Of_output_block<Kernel>::type;
  using finish_block = typename Of_finish_block<Kernel>::type;
  using common_state = typename Kernel::common_state;
  using consumer_state = typename Kernel::consumer_state;
  using scratch_block = typename Of_scratch_block<Kernel>::type;
  using raw_block = typename Of_raw_block<Kernel>::type;
  using far_block = typename Of_far_block<Kernel>::type;
  using producer_state = typename Of_producer_state<Kernel>::type;
  using result_state = typename Of_result_state<Kernel>::type;
  using producer = typename Kernel::producer;
  using consumer = typename Kernel::consumer;

  static constexpr int LANES = 32, CONSUMERS = Kernel::CONSUMERS;
  static constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
  static constexpr int CONSUMER_WARPS = CONSUMERS * WARPGROUP / LANES;
  // all that a block may have: ask for it at launch. of what a multiprocessor has each block takes 1 KB more
  static constexpr int BLOCKS_PER_SM = Of_BLOCKS_PER_SM<Kernel>::VALUE;
  static constexpr int SHARED_BYTES = (228 / BLOCKS_PER_SM - 1) * 1024;

  // what remains of shared memory beside the other blocks is the ring
  static constexpr int ALIGNMENT = 1024;                         // of the 128-byte swizzle
  static constexpr int IN_FLIGHT = Of_IN_FLIGHT<Kernel>::VALUE;  // steps that compute may leave
  static_assert(IN_FLIGHT == 0 || IN_FLIGHT == 1,
                "compute may leave reads of one step in flight, or of none");
  static constexpr bool RAW = Of_raw_block<Kernel>::BYTES > 0;
  static constexpr int ARRANGERS = WARPGROUP - LANES;  // the first warp loads
  static_assert(!RAW || (SHARING == 1 && Of_output_block<Kernel>::BYTES == 0),
                "who arranges does so for the block alone, and has nobody to store: name a finish_block");
  static_assert(!RAW || Of_producer_state<Kernel>::BYTES == 0,
                "with a raw_block load is given no producer_state: compute it from the step");
  static constexpr bool SCRATCH = Of_scratch_block<Kernel>::BYTES > 0;
  static constexpr bool FINISH = Of_finish_block<Kernel>::BYTES > 0;
  static constexpr int OUTPUTS = Of_output_block<Kernel>::BYTES > 0 ? 2 : 0;  // of their ring
  static_assert(
      OUTPUTS == 0 || (IN_FLIGHT == 0 && !TURNS),
      "an output_block is full when compute returns: IN_FLIGHT has to be 0, and no turns are taken");
  static_assert(FINISH || !SCRATCH, "a scratch_block is read in finish: name a finish_block");
  static constexpr int LATER = Of_LATER<Kernel>::VALUE;
  static_assert(LATER == 0 || (FINISH && !SCRATCH && !OUTPUTS && !TURNS),
                "results that leave later do so through a finish_block: with it alone, and taking no turns");
  static_assert(FINISH || OUTPUTS, "results need a way out: name a finish_block or an output_block");
  static constexpr int FAR_BYTES = Of_far_block<Kernel>::BYTES;
  static constexpr bool FAR = FAR_BYTES > 0;
  static_assert(!FAR || (!RAW && OUTPUTS == 0 && SHARING == 1),
                "a far_block is loaded by who would arrange or store, and for the block alone");
  static constexpr int FIXED =
      CONSUMERS * (Of_finish_block<Kernel>::BYTES + Of_scratch_block<Kernel>::BYTES) +
      OUTPUTS * (Of_output_block<Kernel>::BYTES + 2 * static_cast<int>(sizeof(Barrier))) +
      Of_raw_block<Kernel>::BYTES + ALIGNMENT * (OUTPUTS || RAW || FAR ? 2 : 1);
  static constexpr int SLOT_BYTES = sizeof(input_block) + 2 * sizeof(Barrier);
  static constexpr int FAR_SLOT_BYTES = FAR ? FAR_BYTES + 2 * sizeof(Barrier) : 1;
  static constexpr int FITTING = (SHARED_BYTES - FIXED - (FAR ? 2 * FAR_SLOT_BYTES : 0)) / SLOT_BYTES;
  static_assert(FITTING >= 2,
                "not even two input blocks fit beside the other blocks: make one of them smaller");
  static constexpr int ASKED = Of_RING_DEPTH<Kernel>::VALUE, DEPTH = ASKED > 0 ? ASKED : FITTING;
  static_assert(DEPTH >= 2 && DEPTH <= FITTING,
                "RING_DEPTH has to be 2 at least, and no more than fit beside the other blocks");
  static_assert(!FAR || ASKED > 0, "name a RING_DEPTH: what it leaves is the ring of the far_block");
  static constexpr int FAR_DEPTH = FAR ? (SHARED_BYTES - FIXED - DEPTH * SLOT_BYTES) / FAR_SLOT_BYTES : 1;
  static constexpr int BURST = Of_BURST<Kernel>::VALUE;
  static_assert(BURST == 1 || (FAR && BURST > 1 && BURST < FAR_DEPTH),
                "BURST is of a far_block, and less than the depth of its ring: lower RING_DEPTH");
  static_assert(sizeof(input_block) % ALIGNMENT == 0 && FAR_BYTES % ALIGNMENT == 0 &&
                    Of_finish_block<Kernel>::BYTES % ALIGNMENT == 0 &&
                    Of_output_block<Kernel>::BYTES % ALIGNMENT == 0,
                "input, far, output and finish blocks have to be multiples of 1024 bytes: pad them");

  // a thread starts with an equal share of the registers. producers keep few, more where they arrange;
  // consumers take the rest
  static constexpr int UNIT = 8, REGISTER_FILE = 64 * 1024;
  static constexpr int SHARE = REGISTER_FILE / (BLOCKS_PER_SM * THREADS) / UNIT * UNIT;
  static constexpr int PRODUCER_REGISTERS = RAW ? 72 : 40;
  static_assert(PRODUCER_REGISTERS <= SHARE, "a thread starts with too few registers: lower BLOCKS_PER_SM");
  static constexpr int LEFT = (SHARE * (1 + CONSUMERS) - PRODUCER_REGISTERS) / CONSUMERS / UNIT * UNIT;
  static constexpr int CONSUMER_REGISTERS = LEFT < 240 ? LEFT : 240;
  static_assert(CONSUMERS >= 2 && CONSUMERS <= 3,
                "one consumer warpgroup cannot use the registers, four have too few: take 2 or 3");

  struct Shared {
    alignas(ALIGNMENT) input_block ring[DEPTH];
    finish_block finish[CONSUMERS];
    Barrier full[DEPTH], empty[DEPTH];  // all bytes have come; all consumer warps are done
    scratch_block scratch[CONSUMERS];
    struct alignas(OUTPUTS ? ALIGNMENT : alignof(Barrier)) {  // a ring of its own
      output_block block[OUTPUTS ? OUTPUTS : 1];
      Barrier full[OUTPUTS ? OUTPUTS : 1], empty[OUTPUTS ? OUTPUTS : 1];
    } outputs;
    struct alignas(RAW ? ALIGNMENT : alignof(Barrier)) {
      raw_block block;
      Barrier full, empty;
    } raw;
    struct alignas(FAR ? ALIGNMENT : alignof(Barrier)) {
      far_block block[FAR_DEPTH];
      Barrier full[FAR_DEPTH], empty[FAR_DEPTH];
    } far;
  };
  static_assert(sizeof(Shared) <= SHARED_BYTES, "the ring is too deep");

  // barriers 1 and 2: whose turn it is to compute
  static constexpr int TURN = 1, TURN_THREADS = 2 * WARPGROUP;
  static_assert(!TURNS || CONSUMERS == 2, "two consumers take turns");
  static constexpr int RELEASES = (TURNS ? WARPGROUP / LANES : CONSUMER_WARPS) * SHARING;  // of a slot

  // steps of its first item that the producer asks for while the block starts. few: the rest of its warps
  // wait for it meanwhile. none where a state would have to be set up twice
  static constexpr bool STATE = Of_producer_state<Kernel>::BYTES > 0;
  static constexpr int EARLY = STATE ? 0 : RAW || sizeof(input_block) > 24 * 1024 ? 1 : 2;

  // a place in a ring, and the parity of the round
  template <int SLOTS>
  struct Place {
    int slot = 0, parity = 0;

    __device__ __forceinline__ void skip(int steps) {
      slot += steps;
      parity ^= slot / SLOTS & 1;
      slot %= SLOTS;
    }

    __device__ __forceinline__ void advance() {
      if (++slot == SLOTS) slot = 0, parity ^= 1;
    }
  };

  // the producer's first item, and how many of its steps it has asked for
  struct Start {
    common_state common;
    bool any;
    int steps = 0;
  };

  // by the producer: asks for a step
  static __device__ __forceinline__ void ask(const globals& g, Shared& shared, const common_state& common,
                                             producer_state& state, int slot, int step) {
    Barrier& full = RAW ? shared.raw.full : shared.full[slot];
    mbarrier_arrive_expect(full, RAW ? sizeof(raw_block) : sizeof(input_block));
    if constexpr (RAW)
      producer::load(g, common, shared.raw.block, full, step);
    else if constexpr (STATE)
      producer::load(g, common, state, shared.ring[slot], full, step);
    else
      producer::load(g, common, shared.ring[slot], full, step);
  }

  // asks for a step's far block
  static __device__ __forceinline__ void ask_far(const globals& g, Shared& shared, const common_state& common,
                                                 int slot, int step) {
    mbarrier_arrive_expect(shared.far.full[slot], FAR_BYTES);
    producer::load_far(g, common, shared.far.block[slot], shared.far.full[slot], step);
  }

  // by the producer, when its barriers are initialised: no slot is taken yet
  static __device__ __forceinline__ void begin(const globals& g, Shared& shared, Start& start) {
    producer_state none;
    if (!start.any) return;
    if constexpr (FAR)
      for (int step = 0; step < min(BURST, start.common.steps); ++step)
        ask_far(g, shared, start.common, step, step);
    for (; start.steps < min(EARLY, start.common.steps); ++start.steps)
      ask(g, shared, start.common, none, start.steps, start.steps);
  }

  static __device__ __forceinline__ void produce(const globals& g, Shared& shared, const Start& start) {
    Place<RAW ? 1 : DEPTH> to;
    to.skip(start.steps);
    common_state common = start.common;
    producer_state state;
    int item = 0, step = start.steps;
    for (bool more = start.any; more; more = Kernel::common_setup(g, common, ++item), step = 0) {
      if constexpr (STATE) producer::setup(g, common, state);
      for (; step < common.steps; ++step, to.advance()) {
        mbarrier_wait(RAW ? shared.raw.empty : shared.empty[to.slot], to.parity ^ 1);
        ask(g, shared, common, state, to.slot, step);
      }
    }
    if constexpr (SHARING > 1)  // other blocks still have to release slots here: this one must not end before
      for (int slot = 0; slot < DEPTH; ++slot, to.advance())
        mbarrier_wait(shared.empty[to.slot], to.parity ^ 1);
  }

  // far blocks. consumers release them in order: where the last of a burst is free, the others are
  static __device__ __forceinline__ void produce_far(const globals& g, Shared& shared) {
    Place<FAR_DEPTH> to;
    common_state common;
    for (int item = 0; Kernel::common_setup(g, common, item); ++item) {
      int step = item == 0 ? min(BURST, common.steps) : 0;  // those were asked for at the beginning
      to.skip(step);
      for (; step < common.steps; ++step, to.advance()) {
        if (step % BURST == 0) {
          Place<FAR_DEPTH> last = to;
          last.skip(BURST - 1);
          mbarrier_wait(shared.far.empty[last.slot], last.parity ^ 1);
        }
        ask_far(g, shared, common, to.slot, step);
      }
    }
  }

  static __device__ __forceinline__ void arrange(const globals& g, Shared& shared) {
    Place<1> from;
    Place<DEPTH> to;
    common_state common;
    for (int item = 0; Kernel::common_setup(g, common, item); ++item)
      for (int step = 0; step < common.steps; ++step, from.advance(), to.advance()) {
        Barrier& full = shared.full[to.slot];
        mbarrier_wait(shared.empty[to.slot], to.parity ^ 1);
        mbarrier_wait(shared.raw.full, from.parity);
        producer::arrange(g, common, shared.raw.block, shared.ring[to.slot], full, step);
        __syncwarp();
        if (threadIdx.x % LANES == 0) {
          mbarrier_arrive(shared.raw.empty);
          mbarrier_arrive(full);
        }
      }
  }

  // an output block may be written again when the copy engine has read it. meanwhile the next one is stored
  static __device__ __forceinline__ void store(const globals& g, Shared& shared) {
    Place<OUTPUTS> from;
    common_state common;
    int before = -1;  // the slot of the step before
    for (int item = 0; Kernel::common_setup(g, common, item); ++item)
      for (int step = 0; step < common.steps; ++step, from.advance()) {
        mbarrier_wait(shared.outputs.full[from.slot], from.parity);
        producer::store(g, common, shared.outputs.block[from.slot], step);
        tma_store_commit();
        tma_store_wait_read<1>();
        if (before >= 0) mbarrier_arrive(shared.outputs.empty[before]);
        before = from.slot;
      }
    tma_store_wait_read<0>();
  }

  // part number `part` of what is kept: registers have no run-time index, so each is written out
  template <int PART = 0>
  static __device__ __forceinline__ void leave(const globals& g, const result_state& result,
                                               finish_block& finish, int part) {
    if (part == PART)
      consumer::template leave<PART>(g, result, finish);
    else if constexpr (PART + 1 < LATER)
      leave<PART + 1>(g, result, finish, part);
  }

  // parts leave evenly over half of an item's steps. in a row they would push more out of the L2 than memory
  // can take meanwhile, and what is loaded would have to wait
  static __device__ __forceinline__ int steps_apart(const common_state& common) {
    return max(common.steps / (2 * LATER), 1);
  }

  static __device__ __forceinline__ void consume(const globals& g, Shared& shared) {
    const int mine = uniform(warpgroup());
    Place<DEPTH> from;
    Place<OUTPUTS ? OUTPUTS : 1> to;
    Place<FAR_DEPTH> from_far;
    common_state common;
    const auto release = [&](int slot, int far_slot) {
      __syncwarp();
      const int lane = threadIdx.x % LANES;
      if constexpr (SHARING > 1) {
        if (lane < SHARING) mbarrier_arrive_at(shared.empty[slot], lane);
      } else if (lane == 0) {
        mbarrier_arrive(shared.empty[slot]);
        if constexpr (FAR) mbarrier_arrive(shared.far.empty[far_slot]);
      }
    };
    if constexpr (TURNS)
      if (mine == 1) named_arrive<TURN_THREADS>(TURN);  // the first turn is the other's
    // initialised, though nothing is read of it before something is kept: without that ptxas 13.0 takes the
    // place of the present item for that of the one before, where both are computed ahead of the steps
    result_state result = {};
    int part = LATER;  // of the item before, that leaves next
    bool more = Kernel::common_setup(g, common, 0);
    for (int item = 0; more; ++item) {
      if constexpr (TURNS) {
        if (item % 2 != mine) {
          from.skip(common.steps), from_far.skip(FAR ? common.steps : 0);
          more = Kernel::common_setup(g, common, item + 1);
          continue;
        }
        named_sync<TURN_THREADS>(TURN + mine);
      }
      consumer_state state;
      if constexpr (SCRATCH)
        consumer::setup(g, common, state, shared.scratch[mine]);
      else
        consumer::setup(common, state);
      int before = -1, far_before = 0;  // the slots of the step before
      int due = 0;                      // the step with which the next part leaves
      if constexpr (LATER > 0) due = steps_apart(common) - 1;
      for (int step = 0; step < common.steps; ++step, from.advance()) {
        mbarrier_wait(shared.full[from.slot], from.parity);
        if constexpr (FAR) {
          mbarrier_wait(shared.far.full[from_far.slot], from_far.parity);
          consumer::compute(common, state, shared.ring[from.slot], shared.far.block[from_far.slot]);
        } else if constexpr (OUTPUTS) {
          mbarrier_wait(shared.outputs.empty[to.slot], to.parity ^ 1);
          consumer::compute(common, state, shared.ring[from.slot], shared.outputs.block[to.slot]);
          async_fence();
        } else {
          consumer::compute(common, state, shared.ring[from.slot]);
        }
        if constexpr (IN_FLIGHT == 0) {
          release(from.slot, from_far.slot);
        } else {
          if (before >= 0) release(before, far_before);
          before = from.slot, far_before = from_far.slot;
        }
        if constexpr (FAR) from_far.advance();
        if constexpr (OUTPUTS) {  // the warp has met in release
          if (threadIdx.x % LANES == 0) mbarrier_arrive(shared.outputs.full[to.slot]);
          to.advance();
        }
        if constexpr (LATER > 0)
          if (part < LATER && step == due)
            leave(g, result, shared.finish[mine], part++), due += steps_apart(common);
      }
      if constexpr (LATER > 0)
        while (part < LATER) leave(g, result, shared.finish[mine], part++);
      common_state next;  // set up while the last step is computed
      more = Kernel::common_setup(g, next, item + 1);
      if constexpr (TURNS)
        if (more) named_arrive<TURN_THREADS>(TURN + 1 - mine);
      if constexpr (IN_FLIGHT > 0) {
        consumer::drain();
        if (before >= 0) release(before, far_before);
      }
      if constexpr (LATER > 0)
        part = consumer::keep(g, common, state, result) ? 0 : LATER;
      else if constexpr (SCRATCH)
        consumer::finish(g, common, state, shared.scratch[mine], shared.finish[mine]);
      else if constexpr (FINISH)
        consumer::finish(g, common, state, shared.finish[mine], shared.ring);
      if constexpr (TURNS)
        Kernel::common_setup(g, common, item + 1);  // not before the turn was handed over
      else
        common = next;
    }
    if constexpr (LATER > 0)
      while (part < LATER) leave(g, result, shared.finish[mine], part++);
    tma_store_wait_read<0>();
  }

  // which consumer this thread belongs to
  static __device__ __forceinline__ int warpgroup() { return threadIdx.x / WARPGROUP - 1; }

  // the kernel, by THREADS threads and compiled with __launch_bounds__(THREADS, BLOCKS_PER_SM), without which
  // registers cannot move. `memory` has SHARED_BYTES bytes, aligned to ALIGNMENT
  static __device__ __forceinline__ void run(const globals& g, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    Start start;
    if (threadIdx.x == 0) {
      for (int s = 0; s < DEPTH; ++s) {
        mbarrier_init(shared.full[s], RAW ? ARRANGERS / LANES : 1);
        mbarrier_init(shared.empty[s], RELEASES);
      }
      for (int s = 0; s < OUTPUTS; ++s) {
        mbarrier_init(shared.outputs.full[s], CONSUMER_WARPS);
        mbarrier_init(shared.outputs.empty[s], 1);
      }
      if constexpr (RAW) {
        mbarrier_init(shared.raw.full, 1);
        mbarrier_init(shared.raw.empty, ARRANGERS / LANES);
      }
      if constexpr (FAR)
        for (int s = 0; s < FAR_DEPTH; ++s) {
          mbarrier_init(shared.far.full[s], 1);
          mbarrier_init(shared.far.empty[s], RELEASES);
        }
      mbarrier_init_fence();
      start.any = Kernel::common_setup(g, start.common, 0);
      if constexpr (SHARING == 1) begin(g, shared, start);
    }
    __syncthreads();
    if constexpr (SHARING > 1) {
      cluster_started();
      if (threadIdx.x == 0) begin(g, shared, start);
    }
    if (threadIdx.x < WARPGROUP) {
      keep_registers<PRODUCER_REGISTERS>();
      if (threadIdx.x == 0) produce(g, shared, start);
      if constexpr (RAW)
        if (threadIdx.x >= LANES) arrange(g, shared);
      if constexpr (OUTPUTS)
        if (threadIdx.x == LANES) store(g, shared);
      if constexpr (FAR)
        if (threadIdx.x == LANES) produce_far(g, shared);
    } else {
      take_registers<CONSUMER_REGISTERS>();
      consume(g, shared);
    }
  }
};
