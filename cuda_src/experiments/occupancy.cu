// y[i] = factor x[i]. x, y: (n), float.
//
// swept: BLOCKS, how many blocks a multiprocessor holds at once. each is launched with so much shared memory,
// which it does not use, that no more fit. what has to be in flight to keep the memory busy is bytes, not
// warps: a thread asks for LOADS times WIDTH elements before it uses the first.

#include "tile/vector.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    occupancy(const float* __restrict__ x, float* __restrict__ y, long long n, float factor) {
  const long long first = (static_cast<long long>(blockIdx.x) * LOADS * THREADS + threadIdx.x) * WIDTH;
  Vector<float, WIDTH> v[LOADS];
#pragma unroll
  for (int u = 0; u < LOADS; ++u) {
    const long long i = first + u * THREADS * WIDTH;
    if (i < n) v[u] = load_tail<WIDTH>(x + i, static_cast<int>(min(n - i, 1ll * WIDTH)), true);
  }
#pragma unroll
  for (int u = 0; u < LOADS; ++u) {
    const long long i = first + u * THREADS * WIDTH;
    if (i >= n) continue;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) v[u].x[j] *= factor;
    store_tail(y + i, v[u], static_cast<int>(min(n - i, 1ll * WIDTH)), true);
  }
}
