// c[n] = sum_k a[k] B[n, k]. a: (K), B: (N, K), rows ldb elements apart, c: (N).
//
// stage 5, streamed: SHARE warps of a block share a row. they read it stretch by stretch, and add up their
// sums in shared memory. so a block reads contiguous memory, and one launch is enough. RESIDENT is as in
// stage 3, because the number of bytes in flight has an optimum. with READ_ONCE, B is evicted first from the
// L2, because nothing reads it twice.
//
// what it gains: longer runs in each page of the memory, and no second kernel. a small B, read with
// READ_ONCE, does not force data that others have written from the L2 to memory. a large B forces them out in
// any case. with READ_ONCE, this would happen little by little between the reads of B, which costs more than
// all at once.
//
// what limits it: device memory.

#include "tile/dot.cuh"

constexpr int WARPS = THREADS / WARP, ROWS = WARPS / SHARE;

static_assert(THREADS % (WARP * SHARE) == 0, "THREADS has to be a multiple of 32 SHARE: rows are not split");

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    matvec_streamed(const IN* __restrict__ a, const IN* __restrict__ B, OUT* __restrict__ c, int N, int K,
                    int ldb) {
  __shared__ float sums[WARPS];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int n = blockIdx.x * ROWS + warp / SHARE;
  // without a row of its own a warp reads the last one: nobody may miss the barrier
  const IN* row = B + static_cast<long long>(min(n, N - 1)) * ldb;

  const bool aligned = ldb * sizeof(IN) % VECTOR_BYTES == 0;
  float sum = warp_dot<UNROLL, READ_ONCE>(a, row, K, aligned, lane, warp % SHARE, SHARE);
  if constexpr (SHARE > 1) {
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    if (warp % SHARE != 0) return;
#pragma unroll
    for (int w = 1; w < SHARE; ++w) sum += sums[warp + w];
  }
  if (lane == 0 && n < N) c[n] = from_float<OUT>(sum);
}
