// c[n] = sum_k a[k] B[n, k]. a: (K), B: (N, K), rows ldb elements apart, c: (N).
//
// stage 3, vectorized: a lane loads vectors of 16 bytes. it loads UNROLL vectors of the row before it uses
// the first one. by itself, the compiler would load them one by one, to use fewer registers. the launch
// bounds tell it that more than RESIDENT threads per multiprocessor gain nothing. rows whose distance is not
// a multiple of 16 bytes are read element by element, as before.
//
// what it gains: a load reads 8 elements (4 of fp32), and enough bytes are in flight to cover the latency of
// the memory.
//
// what limits it: for many rows, device memory. if there are fewer rows than warps that the device can hold,
// a part of the device is idle.

#include "tile/dot.cuh"

static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    matvec_vectorized(const IN* __restrict__ a, const IN* __restrict__ B, OUT* __restrict__ c, int N, int K,
                      int ldb) {
  const int lane = threadIdx.x % WARP;
  const int n = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (n >= N) return;
  const IN* b = B + static_cast<long long>(n) * ldb;

  const float sum = warp_dot<UNROLL>(a, b, K, ldb * sizeof(IN) % VECTOR_BYTES == 0, lane);
  if (lane == 0) c[n] = from_float<OUT>(sum);
}
