// what is applied to a sum before it is rounded and stored.
#pragma once

constexpr int IDENTITY = 0, RELU = 1, GELU = 2;

// of NaN NaN. GELU is x times the distribution function of the normal distribution, not its approximation by
// tanh
template <int KIND>
__device__ __forceinline__ float activate(float x) {
  static_assert(KIND >= IDENTITY && KIND <= GELU, "an activation is IDENTITY, RELU or GELU");
  constexpr float ROOT_HALF = 0.70710678118654752f;
  if constexpr (KIND == RELU) return x < 0.f ? 0.f : x;
  if constexpr (KIND == GELU) return 0.5f * x * (1.f + erff(x * ROOT_HALF));
  return x;
}
