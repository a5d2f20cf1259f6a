// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), with any strides; lse: (batch, heads, rows). dim up to
// 256.
//
// online: one kernel, a warp a row. its lanes take a key each, 32 at a time, then columns of o. the weights are
// relative to the maximum of the keys so far; where that grows, what has been added up is rescaled. logits
// and weights stay in registers, so nothing is moved but q, k, v and o.
//
// what limits it: each row reads all keys and values, from caches, and each of their elements takes an
// instruction.

#include "tile/convert.cuh"
#include "tile/online_softmax.cuh"

constexpr int MOST_DIM = 256, COLUMNS = MOST_DIM / WARP;  // of a lane

extern "C" __global__ void __launch_bounds__(WARPS* WARP, 2)
    attention_online(const IN* q, const IN* k, const IN* v, IN* o, float* lse, long long q_batch,
                     long long q_head, long long q_row, long long k_batch, long long k_head, long long k_row,
                     long long o_batch, long long o_head, long long o_row, int heads, int group, int rows,
                     int keys, int dim, int batches, int causal, float scale) {
  __shared__ float queries[WARPS][MOST_DIM];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const long long number = static_cast<long long>(blockIdx.x) * WARPS + warp;
  if (number >= static_cast<long long>(batches) * heads * rows) return;
  const int batch = number / rows / heads, head = number / rows % heads, row = number % rows;
  q += batch * q_batch + head * q_head + row * q_row;
  k += batch * k_batch + head / group * k_head;
  v += batch * k_batch + head / group * k_head;
  o += batch * o_batch + head * o_head + row * o_row;
  const int seen = causal ? min(keys, row + 1 + keys - rows) : keys;

  float* const query = queries[warp];
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
  if (lane == 0) lse[number] = log_sum(state);
}
