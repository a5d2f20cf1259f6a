// c[n] = sum_k a[k] B[n, k]. a: (K), B: (N, K), rows ldb elements apart, c: (N).
//
// stage 1, naive: one thread computes one element of c. the stage only has to be correct, because the other
// stages are compared with it.
//
// what limits it: the lanes of a warp walk along 32 different rows. so each load touches 32 lines, and uses 2
// or 4 bytes of each. besides, N threads are few for a whole device.

#include "tile/convert.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    matvec_naive(const IN* a, const IN* B, OUT* c, int N, int K, int ldb) {
  const int n = blockIdx.x * THREADS + threadIdx.x;
  if (n >= N) return;
  const IN* b = B + static_cast<long long>(n) * ldb;

  float sum = 0.f;
  for (int k = 0; k < K; ++k) sum += to_float(a[k]) * to_float(b[k]);
  c[n] = from_float<OUT>(sum);
}
