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

// total = sum over b of x[b], by the last block to leave its row in `rows`. x, rows: (BLOCKS, 32); counter:
// zero
extern "C" __global__ void last(const float* x, float* rows, float* total, unsigned* counter) {
  const int blocks = gridDim.x, lane = threadIdx.x;
  rows[blockIdx.x * WARP + lane] = x[blockIdx.x * WARP + lane];
  __syncwarp();
  const bool last = lane == 0 && count_to_last(counter, blocks);
  if (!__any_sync(0xffffffffu, last)) return;
  float sum = 0.f;
  for (int block = 0; block < blocks; ++block) sum += rows[block * WARP + lane];
  total[lane] = sum;
}
