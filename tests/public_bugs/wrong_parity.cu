// A wait for a phase that has completed long ago
//
// The copy of each round completes one phase of the mbarrier, so the parity changes with every round. Taken from the
// ring's index instead, it stays the same for two rounds; the wait of the second returns at once.
//
// report: https://github.com/tile-ai/tilelang/pull/3087
// kind: mbarriers
// finding: in_flight
// launch: --grid 1 --block 32 --include cuda_src/include --arg x:f32[128]=arange --arg y:f32[128]
#include "ptx/bulk.cuh"
__global__ void rounds(const float* x, float* y) {
  __shared__ alignas(128) float tile[2][32];
  __shared__ Barrier full;
  int t = threadIdx.x;
  if (t == 0) mbarrier_init(full, 1);
  if (t == 0) mbarrier_init_fence();
  __syncthreads();
  for (int k = 0; k < 4; ++k) {
    if (t == 0) {
      mbarrier_arrive_expect(full, 128);
      bulk_load(tile[k % 2], x + 32 * k, 128, full);  // THERE
    }
#ifdef FIXED
    mbarrier_wait(full, k % 2);
#else
    mbarrier_wait(full, k / 2 % 2);
#endif
    y[32 * k + t] = tile[k % 2][t];  // HERE
    __syncthreads();
  }
}
