// o = softmax(scale q k^T) v of packed sequences, and lse, the logarithm of the sum of a row's exponentials.
// q, o: (rows, heads, dim), k, v: (keys, heads / group, dim), with any strides; offsets_q, offsets_k: (batch
// + 1) int32, where sequences begin and end; lse: (heads, rows). dim up to 256.
//
// naive: a warp takes a row of a head. it searches for the sequence of the row, and then goes through its
// keys as in attention's `online`. the launch needs no lengths.
//
// what limits it: each row reads all keys and values from caches, and each of their elements takes an
// instruction.

#include "../../attention/simt/row.cuh"
#include "../sequences.cuh"

extern "C" __global__ void __launch_bounds__(WARPS* WARP, 2)
    attention_varlen_naive(const IN* q, const IN* k, const IN* v, const int* offsets_q, const int* offsets_k,
                           IN* o, float* lse, long long q_row, long long q_head, long long k_row,
                           long long k_head, long long o_row, long long o_head, int batch, int heads,
                           int group, int rows, int dim, int causal, float scale) {
  __shared__ float queries[WARPS][MOST_DIM];
  const int warp = threadIdx.x / WARP;
  const long long number = static_cast<long long>(blockIdx.x) * WARPS + warp;
  if (number >= static_cast<long long>(heads) * rows) return;
  const int head = number / rows, row = number % rows;  // of all sequences
  if (row >= offsets_q[batch]) return;
  const int mine = find_last(batch, row, [&](int i) { return offsets_q[i]; });
  const Sequence sequence(offsets_q, offsets_k, mine);
  const long long first = sequence.key_offset * k_row + head / group * k_head;
  const float log_sum = attend_row(queries[warp], q + row * q_row + head * q_head, k + first, v + first,
                                   o + row * o_row + head * o_head, k_row,
                                   sequence.seen(row - sequence.row_offset, causal), dim, scale);
  if (threadIdx.x % WARP == 0) lse[number] = log_sum;
}
