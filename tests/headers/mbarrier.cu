#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"

constexpr int WARP = 32;

// y[p, lane] = 100 p + lane: warp 0 writes it to shared memory, warp 1 reads it there and gives the place
// back. y: (PHASES, 32)
extern "C" __global__ void handoff(u32* y) {
  __shared__ Barrier full, empty;
  __shared__ u32 place[WARP];
  const int lane = threadIdx.x % WARP;
  if (threadIdx.x == 0) {
    mbarrier_init(full, WARP);
    mbarrier_init(empty, WARP);
    mbarrier_init_fence();
  }
  __syncthreads();
  for (int phase = 0; phase < PHASES; ++phase)
    if (threadIdx.x < WARP) {
      mbarrier_wait(empty, phase % 2 ^ 1);
      place[lane] = 100 * phase + lane;
      mbarrier_arrive(full);
    } else {
      mbarrier_wait(full, phase % 2);
      y[phase * WARP + lane] = place[lane];
      mbarrier_arrive(empty);
    }
}

// y[block] = 1 + block, when every block of the cluster has arrived at this block's barrier. y: (BLOCKS)
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) arrive_everywhere(u32* y) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, BLOCKS);
    mbarrier_init_fence();
  }
  __syncthreads();
  cluster_started();
  if (threadIdx.x < BLOCKS) mbarrier_arrive_at(barrier, threadIdx.x);
  mbarrier_wait(barrier, 0);
  if (threadIdx.x == 0) y[blockIdx.x] = 1 + cluster_rank();
  cluster_sync();  // nobody has left
}
