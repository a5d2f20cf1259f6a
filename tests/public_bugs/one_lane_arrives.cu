// 32 lanes store, and one of them arrives
//
// An arrival releases what its own thread has done. What the other lanes of the warp have stored is released only
// where a __syncwarp() comes between. The proxy fence does not order threads.
//
// report: https://github.com/NVIDIA/cudnn-frontend/pull/426
// kind: mbarriers
// finding: race_lockstep
// launch: --grid 1 --block 64 --include cuda_src/include --arg x:f32[32]=arange --arg y:f32[32]
#include "ptx/mbarrier.cuh"
__global__ void weights(const float* x, float* y) {
  __shared__ float w[32];
  __shared__ Barrier full;
  int t = threadIdx.x;
  if (t == 0) mbarrier_init(full, 1);
  if (t == 0) mbarrier_init_fence();
  __syncthreads();
  if (t < 32) {
    w[t] = x[t];  // THERE
#ifdef FIXED
    __syncwarp();
#endif
    if (t == 0) mbarrier_arrive(full);
  } else {
    mbarrier_wait(full, 0);
    y[t - 32] = w[t - 32];  // HERE
  }
}
