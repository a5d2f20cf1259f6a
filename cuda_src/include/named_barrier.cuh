// named barriers: 16 of a block, 0 is that of __syncthreads. for some of its warps, or to hand over a turn.
#pragma once

// bar.sync: until THREADS threads have come to barrier `name`, by this or by named_arrive
template <int THREADS>
__device__ __forceinline__ void named_sync(int name) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "n"(THREADS) : "memory");
}

// bar.arrive: counts this thread as come, without waiting. what it did before happens before the others go on
template <int THREADS>
__device__ __forceinline__ void named_arrive(int name) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "n"(THREADS) : "memory");
}
