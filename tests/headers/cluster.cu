// y[r] = x[r - 1], and ranks[r] = r: each block of a cluster stores into the next one. read[r] = x[r + 1], of
// each 16 bytes the first four: each reads from the next one what lies there. x, y: (BLOCKS, THREADS) of 16
// bytes, ranks: (BLOCKS), read: (BLOCKS, THREADS)
#include "ptx/cluster.cuh"

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1)
    push(const float4* x, float4* y, u32* ranks, float* read) {
  __shared__ float4 inbox[THREADS];
  __shared__ float own[THREADS];
  const int i = blockIdx.x * THREADS + threadIdx.x, rank = cluster_rank();
  own[threadIdx.x] = x[i].x;
  cluster_sync();  // the next has started
  cluster_store(&inbox[threadIdx.x], (rank + 1) % BLOCKS, x[i]);
  cluster_sync();  // all has come; nobody has left
  y[i] = inbox[threadIdx.x];
  read[i] = cluster_load(&own[threadIdx.x], (rank + 1) % BLOCKS);
  cluster_sync();  // nobody leaves while another one reads
  if (threadIdx.x == 0)
    ranks[blockIdx.x] = cluster_rank_of<BLOCKS>() + cluster_rank_of<1>();  // of one block: 0
}
