// a circular buffer in shared memory whose pipeline stages are handed back and forth through mbarriers: a
// producer acquires a stage and commits to it, consumers wait for it and release it. sm_90a.
#pragma once
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"

// a stage of a circular buffer of so many, and the parity of the round
template <int PIPELINE_STAGES>
struct Place {
  int stage = 0, parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == PIPELINE_STAGES) stage = 0, parity ^= 1;
  }

  // the same as so many times advance()
  __device__ __forceinline__ void skip(int stages) {
    stage += stages;
    parity ^= stage / PIPELINE_STAGES & 1;
    stage %= PIPELINE_STAGES;
  }
};

// how many stages of so many bytes fit into a block's shared memory beside `other` bytes
__host__ __device__ constexpr int stages_that_fit(int shared_bytes, int stage_bytes, int other) {
  constexpr int ALIGNMENT = 1024;  // of the 128-byte swizzle
  return (shared_bytes - other - ALIGNMENT) / (stage_bytes + 2 * static_cast<int>(sizeof(Barrier)));
}

// the barriers of the buffer. RELEASES warps of each of CLUSTER_BLOCKS blocks of a cluster release a stage, after
// which the producers of all of them may fill it
template <int STAGES_, int RELEASES, int CLUSTER_BLOCKS_ = 1>
struct Pipeline {
  static_assert(STAGES_ >= 2, "not even two stages fit beside the other memory: make one of them smaller");
  static constexpr int PIPELINE_STAGES = STAGES_, CLUSTER_BLOCKS = CLUSTER_BLOCKS_, LANES = 32;
  using place = Place<PIPELINE_STAGES>;
  Barrier full[PIPELINE_STAGES], empty[PIPELINE_STAGES];  // all has come; all consumer warps are done

  // by one thread, before mbarrier_init_fence. so many arrivals commit a stage
  __device__ __forceinline__ void init(int commits = 1) {
    for (int s = 0; s < PIPELINE_STAGES; ++s) {
      mbarrier_init(full[s], commits);
      mbarrier_init(empty[s], RELEASES * CLUSTER_BLOCKS);
    }
  }

  // the producer: until the stage is free
  __device__ __forceinline__ void acquire(const place& to) {
    mbarrier_wait(empty[to.stage], to.parity ^ 1);
  }

  // the producer: commits to a stage that is full when so many bytes have been copied there
  __device__ __forceinline__ Barrier& commit(int stage, int bytes) {
    mbarrier_arrive_expect(full[stage], bytes);
    return full[stage];
  }

  // a warp of producers that wrote the stage with ordinary stores: its lanes meet, one of them commits
  __device__ __forceinline__ void commit_written(int stage) {
    __syncwarp();
    if (threadIdx.x % LANES == 0) mbarrier_arrive(full[stage]);
  }

  // the producer, at its end, where blocks release stages of one another: they still do, and this block must
  // not end before
  __device__ __forceinline__ void drain(place to) {
    if constexpr (CLUSTER_BLOCKS > 1)
      for (int stage = 0; stage < PIPELINE_STAGES; ++stage, to.advance()) acquire(to);
  }

  // a consumer: until the stage is full
  __device__ __forceinline__ void wait(const place& from) { mbarrier_wait(full[from.stage], from.parity); }

  // a warp of consumers: its lanes meet, then it is done with the stage
  __device__ __forceinline__ void release(int stage) {
    __syncwarp();
    const int lane = threadIdx.x % LANES;
    if constexpr (CLUSTER_BLOCKS > 1) {
      if (lane < CLUSTER_BLOCKS) mbarrier_arrive_at(empty[stage], lane);
    } else if (lane == 0) {
      mbarrier_arrive(empty[stage]);
    }
  }
};

// a consumer's side of the buffer: where it is, and which stage it has not released yet
template <class Ring>
struct Consumed {
  Ring& ring;
  typename Ring::place from = {};
  int held = -1;  // the stage of the k-iteration before, whose reads are in flight

  __device__ __forceinline__ void wait() { ring.wait(from); }
  __device__ __forceinline__ int stage() const { return from.stage; }
  __device__ __forceinline__ void advance() { from.advance(); }
  __device__ __forceinline__ void skip(int stages) { from.skip(stages); }

  // all reads of the present stage are over
  __device__ __forceinline__ void release() { ring.release(from.stage); }

  // reads of the present stage are in flight, those of the one before are over
  __device__ __forceinline__ void release_previous() {
    if (held >= 0) ring.release(held);
    held = from.stage;
  }

  // no reads are in flight any more
  __device__ __forceinline__ void release_last() {
    if (held >= 0) ring.release(held);
    held = -1;
  }
};
