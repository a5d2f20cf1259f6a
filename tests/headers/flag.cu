// y[b] = x[b] + y[b - 1] backwards: a block waits for all threads of the one before. x, y: (BLOCKS, 32)
#include "ptx/flag.cuh"

constexpr int WARP = 32;

extern "C" __global__ void lower(int* flags) { flags[threadIdx.x] = 0; }

extern "C" __global__ void sums(const float* x, float* y, int* flags) {
  const int block = blockIdx.x, lane = threadIdx.x;
  float sum = x[block * WARP + lane];
  if (block > 0) {
    flag_wait(&flags[block - 1], WARP);
    sum += y[block * WARP - 1 - lane];
  }
  y[block * WARP + lane] = sum;
  flag_raise(&flags[block]);
}
