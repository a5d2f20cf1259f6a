// The phase of a barrier lies in shared memory, and one thread flips it too early
//
// All warps read from one word which phase they wait for. The thread that has waited flips the word while another warp
// has yet to read it. That warp then waits for a phase that does not come.
//
// report: https://github.com/triton-lang/triton/pull/11334
// kind: mbarriers
// finding: race
// launch: --grid 1 --block 64 --include cuda_src/include --arg y:i32[64]
#include "ptx/mbarrier.cuh"
__global__ void meet(int* y) {
  __shared__ Barrier barrier;
  __shared__ int phase;
  int t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(barrier, 1);
    mbarrier_init_fence();
    phase = 0;
  }
  __syncthreads();
  for (int k = 0; k < 3; ++k) {
    int parity = phase;  // THERE
#ifdef FIXED
    __syncthreads();
#endif
    if (t == 0) mbarrier_arrive(barrier);
    mbarrier_wait(barrier, parity);
    if (t == 0) phase = parity ^ 1;  // HERE
    __syncthreads();
  }
  y[t] = t;
}
