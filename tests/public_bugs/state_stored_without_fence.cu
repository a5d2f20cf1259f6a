// A bulk store reads what threads have just stored, without a proxy fence
//
// __syncthreads() orders the threads. It does not make their stores visible to the async proxy, through which a bulk
// copy reads shared memory. Every thread that stored calls fence.proxy.async before the barrier.
//
// report: https://github.com/MoonshotAI/FlashKDA/pull/25
// kind: asynchronous copies
// finding: proxy_fence
// launch: --grid 1 --block 128 --include cuda_src/include --arg x:f32[128]=arange --arg y:f32[128]
#include "ptx/bulk.cuh"
#include "ptx/tma.cuh"
__global__ void store_state(const float* x, float* y) {
  __shared__ alignas(128) float state[128];
  int t = threadIdx.x;
  state[t] = 2 * x[t];  // THERE
#ifdef FIXED
  async_fence();
#endif
  __syncthreads();
  if (t == 0) {
    bulk_store(y, state, 512);  // HERE
    tma_store_commit();
    tma_store_wait<0>();
  }
}
