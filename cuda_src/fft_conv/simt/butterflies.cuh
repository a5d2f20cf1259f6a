// transforms of up to 16 complex numbers, which a thread holds in registers.
#pragma once
#include "../sequence.cuh"

// x exp(-2 pi i k / COUNT)
template <int COUNT>
__device__ __forceinline__ float2 turned(float2 x, int k) {
  constexpr float COSINE[8] = {1.f, 0.923879533f,  0.707106781f,  0.382683432f,
                               0.f, -0.382683432f, -0.707106781f, -0.923879533f};
  constexpr float SINE[8] = {0.f, 0.382683432f, 0.707106781f, 0.923879533f,
                             1.f, 0.923879533f, 0.707106781f, 0.382683432f};
  const int sixteenth = k * (16 / COUNT);
  if (sixteenth == 0) return x;
  if (sixteenth == 4) return {x.y, -x.x};
  if (sixteenth == 2) return {COSINE[2] * (x.x + x.y), COSINE[2] * (x.y - x.x)};
  if (sixteenth == 6) return {COSINE[2] * (x.y - x.x), -COSINE[2] * (x.x + x.y)};
  return x * float2{COSINE[sixteenth], -SINE[sixteenth]};
}

// the transform of COUNT numbers of a thread
template <int COUNT>
__device__ __forceinline__ void transform(float2 (&x)[COUNT]) {
  if constexpr (COUNT > 1) {
    float2 even[COUNT / 2], odd[COUNT / 2];
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) {
      even[i] = x[2 * i];
      odd[i] = x[2 * i + 1];
    }
    transform(even);
    transform(odd);
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) {
      const float2 other = turned<COUNT>(odd[i], i);
      x[i] = even[i] + other;
      x[i + COUNT / 2] = even[i] - other;
    }
  }
}
