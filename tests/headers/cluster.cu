// y[r] = x[r - 1], and ranks[r] = r: each block of a cluster stores into the next one. read[r] = x[r + 1]:
// each reads from the next one what lies there, of each 16 bytes the first four, twice, the last eight, and
// all. x, y: (BLOCKS, THREADS) of 16 bytes, ranks: (BLOCKS), read: (BLOCKS, THREADS, 8)
#include "ptx/cluster.cuh"

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1)
    push(const float4* x, float4* y, u32* ranks, float* read) {
  __shared__ float4 inbox[THREADS];
  __shared__ float4 own[THREADS];
  const int i = blockIdx.x * THREADS + threadIdx.x, rank = cluster_rank();
  own[threadIdx.x] = x[i];
  cluster_sync();  // the next has started
  cluster_store(&inbox[threadIdx.x], (rank + 1) % BLOCKS, x[i]);
  cluster_sync();  // all has come; nobody has left
  y[i] = inbox[threadIdx.x];
  const float* const theirs = &own[threadIdx.x].x;
  float one[1], two[2], four[4];
  read[8 * i] = cluster_load(theirs, (rank + 1) % BLOCKS);
  cluster_load(one, theirs, (rank + 1) % BLOCKS);
  cluster_load(two, theirs + 2, (rank + 1) % BLOCKS);
  cluster_load(four, theirs, (rank + 1) % BLOCKS);
  read[8 * i + 1] = one[0], read[8 * i + 2] = two[0], read[8 * i + 3] = two[1];
  for (int e = 0; e < 4; ++e) read[8 * i + 4 + e] = four[e];
  cluster_sync();  // nobody leaves while another one reads
  if (threadIdx.x == 0)
    ranks[blockIdx.x] = cluster_rank_of<BLOCKS>() + cluster_rank_of<1>();  // of one block: 0
}
