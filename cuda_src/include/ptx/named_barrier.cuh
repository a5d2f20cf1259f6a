// named barriers: 16 of a block, 0 is that of __syncthreads. for some of its warps, whole ones, or to hand
// over a turn. all that come to a barrier name the same number of THREADS.
#pragma once

// bar.sync: until THREADS threads have come to barrier `name`, by this or by named_arrive
template <int THREADS>
__device__ __forceinline__ void named_sync(int name) {
  static_assert(THREADS % 32 == 0, "whole warps come to a barrier: THREADS is a multiple of 32");
  asm volatile("bar.sync %0, %1;" ::"r"(name), "n"(THREADS) : "memory");
}

// bar.arrive: counts this thread as come, without waiting. what it did before happens before the others go on
template <int THREADS>
__device__ __forceinline__ void named_arrive(int name) {
  static_assert(THREADS % 32 == 0, "whole warps come to a barrier: THREADS is a multiple of 32");
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "n"(THREADS) : "memory");
}
