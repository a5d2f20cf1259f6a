// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), with any strides; lse: (batch, heads, rows). dim up to
// 256.
//
// online: one kernel, with one warp for each row. first, each lane takes one key, 32 keys at a time. then
// each lane takes columns of o. the weights are relative to the maximum of the keys so far. when the maximum
// grows, the sums so far are rescaled. logits and weights stay in registers, so only q, k, v and o are moved.
//
// what limits it: each row reads all keys and values from caches, and each of their elements takes an
// instruction.

#include "row.cuh"

extern "C" __global__ void __launch_bounds__(WARPS* WARP, 2)
    attention_online(const IN* q, const IN* k, const IN* v, IN* o, float* lse, long long q_batch,
                     long long q_head, long long q_row, long long k_batch, long long k_head, long long k_row,
                     long long o_batch, long long o_head, long long o_row, int heads, int group, int rows,
                     int keys, int dim, int batches, int causal, float scale) {
  __shared__ float queries[WARPS][MOST_DIM];
  const int warp = threadIdx.x / WARP;
  const long long number = static_cast<long long>(blockIdx.x) * WARPS + warp;
  if (number >= static_cast<long long>(batches) * heads * rows) return;
  const int batch = number / rows / heads, head = number / rows % heads, row = number % rows;
  const long long first = batch * k_batch + head / group * k_head;
  const int seen = causal ? min(keys, row + 1 + keys - rows) : keys;
  const float log_sum =
      attend_row(queries[warp], q + batch * q_batch + head * q_head + row * q_row, k + first, v + first,
                 o + batch * o_batch + head * o_head + row * o_row, k_row, seen, dim, scale);
  if (threadIdx.x % WARP == 0) lse[number] = log_sum;
}
