// y[0] = x[0], each thread what it has copied itself; y[1] = x[1] in reverse, what others have. x, y: (2,
// THREADS) of 16 bytes
#include "ptx/cp_async.cuh"

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

// copies of 1, 2 and 4 floats, of which thread t wants the first t % 2, t % 3 and t % 5: zeros follow, and
// -1 where nothing is copied; the first and the last once more past L1. x, y: (5, THREADS, 4)
extern "C" __global__ void parts(const float4* x, float4* y) {
  __shared__ float4 tile[5][THREADS];
  const int t = threadIdx.x;
  for (int b = 0; b < 5; ++b) tile[b][t] = make_float4(-1.f, -1.f, -1.f, -1.f);
  cp_async<4>(&tile[0][t], x + t, t % 2 * 4);
  cp_async<8>(&tile[1][t], x + THREADS + t, t % 3 * 4);
  cp_async<16>(&tile[2][t], x + 2 * THREADS + t, t % 5 * 4);
  cp_async_past_l1<4>(&tile[3][t], x + 3 * THREADS + t, t % 2 * 4);
  cp_async_past_l1<16>(&tile[4][t], x + 4 * THREADS + t, t % 5 * 4);
  cp_async_commit();
  cp_async_wait<0>();
  for (int b = 0; b < 5; ++b) y[b * THREADS + t] = tile[b][t];
}
