// gradients of o = softmax(scale q k^T) v: with p = exp(scale q k^T - lse) and ds = p (do v^T - rowsum(do
// o)), dq = scale ds k, dk = scale ds^T q, dv = p^T do. q, o, do, dq: (batch, heads, rows, dim), k, v, dk,
// dv: (batch, heads / group, keys, dim), with any strides; lse: (batch, heads, rows).
//
// naive: the steps of the definition, with one kernel for each. depending on the kernel, a thread takes one
// row, one pair of a row and a key, one element of dq, or one element of dk and of dv. p and ds of all pairs
// are stored in memory. for dk and dv, a thread adds up those of all rows and heads that share its key.
//
// what limits it: memory. p and ds are written once, and read once for every element of a vector. for each
// product, the vectors of a pair are read from caches.

#include "tile/convert.cuh"
#include "tile/online_softmax.cuh"

// where a row is: of so many in all
struct Row {
  int batch, head, row;

  __device__ Row(long long number, int heads, int rows)
      : batch(number / rows / heads), head(number / rows % heads), row(number % rows) {}
};

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_backward_rows(const IN* o, const IN* d_o, float* delta, long long o_batch, long long o_head,
                            long long o_row, int heads, int group, int rows, int keys, int dim, int batches) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= static_cast<long long>(batches) * heads * rows) return;
  const Row at(i, heads, rows);
  const long long first = at.batch * o_batch + at.head * o_head + at.row * o_row;
  float sum = 0.f;
  for (int c = 0; c < dim; ++c) sum += to_float(o[first + c]) * to_float(d_o[first + c]);
  delta[i] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_backward_scores(const IN* q, const IN* k, const IN* v, const float* lse, const IN* d_o,
                              const float* delta, float* weights, float* gradients, long long q_batch,
                              long long q_head, long long q_row, long long k_batch, long long k_head,
                              long long k_row, long long o_batch, long long o_head, long long o_row, int heads,
                              int group, int rows, int keys, int dim, int batches, int causal, float scale) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= static_cast<long long>(batches) * heads * rows * keys) return;
  const Row at(i / keys, heads, rows);
  const int key = i % keys;
  const float log_sum = lse[i / keys];
  if (log_sum == -infinity() || (causal && key > at.row + keys - rows)) {
    weights[i] = gradients[i] = 0.f;
    return;
  }
  q += at.batch * q_batch + at.head * q_head + at.row * q_row;
  k += at.batch * k_batch + at.head / group * k_head + key * k_row;
  v += at.batch * k_batch + at.head / group * k_head + key * k_row;
  d_o += at.batch * o_batch + at.head * o_head + at.row * o_row;
  float logit = 0.f, product = 0.f;
  for (int c = 0; c < dim; ++c) {
    logit += to_float(q[c]) * to_float(k[c]);
    product += to_float(d_o[c]) * to_float(v[c]);
  }
  const float weight = exp_of(logit * scale - log_sum);
  weights[i] = weight;
  gradients[i] = weight * (product - delta[i / keys]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_backward_queries(const IN* k, const float* gradients, IN* dq, long long k_batch, long long k_head,
                               long long k_row, long long q_batch, long long q_head, long long q_row, int heads,
                               int group, int rows, int keys, int dim, int batches, float scale) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= static_cast<long long>(batches) * heads * rows * dim) return;
  const Row at(i / dim, heads, rows);
  const int column = i % dim;
  gradients += i / dim * keys;
  k += at.batch * k_batch + at.head / group * k_head + column;
  float sum = 0.f;
  for (int key = 0; key < keys; ++key) sum += gradients[key] * to_float(k[key * k_row]);
  dq[at.batch * q_batch + at.head * q_head + at.row * q_row + column] = from_float<IN>(sum * scale);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_backward_keys(const IN* q, const IN* d_o, const float* weights, const float* gradients, IN* dk,
                            IN* dv, long long q_batch, long long q_head, long long q_row, long long o_batch,
                            long long o_head, long long o_row, long long k_batch, long long k_head,
                            long long k_row, int heads, int group, int rows, int keys, int dim, int batches,
                            float scale) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= static_cast<long long>(batches) * (heads / group) * keys * dim) return;
  const Row at(i / dim, heads / group, keys);  // of the keys
  const int column = i % dim;
  float key_sum = 0.f, value_sum = 0.f;
  for (int head = at.head * group; head < (at.head + 1) * group; ++head) {
    const long long of_head = (static_cast<long long>(at.batch) * heads + head) * rows * keys + at.row;
    const IN* const query = q + at.batch * q_batch + head * q_head + column;
    const IN* const gradient = d_o + at.batch * o_batch + head * o_head + column;
    for (int row = 0; row < rows; ++row) {
      const long long pair = of_head + static_cast<long long>(row) * keys;
      key_sum += gradients[pair] * to_float(query[row * q_row]);
      value_sum += weights[pair] * to_float(gradient[row * o_row]);
    }
  }
  const long long to = at.batch * k_batch + at.head * k_head + at.row * k_row + column;
  dk[to] = from_float<IN>(key_sum * scale);
  dv[to] = from_float<IN>(value_sum);
}
