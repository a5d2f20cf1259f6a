// transforms over PERIOD places in shared memory by butterflies of two, in place: from far pairs to near ones they leave
// the result in bit-reversed order, and the inverse goes from near pairs of such to far ones.
#pragma once
#include "../sequence.cuh"

constexpr unsigned UNUSED_BITS = 0x80000000u / (PERIOD / 2);  // the factor of the bits of a word that no place has

// by all threads of the block, which have to meet before and behind: the places become those of the convolution with the
// filter of this spectrum
__device__ __forceinline__ void convolve(float2* data, const float2* spectrum, const float2* roots) {
  for (int half = PERIOD / 2; half > 0; half /= 2) {
    for (int i = threadIdx.x; i < PERIOD / 2; i += THREADS) {
      const int place = i % half, at = i / half * 2 * half + place;
      const float2 a = data[at], b = data[at + half];
      data[at] = a + b;
      data[at + half] = (a - b) * roots[place * (PERIOD / 2 / half)];
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < PERIOD; i += THREADS) data[i] = data[i] * spectrum[__brev(i) / UNUSED_BITS];
  for (int half = 1; half < PERIOD; half *= 2) {
    __syncthreads();
    for (int i = threadIdx.x; i < PERIOD / 2; i += THREADS) {
      const int place = i % half, at = i / half * 2 * half + place;
      const float2 a = data[at], b = data[at + half] * conjugate(roots[place * (PERIOD / 2 / half)]);
      data[at] = a + b;
      data[at + half] = a - b;
    }
  }
}
