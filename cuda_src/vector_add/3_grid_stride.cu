// c[i] = a[i] + b[i]. a, b, c: (n).
//
// stage 3, grid stride: at most BLOCKS blocks are launched, and each thread strides through the vectors by
// the size of the grid.
//
// what it gains: the size of a launch is bounded, and a thread prepares once whatever it has to prepare. here
// there is nothing to prepare, so nothing is gained. up to BLOCKS blocks this is the same as stage 2. beyond
// them, the stride costs some 5 %, or up to 20 % where a thread has several vectors in flight. new blocks are
// cheap, and presumably keep reads and writes better mixed.
//
// what limits it: device memory.

#include "tile/convert.cuh"
#include "tile/vector.cuh"

constexpr int WIDTH = VECTOR_BYTES / sizeof(IN);

extern "C" __global__ void __launch_bounds__(THREADS)
    vector_add_grid_stride(const IN* __restrict__ a, const IN* __restrict__ b, IN* __restrict__ c,
                           long long n) {
  const long long stride = static_cast<long long>(gridDim.x) * THREADS * WIDTH;
  for (long long i = (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x) * WIDTH; i < n;
       i += stride) {
    const int valid = static_cast<int>(min(n - i, static_cast<long long>(WIDTH)));
    const auto x = load_tail<WIDTH>(a + i, valid, true);
    const auto y = load_tail<WIDTH>(b + i, valid, true);
    Vector<IN, WIDTH> sum;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum.x[j] = from_float<IN>(to_float(x.x[j]) + to_float(y.x[j]));
    store_tail(c + i, sum, valid, true);
  }
}
