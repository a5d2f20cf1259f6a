// c[i] = a[i] + b[i]. a, b, c: (n).
//
// stage 2, vectorized: one thread adds 16 bytes: 4 elements of fp32, or 8 of bf16 or fp16. the last thread
// takes what is left.
//
// what it gains: the same number of threads has four or eight times the bytes in flight.
//
// what limits it: device memory.

#include "tile/convert.cuh"
#include "tile/vector.cuh"

constexpr int WIDTH = VECTOR_BYTES / sizeof(IN);

extern "C" __global__ void __launch_bounds__(THREADS)
    vector_add_vectorized(const IN* __restrict__ a, const IN* __restrict__ b, IN* __restrict__ c,
                          long long n) {
  const long long i = (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
  if (i >= n) return;
  const int valid = static_cast<int>(min(n - i, static_cast<long long>(WIDTH)));
  const auto x = load_tail<WIDTH>(a + i, valid, true);
  const auto y = load_tail<WIDTH>(b + i, valid, true);
  Vector<IN, WIDTH> sum;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) sum.x[j] = from_float<IN>(to_float(x.x[j]) + to_float(y.x[j]));
  store_tail(c + i, sum, valid, true);
}
