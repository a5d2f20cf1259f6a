// products[t] = sum of x[s][t] x[s][THREADS - 1 - t] over the steps s. x: (steps, THREADS). cp.async brings a
// step ahead of time into one of two buffers, and the values to be multiplied are double-buffered in
// registers.
#include "ptx/cp_async.cuh"

struct alignas(16) Four {
  float x[4];
};

extern "C" __global__ void register_buffer(const float* x, float* products, int steps) {
  __shared__ alignas(16) float buffers[2][THREADS];
  const int t = threadIdx.x;
  const auto load = [&](int step) {
    if (step < steps && t < THREADS / 4) cp_async_16(&buffers[step % 2][4 * t], x + step * THREADS + 4 * t);
    cp_async_commit();
  };
  load(0);
  cp_async_wait<0>();
  __syncthreads();

  float left = buffers[0][t], right = buffers[0][THREADS - 1 - t], sum = 0;
  for (int step = 0; step < steps; ++step) {
    load(step + 1);
    sum += left * right;  // while the next step is on its way
    cp_async_wait<0>();
    __syncthreads();
    if (step + 1 < steps) left = buffers[(step + 1) % 2][t], right = buffers[(step + 1) % 2][THREADS - 1 - t];
  }
  products[t] = sum;
}
