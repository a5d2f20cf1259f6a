// y[0] = x + 1 by warp 1, which waits for warp 0; y[1] = x + 2 by warp 0, which waits for warp 1. x: (32), y:
// (2, 32)
#include "ptx/named_barrier.cuh"

constexpr int WARP = 32, THERE = 1, TOO = 2, BACK = 3, BOTH = 2 * WARP;

extern "C" __global__ void turns(const float* x, float* y) {
  __shared__ float place[WARP];
  const int lane = threadIdx.x % WARP;
  if (threadIdx.x < WARP) {
    place[lane] = x[lane];
    named_arrive<BOTH>(THERE);  // does not wait: warp 1 comes to the other one first
    named_arrive<BOTH>(TOO);
    named_sync<BOTH>(BACK);
    y[WARP + lane] = place[lane] + 1;
  } else {
    named_sync<BOTH>(TOO);
    named_sync<BOTH>(THERE);
    const float next = place[WARP - 1 - lane] + 1;
    y[WARP - 1 - lane] = next;
    __syncwarp();
    place[WARP - 1 - lane] = next;
    named_arrive<BOTH>(BACK);
  }
}
