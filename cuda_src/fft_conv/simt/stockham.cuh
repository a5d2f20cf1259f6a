// a transform over PLACES places, a part of the period or all of it, by threads that hold 16 of them each in registers: thread t has t, t + THREADS, ...
// butterflies of 16, the last ones smaller, are computed in registers; between them all places go through shared memory
// (Stockham's order: the result is in the natural one, with every thread at its places). Source: Govindaraju et al.,
// High performance discrete Fourier transforms on graphics processors, 2008.
#pragma once
#include "../sequence.cuh"
#include "butterflies.cuh"

constexpr int HELD = 16, THREADS = PLACES / HELD;                 // of one transform
constexpr int TRANSFORMS = THREADS < 128 ? 128 / THREADS : 1;     // of a block
constexpr int BLOCK = THREADS * TRANSFORMS;
constexpr int RESIDENT = BLOCK < RESIDENT_THREADS ? RESIDENT_THREADS / BLOCK : 1;  // blocks of a multiprocessor

// numbers that go from thread to thread. a gap behind every 32: those of 16 neighbours are in other banks then
struct Exchange {
  float re[PLACES + PLACES / 32], im[PLACES + PLACES / 32];

  static __device__ __forceinline__ int at(int i) { return i + i / 32; }
};

// by all threads of the block: the passes from the one on that makes transforms of more than DONE places. `t` is the
// number of the thread in its transform
template <int DONE = 1>
__device__ __forceinline__ void passes(float2 (&v)[HELD], Exchange& exchange, const float2* roots, int t) {
  constexpr int RADIX = PLACES / DONE < HELD ? PLACES / DONE : HELD, EACH = HELD / RADIX;  // butterflies of a thread
#pragma unroll
  for (int m = 0; m < EACH; ++m) {
    const int j = t + m * THREADS, k = j % DONE;
    float2 x[RADIX];
#pragma unroll
    for (int q = 0; q < RADIX; ++q) x[q] = v[m + q * EACH];
    if constexpr (DONE > 1) {
      float2 root[RADIX];
      root[1] = roots[k * (PERIOD / (DONE * RADIX))];
#pragma unroll
      for (int q = 2; q < RADIX; ++q) root[q] = root[q / 2] * root[(q + 1) / 2];
#pragma unroll
      for (int q = 1; q < RADIX; ++q) x[q] = x[q] * root[q];
    }
    transform(x);
#pragma unroll
    for (int q = 0; q < RADIX; ++q) v[m + q * EACH] = x[q];
  }
  if constexpr (DONE * RADIX < PLACES) {
#pragma unroll
    for (int q = 0; q < HELD; ++q) {  // RADIX is HELD
      const int to = Exchange::at(t / DONE * DONE * RADIX + t % DONE + q * DONE);
      exchange.re[to] = v[q].x;
      exchange.im[to] = v[q].y;
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < HELD; ++q) {
      const int from = Exchange::at(t + q * THREADS);
      v[q] = {exchange.re[from], exchange.im[from]};
    }
    __syncthreads();
    passes<DONE * RADIX>(v, exchange, roots, t);
  }
}

// by all threads of the block: the places become those of the convolution with the filter of this spectrum, of which
// every STEP-th number counts
template <int STEP = 1>
__device__ __forceinline__ void convolve(float2 (&v)[HELD], Exchange& exchange, const float2* spectrum,
                                         const float2* roots, int t) {
  passes(v, exchange, roots, t);
#pragma unroll
  for (int q = 0; q < HELD; ++q) {
    const float2 product = v[q] * spectrum[(t + q * THREADS) * STEP];
    v[q] = {product.y, product.x};  // real and imaginary part exchanged, a transform is its inverse
  }
  passes(v, exchange, roots, t);
#pragma unroll
  for (int q = 0; q < HELD; ++q) v[q] = {v[q].y, v[q].x};
}
