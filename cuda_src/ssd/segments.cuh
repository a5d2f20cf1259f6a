// segments of a sequence, of some chunks each, and the scan of the states that they alone would leave.
#pragma once
#include "state.cuh"

// places of a segment, of `each` chunks, and its number among those of all heads
struct Segment {
  int first, end;
  long long number;

  __device__ __forceinline__ Segment(const Operands& g, int batch, int head, int segment, int segments, int each)
      : first(segment * each * CHUNK), end(min(g.length, first + each * CHUNK)),
        number((static_cast<long long>(batch) * g.heads + head) * segments + segment) {}
};

// a thread an element of the state of a head
extern "C" __global__ void __launch_bounds__(PASSING)
    ssd_pass_states(const float* h0, float* h, float* states, const float* decays, int size, int segments) {
  const int element = blockIdx.x * PASSING + threadIdx.x;
  if (element >= size) return;
  const long long head = blockIdx.y;
  states += head * segments * size + element;
  decays += head * segments;
  float before = h0[head * size + element];
#pragma unroll 4
  for (int i = 0; i < segments; ++i) {
    float& state = states[static_cast<long long>(i) * size];
    const float alone = state;
    state = before;
    before = before * ex2(decays[i]) + alone;
  }
  h[head * size + element] = before;
}
