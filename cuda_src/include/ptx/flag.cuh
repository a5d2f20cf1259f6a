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

// a number that says of itself that it is there: its bits, and above them 1. both are stored and loaded at
// once, so nothing else has to be ordered. 0: not there
using Posted = unsigned long long;

// st.relaxed.gpu
__device__ __forceinline__ void post(Posted* to, float value) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(1ull << 32 | __float_as_uint(value))
               : "memory");
}

// ld.relaxed.gpu until those of COUNT numbers are there whose address is not null; the others are 0. by a
// warp, which leaves together. whoever posts them must run already, or be able to start
template <int COUNT>
__device__ __forceinline__ void await_posted(float (&values)[COUNT], const Posted* const (&from)[COUNT]) {
  bool missing;
  do {
    missing = false;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      Posted found = 1ull << 32;
      if (from[i])
        asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(found) : "l"(from[i]) : "memory");
      values[i] = __uint_as_float(static_cast<unsigned>(found));
      missing |= found == 0;
    }
  } while (__any_sync(0xffffffffu, missing));
}

// atom.relaxed.gpu.inc: how many have taken a ticket before this thread, of `many`, after which the counter
// is zero again. blocks that work in the order of their tickets wait only for blocks that already run
__device__ __forceinline__ int take_ticket(unsigned* counter, int many) {
  unsigned before;
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(many - 1)
               : "memory");
  return static_cast<int>(before);
}
