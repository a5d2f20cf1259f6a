// c[i] = a[i] + b[i]. a, b, c: (n).
//
// stage 1, naive: one thread adds one element. accesses are coalesced from the start.
//
// what limits it: a thread has 2 x 4 bytes in flight (2 x 2 for bf16 and fp16), too few to keep the memory
// busy.

#include "tile/convert.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    vector_add_naive(const IN* __restrict__ a, const IN* __restrict__ b, IN* __restrict__ c, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) c[i] = from_float<IN>(to_float(a[i]) + to_float(b[i]));
}
