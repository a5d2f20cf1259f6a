#include "tile/softmax_row.cuh"

// of row t of x: maximum and sum by adding one element after the other, by combining two halves, and by
// vectors; the reciprocal and the logarithm of the sum. x: (threads, 8), y: (threads, 8)
extern "C" __global__ void states(const float* x, float* y) {
  const float* row = x + threadIdx.x * 8;
  ExpSum::Value added = ExpSum::identity(), half[2] = {ExpSum::identity(), ExpSum::identity()};
  for (int i = 0; i < 8; ++i) ExpSum::add(added, row[i]), ExpSum::add(half[i / 4], row[i]);
  const Vector<float, 4> v[2] = {load_vector<4>(row), load_vector<4>(row + 4)};
  const ExpSum::Value combined = ExpSum::combine(half[0], half[1]), together = exp_sum(v);
  float* to = y + threadIdx.x * 8;
  to[0] = added.max, to[1] = added.sum, to[2] = combined.max, to[3] = combined.sum;
  to[4] = together.max, to[5] = together.sum;
  to[6] = reciprocal_sum(together), to[7] = log_sum(together);
}

// what the exponentials of four logits are multiplied with in a row whose maximum is -300 and whose sum is 2.
// x: (threads, 4), y: (threads)
extern "C" __global__ void part(const float* x, float* y) {
  const Vector<float, 4> v[1] = {load_vector<4>(x + threadIdx.x * 4)};
  y[threadIdx.x] = HeldExps<1, 4>(v).scale({-300.f, 2.f});
}

// p = the probabilities of the four logits of each thread, which are 0 or -inf. x, p: (threads, 4)
extern "C" __global__ void chances(const float* x, float* p) {
  const Vector<float, 4> v[1] = {load_vector<4>(x + threadIdx.x * 4)};
  const HeldExps<1, 4> own(v);
  store_vector(p + threadIdx.x * 4, own.probabilities<float>(0, own.scale(own.state)));
}
