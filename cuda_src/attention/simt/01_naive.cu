// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), with any strides; lse: (batch, heads, rows).
//
// naive: the three steps of the definition, with one kernel for each. a thread computes one logit in the
// first kernel, one row in the second, and one element of o in the third. the logits of all pairs of a row
// and a key go through memory. so do their weights, which replace them at the same addresses.
//
// what limits it: memory. with s rows and s keys, the kernels move 20 s^2 bytes. for each product, the
// vectors of a pair are read from caches.

#include "tile/convert.cuh"
#include "tile/online_softmax.cuh"

// where a row is: of so many in all
struct Row {
  int batch, head, row;

  __device__ Row(long long number, int heads, int rows)
      : batch(number / rows / heads), head(number / rows % heads), row(number % rows) {}
};

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_logits(const IN* q, const IN* k, float* weights, long long q_batch, long long q_head,
                     long long q_row, long long k_batch, long long k_head, long long k_row, int heads, int group,
                     int rows, int keys, int dim, int batches, int causal, float scale) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= static_cast<long long>(batches) * heads * rows * keys) return;
  const Row at(i / keys, heads, rows);
  const int key = i % keys;
  if (causal && key > at.row + keys - rows) {
    weights[i] = -infinity();
    return;
  }
  q += at.batch * q_batch + at.head * q_head + at.row * q_row;
  k += at.batch * k_batch + at.head / group * k_head + key * k_row;
  float dot = 0.f;
  for (int c = 0; c < dim; ++c) dot += to_float(q[c]) * to_float(k[c]);
  weights[i] = dot * scale;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_softmax(float* weights, float* lse, long long rows, int keys) {
  const long long row = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (row >= rows) return;
  weights += row * keys;
  ExpSum::Value state = ExpSum::identity();
  for (int key = 0; key < keys; ++key) ExpSum::add(state, weights[key]);
  lse[row] = log_sum(state);
  const float base = ExpSum::base(state.max), factor = reciprocal_sum(state);
  for (int key = 0; key < keys; ++key) weights[key] = exp_of(weights[key] - base) * factor;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_averages(const float* weights, const IN* v, IN* o, long long v_batch, long long v_head,
                       long long v_row, long long o_batch, long long o_head, long long o_row, int heads,
                       int group, int rows, int keys, int dim, int batches) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= static_cast<long long>(batches) * heads * rows * dim) return;
  const Row at(i / dim, heads, rows);
  const int column = i % dim;
  weights += i / dim * keys;
  v += at.batch * v_batch + at.head / group * v_head + column;
  float sum = 0.f;
  for (int key = 0; key < keys; ++key) sum += weights[key] * to_float(v[key * v_row]);
  o[at.batch * o_batch + at.head * o_head + at.row * o_row + column] = from_float<IN>(sum);
}
