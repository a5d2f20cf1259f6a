// transforms of LINES rows or columns side by side, of 16 to 256 places each, by threads that hold 16 of them
// in registers: thread t of a line has t, t + THREADS, ... two butterflies, of 16 and of what is left, with
// one exchange through shared memory between them. neighbouring threads are in neighbouring lines: where
// these are neighbours in memory too, whole sectors are moved.
#pragma once
#include "butterflies.cuh"

constexpr int HELD = 16;  // places of a thread

// x[q] times the q-th power of `root`
template <int COUNT>
__device__ __forceinline__ void turn_by_powers(float2 (&x)[COUNT], float2 root) {
  if constexpr (COUNT > 1) {
    float2 power[COUNT];
    power[1] = root;
#pragma unroll
    for (int q = 2; q < COUNT; ++q) power[q] = power[q / 2] * power[(q + 1) / 2];
#pragma unroll
    for (int q = 1; q < COUNT; ++q) x[q] = x[q] * power[q];
  }
}

template <int PLACES>
struct Lines {
  static constexpr int THREADS = PLACES / HELD;        // of a line
  static constexpr int LAST = THREADS;                 // places of the last butterflies
  static constexpr int BUTTERFLIES = HELD / LAST;      // the last ones of a thread
  static constexpr int PADDED = PLACES + THREADS - 1;  // gaps between 16 each: they go to other banks
  using Memory = float2[PADDED * LINES];

  static_assert(LAST >= 1 && LAST <= HELD, "two butterflies are enough");

  float2* exchange;
  int line, t;
  float2 root[BUTTERFLIES];

  __device__ __forceinline__ Lines(Memory& memory, const float2* roots)
      : exchange(memory), line(threadIdx.x % LINES), t(threadIdx.x / LINES) {
#pragma unroll
    for (int m = 0; m < BUTTERFLIES; ++m) root[m] = roots[(t + m * THREADS) * (PERIOD / PLACES)];
  }

  // which of its places the thread holds in v[q]
  __device__ __forceinline__ int place(int q) const { return t + q * THREADS; }
  __device__ __forceinline__ float2& shared(int i) const { return exchange[(i + i / HELD) * LINES + line]; }

  // by all threads of the block. the thread has the same places before and behind
  __device__ __forceinline__ void transform(float2 (&v)[HELD]) const {
    ::transform(v);
#pragma unroll
    for (int q = 0; q < HELD; ++q) shared(t * HELD + q) = v[q];
    __syncthreads();
#pragma unroll
    for (int m = 0; m < BUTTERFLIES; ++m) {
      float2 x[LAST];
#pragma unroll
      for (int q = 0; q < LAST; ++q) x[q] = shared(place(m + q * BUTTERFLIES));
      turn_by_powers(x, root[m]);
      ::transform(x);
#pragma unroll
      for (int q = 0; q < LAST; ++q) v[m + q * BUTTERFLIES] = x[q];
    }
  }
};
