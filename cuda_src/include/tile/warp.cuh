// sums over the 32 lanes of a warp. all lanes have to call.
#pragma once

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// the sum of x over all lanes, in every lane. 5 shuffles
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int distance = WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
  return x;
}

// 32 sums at once: lane i returns the sum of x[i] over all lanes. each round a lane hands half of its values
// to its partner and keeps the other half, so that this takes 31 shuffles and not 32 * 5. x is overwritten
__device__ __forceinline__ float warp_sums(float (&x)[WARP], int lane) {
#pragma unroll
  for (int round = 1; round <= 5; ++round) {
    const int half = WARP >> round;
    const bool upper = lane & half;
#pragma unroll
    for (int i = 0; i < WARP / 2; ++i) {
      if (i >= half) continue;
      const float keep = upper ? x[i + half] : x[i];
      const float give = upper ? x[i] : x[i + half];
      x[i] = keep + __shfl_xor_sync(ALL_LANES, give, half);
    }
  }
  return x[0];
}
