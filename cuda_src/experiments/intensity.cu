// y[i] = factor x[i], as a sum of `terms` (which is factor) equal ones. x, y: (n), float.
//
// swept: the terms, each of them a fused multiply-add: how much is computed with what was loaded. `one` is 1,
// which the compiler does not know.

#include "tile/vector.cuh"

constexpr int WIDTH = VECTOR_BYTES / sizeof(float);

extern "C" __global__ void __launch_bounds__(THREADS)
    intensity(const float* __restrict__ x, float* __restrict__ y, long long n, int terms, float one) {
  const long long i = (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
  if (i >= n) return;
  const int valid = static_cast<int>(min(n - i, static_cast<long long>(WIDTH)));
  const auto term = load_tail<WIDTH>(x + i, valid, true);
  Vector<float, WIDTH> sum = {};
#pragma unroll 8
  for (int k = 0; k < terms; ++k)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum.x[j] = fmaf(term.x[j], one, sum.x[j]);
  store_tail(y + i, sum, valid, true);
}
