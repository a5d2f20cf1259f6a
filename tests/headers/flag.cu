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

// y[t, l] = what the block with ticket t - 1 has posted, and that with t - 2 - l: a thousand times their
// tickets. y: (BLOCKS, 32); posted: (BLOCKS), and two counters behind them, zero before and after
extern "C" __global__ void posted(float* y, Posted* posted) {
  const int blocks = gridDim.x, lane = threadIdx.x;
  unsigned* const counters = reinterpret_cast<unsigned*>(posted + blocks);
  int ticket = 0;
  if (lane == 0) ticket = take_ticket(&counters[0], blocks);
  ticket = __shfl_sync(0xffffffffu, ticket, 0);
  if (lane == 0) post(&posted[ticket], 1000.f * ticket);
  const Posted* const from[2] = {ticket > 0 ? &posted[ticket - 1] : nullptr,
                                 ticket > lane + 1 ? &posted[ticket - 2 - lane] : nullptr};
  float found[2];
  await_posted(found, from);
  y[ticket * WARP + lane] = found[0] + found[1];
  const bool last = lane == 0 && count_to_last(&counters[1], blocks);
  if (!__any_sync(0xffffffffu, last)) return;
  for (int block = lane; block < blocks; block += WARP) posted[block] = 0;
}
