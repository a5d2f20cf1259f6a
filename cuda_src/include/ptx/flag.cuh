// flags and counters in global memory, by which threads of one block tell those of another that their data
// are there. sm_70.
#pragma once

// red.release.gpu: counts this thread. what it wrote before is there for whoever finds it counted
__device__ __forceinline__ void flag_raise(int* flag) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(flag) : "memory");
}

// ld.acquire.gpu until `threads` have raised the flag. by a warp, which leaves together: what is the same for
// all its lanes stays so for the compiler. their block must run already, or be able to start: wait only in
// kernels all of whose blocks fit on the device at once
__device__ __forceinline__ void flag_wait(const int* flag, int threads) {
  int raised;
  do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
  while (__any_sync(0xffffffffu, raised < threads));
}

// atom.acq_rel.gpu.inc: counts this thread as one of `threads`, and tells whether it is the last. the last
// one finds what all others wrote before they counted, and the counter is zero again: the next launch finds
// it so
__device__ __forceinline__ bool count_to_last(unsigned* counter, int threads) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(threads - 1)
               : "memory");
  return before == threads - 1;
}
