// y[0] = x[0], each thread what it has copied itself; y[1] = x[1] in reverse, what others have. x, y: (2,
// THREADS) of 16 bytes
#include "cp_async.cuh"

extern "C" __global__ void copies(const float4* x, float4* y) {
  __shared__ float4 tile[2][THREADS];
  const int t = threadIdx.x;
  for (int half = 0; half < 2; ++half) {
    cp_async_16(&tile[half][t], x + half * THREADS + t);
    cp_async_commit();
  }
  cp_async_wait<1>();
  y[t] = tile[0][t];
  cp_async_wait<0>();
  __syncthreads();
  y[THREADS + t] = tile[1][THREADS - 1 - t];
}
