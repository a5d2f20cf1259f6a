// A mailbox is written again before all readers have copied it
//
// A scheduler tells other warps the next tile through shared memory and an mbarrier. Only one of these warps says that
// it has read it, and the others may still be about to. Every reader has to arrive.
//
// report: https://github.com/NVlabs/cuda-oxide/pull/1066
// kind: mbarriers
// finding: race
// launch: --grid 1 --block 128 --include cuda_src/include --arg y:i32[384]
#include "ptx/mbarrier.cuh"
__global__ void schedule(int* y) {
  __shared__ Barrier ready, taken;
  __shared__ int tile;
#ifdef FIXED
  const int readers = 96;
#else
  const int readers = 32;
#endif
  int t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(ready, 1);
    mbarrier_init(taken, readers);
    mbarrier_init_fence();
  }
  __syncthreads();
  for (int k = 0; k < 4; ++k) {
    if (t == 0) {
      mbarrier_wait(taken, k % 2 ^ 1);
      tile = 10 * k;  // HERE
      mbarrier_arrive(ready);
    } else if (t >= 32) {
      mbarrier_wait(ready, k % 2);
      y[96 * k + t - 32] = tile;  // THERE
      if (t < 32 + readers) mbarrier_arrive(taken);
    }
  }
}
