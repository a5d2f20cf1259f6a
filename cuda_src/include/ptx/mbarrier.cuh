// mbarrier: a barrier in shared memory that counts arrivals and bytes. it goes through phases, whose parity
// is 0, 1, 0, ...; a phase is complete when all arrivals and all expected bytes have come. sm_90.
#pragma once
#include "ptx/shared.cuh"

using Barrier = u64;  // 8 bytes, aligned to 8

// mbarrier.init: `arrivals` a phase. by one thread, before any other use
__device__ __forceinline__ void mbarrier_init(Barrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
               : "memory");
}

// fence.mbarrier_init and fence.proxy.async: makes initialised barriers visible to TMA. by the
// thread that initialised them; a __syncthreads has to follow before other threads use them
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// mbarrier.arrive: one arrival of this thread; what it did before happens before the end of the phase
__device__ __forceinline__ void mbarrier_arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

// mapa and mbarrier.arrive: the same on the barrier that lies there in block `rank` of the cluster, which has
// initialised it (see cluster_started) and must not have ended. without a scope
// it orders memory within a block: hand back with it what has been read, do not hand over what was written
__device__ __forceinline__ void mbarrier_arrive_at(Barrier& barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(shared_address(&barrier)),
      "r"(rank)
      : "memory");
}

// mbarrier.arrive.expect_tx: one arrival that announces `bytes` of asynchronous copies in this phase
__device__ __forceinline__ void mbarrier_arrive_expect(Barrier& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}

// mbarrier.expect_tx: announces `bytes` of asynchronous copies in this phase, without an arrival. by a thread
// that has still to arrive
__device__ __forceinline__ void mbarrier_expect(Barrier& barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}

// mbarrier.try_wait.parity in a loop: until the phase of this parity is complete. on a fresh barrier a wait
// for parity 1 returns at once (the phase before the first counts as complete), which is what a producer
// wants
__device__ __forceinline__ void mbarrier_wait(Barrier& barrier, int parity) {
  u32 complete;
  do {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}"
        : "=r"(complete)
        : "r"(shared_address(&barrier)), "r"(parity)
        : "memory");
  } while (!complete);
}
