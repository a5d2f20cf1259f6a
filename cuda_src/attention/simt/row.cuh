// one row of attention by a warp, with online softmax. dim up to 256.
#pragma once
#include "tile/convert.cuh"
#include "tile/online_softmax.cuh"

constexpr int MOST_DIM = 256, COLUMNS = MOST_DIM / WARP;  // of a lane

// o of the row, which sees so many keys, and the logarithm of the sum of its exponentials. the warp's lanes
// take a key each, 32 at a time, then columns of o. `query` is shared memory of the warp
__device__ __forceinline__ float attend_row(float (&query)[MOST_DIM], const IN* q, const IN* k, const IN* v,
                                            IN* o, long long k_row, int seen, int dim, float scale) {
  const int lane = threadIdx.x % WARP;
  for (int c = lane; c < dim; c += WARP) query[c] = to_float(q[c]);
  __syncwarp();

  ExpSum::Value state = ExpSum::identity();
  float sums[COLUMNS] = {};
  for (int first = 0; first < seen; first += WARP) {
    float logit = -infinity();
    if (first + lane < seen) {
      const IN* key = k + (first + lane) * k_row;
      logit = 0.f;
      for (int c = 0; c < dim; ++c) logit += query[c] * to_float(key[c]);
      logit *= scale;
    }
    const float max = fmaxf(state.max, warp_reduce<Max>(logit));
    const float base = ExpSum::base(max), weight = exp_of(logit - base), rescale = exp_of(state.max - base);
    state = {max, state.sum * rescale + warp_sum(weight)};
#pragma unroll
    for (float& sum : sums) sum *= rescale;
    for (int i = 0; i < min(WARP, seen - first); ++i) {
      const float w = __shfl_sync(ALL_LANES, weight, i);
      const IN* value = v + (first + i) * k_row;
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j)
        if (j * WARP + lane < dim) sums[j] += w * to_float(value[j * WARP + lane]);
    }
  }

  const float factor = reciprocal_sum(state);
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j)
    if (j * WARP + lane < dim) o[j * WARP + lane] = from_float<IN>(sums[j] * factor);
  return log_sum(state);
}
