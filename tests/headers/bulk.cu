// COUNT and BLOCKS are given
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"

// y = x, through shared memory; sum += x, least = min(least, x), most = max(most, x). x, y, ...: (COUNT), x_float,
// sum_float: the same as numbers
extern "C" __global__ void copies(const int* x, const float* x_float, int* y, int* sum, int* least, int* most,
                                  float* sum_float) {
  __shared__ alignas(128) int run[COUNT];
  __shared__ alignas(128) float run_float[COUNT];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(full, sizeof(run) + sizeof(run_float));
    bulk_load(run, x, sizeof(run), full);
    bulk_load(run_float, x_float, sizeof(run_float), full);
  }
  __syncthreads();
  mbarrier_wait(full, 0);
  if (threadIdx.x == 0) {
    bulk_store(y, run, sizeof(run));
    bulk_add(sum, run, sizeof(run));
    bulk_min(least, run, sizeof(run));
    bulk_max(most, run, sizeof(run));
    bulk_add(sum_float, run_float, sizeof(run_float));
    tma_store_commit();
    tma_store_wait<0>();
    bulk_add(sum_float, run_float, sizeof(run_float));  // to what is there by now
    tma_store_commit();
    tma_store_wait_read<0>();
  }
}

// what copies() adds to. sum, least, most, sum_float: (COUNT)
extern "C" __global__ void set(int* sum, int* least, int* most, float* sum_float) {
  const int i = threadIdx.x;
  sum[i] = least[i] = most[i] = 3, sum_float[i] = 3.f;
}

// y: (BLOCKS, COUNT). block r gets x of the block before, and adds to it that of the block after
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) neighbours(const int* x, int* y) {
  __shared__ alignas(128) int own[COUNT], got[COUNT];
  __shared__ Barrier come, added;
  const int rank = cluster_rank(), after = (rank + 1) % BLOCKS, before = (rank + BLOCKS - 1) % BLOCKS;
  for (int i = threadIdx.x; i < COUNT; i += blockDim.x) own[i] = x[rank * COUNT + i];
  if (threadIdx.x == 0) {
    mbarrier_init(come, 1);
    mbarrier_init(added, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(come, sizeof(got));
    mbarrier_arrive_expect(added, sizeof(got));
  }
  async_fence();
  cluster_sync();
  if (threadIdx.x == 0) bulk_send(got, after, own, sizeof(own), come);
  mbarrier_wait(come, 0);
  cluster_sync();
  if (threadIdx.x == 0) bulk_add_at(got, before, own, sizeof(own), added);
  mbarrier_wait(added, 0);
  for (int i = threadIdx.x; i < COUNT; i += blockDim.x) y[rank * COUNT + i] = got[i];
  cluster_sync();  // nobody has left
}
