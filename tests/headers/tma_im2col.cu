// pixels of images of RANK - 2 dimensions beside images and channels: WORDS words of them. image: (blocks, WORDS), as
// they lie in shared memory; at: (RANK), then (RANK - 2) offsets
#include "ptx/cluster.cuh"
#include "ptx/tma_im2col.cuh"

#if RANK == 3
#define AT at[0], at[1], at[2]
#define BY at[3]
#elif RANK == 4
#define AT at[0], at[1], at[2], at[3]
#define BY at[4], at[5]
#else
#define AT at[0], at[1], at[2], at[3], at[4]
#define BY at[5], at[6], at[7]
#endif

extern "C" __global__ void pixels(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to,
                                  u32* image, const int* at) {
  __shared__ alignas(1024) u32 tile[WORDS];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(full, sizeof(tile));
    tma_load_im2col(tile, from, full, AT, BY);
  }
  __syncthreads();
  mbarrier_wait(full, 0);
  for (int i = threadIdx.x; i < WORDS; i += blockDim.x) image[i] = tile[i];
  if (threadIdx.x == 0) {
    tma_store_im2col(to, tile, AT);
    tma_store_commit();
    tma_store_wait_read<0>();
  }
}

// block 0 of a cluster of two gets them, asked for by block 1
extern "C" __global__ void __cluster_dims__(2, 1, 1)
    multicast(const __grid_constant__ TensorMap from, u32* image, const int* at) {
  __shared__ alignas(1024) u32 tile[WORDS];
  __shared__ Barrier full;
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    if (rank == 0) mbarrier_arrive_expect(full, sizeof(tile));
  }
  __syncthreads();
  cluster_started();
  if (rank == 1) {
    if (threadIdx.x == 0) tma_load_im2col_to(0b01, tile, from, full, AT, BY);
  } else {
    mbarrier_wait(full, 0);
    for (int i = threadIdx.x; i < WORDS; i += blockDim.x) image[i] = tile[i];
  }
  cluster_sync();  // nobody has left
}
