// o[b, h, i] = sum_j softmax_j(scale q[b, h, i] . k[b, h, j]) v[b, h, j]; with causal, j <= i + keys - rows only.
// q, o: (batch, heads, rows, dim); k, v: (batch, heads, keys, dim), with strides for all but the last dimension.
//
// stage 1, naive: one block takes one row. its logits lie in shared memory: a thread computes every THREADS-th
// of them; all threads then find their maximum and their sum; and a thread adds up every THREADS-th element of
// the row's result.
//
// what limits it: each row reads all of k and v, a key from its own line in every lane, and nothing is shared
// between rows; no tensor core is used.

#include "tile/convert.cuh"  // to_float, from_float

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_naive(const IN* q, const IN* k, const IN* v, IN* o, long long q_batch, long long q_head,
                    long long q_row, long long k_batch, long long k_head, long long k_row, int rows, int keys,
                    int dim, float scale, int causal) {
  extern __shared__ float logits[];  // keys
  __shared__ float partial[THREADS];
  const int row = blockIdx.x;
  const long long at = blockIdx.z * q_batch + blockIdx.y * q_head + row * q_row;
  const long long first = blockIdx.z * k_batch + blockIdx.y * k_head;
  q += at;
  o += at;
  k += first;
  v += first;
  const int seen = causal ? max(0, min(keys, row + 1 + keys - rows)) : keys;

  float top = -3.402823466e+38f;  // no logit is less
  for (int j = threadIdx.x; j < seen; j += THREADS) {
    float dot = 0.f;
    for (int c = 0; c < dim; ++c) dot += to_float(q[c]) * to_float(k[j * k_row + c]);
    logits[j] = dot * scale;
    top = fmaxf(top, logits[j]);
  }
  partial[threadIdx.x] = top;
  __syncthreads();
  for (int t = 0; t < THREADS; ++t) top = fmaxf(top, partial[t]);
  __syncthreads();  // all have read the maxima: sums come into their place

  float sum = 0.f;
  for (int j = threadIdx.x; j < seen; j += THREADS) {
    logits[j] = expf(logits[j] - top);
    sum += logits[j];
  }
  partial[threadIdx.x] = sum;
  __syncthreads();
  sum = 0.f;
  for (int t = 0; t < THREADS; ++t) sum += partial[t];

  for (int c = threadIdx.x; c < dim; c += THREADS) {
    float total = 0.f;
    for (int j = 0; j < seen; ++j) total += logits[j] * to_float(v[j * k_row + c]);
    o[c] = from_float<IN>(seen > 0 ? total / sum : 0.f);
  }
}
