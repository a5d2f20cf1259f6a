// y = x with halves exchanged: each block of a cluster of two stores its 4 THREADS elements into the other's
// shared memory, and that one stores them to y. x, y: (2, 4 THREADS)
#include "ptx/cluster.cuh"

extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_push(const float4* x, float4* y) {
  __shared__ float4 inbox[THREADS];
  const int i = blockIdx.x * THREADS + threadIdx.x, rank = cluster_rank();
  cluster_sync();  // the other has started
  cluster_store(&inbox[threadIdx.x], rank ^ 1, x[i]);
  cluster_sync();  // all has come; nobody has left
  y[i] = inbox[threadIdx.x];
}
