// TMA completes on an mbarrier whose initialisation it need not see
//
// mbarrier.init is an ordinary store, and a bulk copy reaches the mbarrier through the async proxy. Devices do what is
// meant; PTX asks for fence.mbarrier_init.
//
// report: https://github.com/MoonshotAI/FlashKDA/issues/24
// kind: mbarriers
// finding: mbarrier_init_fence
// launch: --grid 1 --block 32 --include cuda_src/include --arg x:f32[32]=arange --arg y:f32[32]
#include "ptx/bulk.cuh"
__global__ void copy(const float* x, float* y) {
  __shared__ alignas(128) float tile[32];
  __shared__ Barrier full;
  int t = threadIdx.x;
  if (t == 0) mbarrier_init(full, 1);  // THERE
#ifdef FIXED
  if (t == 0) mbarrier_init_fence();
#endif
  __syncthreads();
  if (t == 0) {
    mbarrier_arrive_expect(full, 128);
    bulk_load(tile, x, 128, full);  // HERE
  }
  mbarrier_wait(full, 0);
  y[t] = tile[t];
}
