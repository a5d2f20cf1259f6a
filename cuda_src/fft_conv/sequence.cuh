// what the stages have in common: complex numbers, and a sequence as the places of a transform.
#pragma once
#include "tile/convert.cuh"

__device__ __forceinline__ float2 operator+(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ __forceinline__ float2 operator-(float2 a, float2 b) { return {a.x - b.x, a.y - b.y}; }
__device__ __forceinline__ float2 operator*(float2 a, float2 b) {
  return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
__device__ __forceinline__ float2 conjugate(float2 a) { return {a.x, -a.y}; }

// a sequence over the PERIOD places of a transform: zero behind its last one, or, `extended`, at the end of
// the period its places before the first, as it goes round
struct Sequence {
  const IN* first;  // null for none: zero
  int length, extended;

  // which place of the sequence place i of the transform is; -1 where it is zero
  __device__ __forceinline__ int source(int i) const {
    if (i < length) return i;
    return extended && i > PERIOD - length ? i - PERIOD + length : -1;
  }
  __device__ __forceinline__ float at(int i) const {
    const int place = source(i);
    return first && place >= 0 ? to_float(first[place]) : 0.f;
  }
};
