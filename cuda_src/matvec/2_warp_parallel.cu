// c[n] = sum_k a[k] B[n, k]. a: (K), B: (N, K), rows ldb elements apart, c: (N).
//
// stage 2, warp parallel: a warp computes one element of c. its lanes split k, so that a load reads 32
// neighbouring elements of the row. at the end, shuffles add up the sums of the lanes.
//
// what it gains: every line that is loaded is used completely, and 32 times as many threads have loads in
// flight.
//
// what limits it: a lane loads only 2 bytes at a time for bf16 and fp16, too few to keep the memory busy.
// fp32 has 4 bytes, and is already close to its limit.

#include "tile/convert.cuh"
#include "tile/warp.cuh"

static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    matvec_warp_parallel(const IN* a, const IN* B, OUT* c, int N, int K, int ldb) {
  const int lane = threadIdx.x % WARP;
  const int n = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (n >= N) return;
  const IN* b = B + static_cast<long long>(n) * ldb;

  float sum = 0.f;
  for (int k = lane; k < K; k += WARP) sum += to_float(a[k]) * to_float(b[k]);
  sum = warp_sum(sum);
  if (lane == 0) c[n] = from_float<OUT>(sum);
}
