// BLOCKS is given. every thread writes to the block after its own: y[r] = x of the block before; words[r] = 100 r';
// counts[r] = 5 + the sum of all lanes of that block. x, y: (BLOCKS, 32, 4), words: (BLOCKS, 32), counts: (BLOCKS)
#include "ptx/cluster.cuh"
#include "ptx/st_async.cuh"

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) neighbours(const float4* x, float4* y, u32* words,
                                                                    u32* counts) {
  __shared__ float4 got[32];
  __shared__ u32 word[32], count;
  __shared__ Barrier full;
  const int rank = cluster_rank(), after = (rank + 1) % BLOCKS, lane = threadIdx.x;
  if (lane == 0) {
    count = 5;
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(full, 32 * (sizeof(float4) + 2 * sizeof(u32)));
  }
  cluster_sync();
  store_async(&got[lane], after, x[rank * 32 + lane], full);
  store_async(&word[lane], after, static_cast<u32>(100 * rank + lane), full);
  add_async(&count, after, static_cast<u32>(lane), full);
  mbarrier_wait(full, 0);
  y[rank * 32 + lane] = got[lane];
  words[rank * 32 + lane] = word[lane];
  if (lane == 0) counts[rank] = count;
  cluster_sync();  // nobody has left
}
