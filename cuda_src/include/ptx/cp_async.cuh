// cp.async: copies from global to shared memory that run while the thread computes. sm_80 and later.
#pragma once
#include "ptx/shared.cuh"

// cp.async.cg: 16 bytes, past L1. both addresses are multiples of 16
__device__ __forceinline__ void cp_async_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// cp.async.ca: 4, 8 or 16 bytes, both addresses multiples of that. only the first `valid` are read: the
// others become zero
template <int BYTES>
__device__ __forceinline__ void cp_async(void* to, const void* from, int valid = BYTES) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from),
               "n"(BYTES), "r"(valid)
               : "memory");
}

// the same, past L1 where that is possible, with 16 bytes: copies in flight then need no room there
template <int BYTES>
__device__ __forceinline__ void cp_async_past_l1(void* to, const void* from, int valid = BYTES) {
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid)
                 : "memory");
  else
    cp_async<BYTES>(to, from, valid);
}

// cp.async.commit_group: the copies this thread issued since the last commit become one group (an empty one
// too)
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// cp.async.wait_group: until at most PENDING of this thread's groups are in flight. only this thread's copies
// are then visible, and only to this thread: a barrier has to follow before others read them
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
