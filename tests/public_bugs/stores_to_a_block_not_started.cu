// A block stores into the shared memory of another that need not have started
//
// Blocks of a cluster are scheduled together, and still begin at different times. What the other block does to its
// own memory first comes after the store, too. A barrier of the cluster goes before the first remote access.
//
// report: https://github.com/facebookexperimental/triton/pull/2292
// kind: clusters
// finding: race
// launch: --grid 2 --block 32 --cluster 2 --include cuda_src/include --arg y:f32[64]
#include "ptx/cluster.cuh"
__global__ void exchange(float* y) {
  __shared__ alignas(16) float4 box[32];
  int t = threadIdx.x, rank = cluster_rank();
  box[t] = float4{-1, -1, -1, -1};  // HERE
#ifdef FIXED
  cluster_sync();
#endif
  cluster_store(box + t, rank ^ 1, float4{1.f * rank, 0, 0, 0});  // THERE
  cluster_sync();
  y[32 * rank + t] = box[t].x;
}
