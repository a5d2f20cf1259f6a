// A block ends while others of its cluster still read its shared memory
//
// Shared memory belongs to a block until it exits. Each block reads from its neighbour and leaves; the barrier at the
// end, which keeps it there until the neighbour has read, is missing.
//
// report: https://github.com/facebookexperimental/triton/pull/1105
// kind: clusters
// finding: exited_with_work
// launch: --grid 2 --block 32 --cluster 2 --include cuda_src/include --arg y:f32[64]
#include "ptx/cluster.cuh"
__global__ void gather(float* y) {
  __shared__ float own[32];
  int t = threadIdx.x, rank = cluster_rank();
  own[t] = 100 * rank + t;
  cluster_sync();
  y[32 * rank + t] = cluster_load(own + t, rank ^ 1);  // HERE
#ifdef FIXED
  cluster_sync();
#endif
}  // THERE
