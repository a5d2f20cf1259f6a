// a box of WORDS words, at the same place of tensors of RANK dimensions. image: (blocks, WORDS), as it lies in shared
// memory
#include "ptx/cluster.cuh"
#include "ptx/tma_ranks.cuh"

#if RANK == 1
#define AT at[0]
#elif RANK == 2
#define AT at[0], at[1]
#elif RANK == 3
#define AT at[0], at[1], at[2]
#elif RANK == 4
#define AT at[0], at[1], at[2], at[3]
#else
#define AT at[0], at[1], at[2], at[3], at[4]
#endif

// the box of `from` goes to `to`, and is added to `sum`. at: (RANK)
extern "C" __global__ void boxes(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to,
                                 const __grid_constant__ TensorMap sum, u32* image, const int* at) {
  __shared__ alignas(1024) u32 tile[WORDS];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(full, sizeof(tile));
    tma_prefetch(from, AT);
    tma_load(tile, from, full, AT);
  }
  __syncthreads();
  mbarrier_wait(full, 0);
  for (int i = threadIdx.x; i < WORDS; i += blockDim.x) image[i] = tile[i];
  if (threadIdx.x == 0) {
    tma_store(to, tile, AT);
    tma_add(sum, tile, AT);
    tma_store_commit();
    tma_store_wait_read<0>();
  }
}

// what boxes() adds to. sum: (threads)
extern "C" __global__ void ones(float* sum) { sum[threadIdx.x] = 1.f; }

#if RANK != 2
// blocks 0 and 2 of a cluster of three get the same box, asked for by block 1
extern "C" __global__ void __cluster_dims__(3, 1, 1)
    multicast(const __grid_constant__ TensorMap from, u32* image, const int* at) {
  __shared__ alignas(1024) u32 tile[WORDS];
  __shared__ Barrier full;
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    if (rank != 1) mbarrier_arrive_expect(full, sizeof(tile));
  }
  __syncthreads();
  cluster_started();
  if (rank == 1) {
    if (threadIdx.x == 0) tma_load_to(0b101, tile, from, full, AT);
  } else {
    mbarrier_wait(full, 0);
    for (int i = threadIdx.x; i < WORDS; i += blockDim.x) image[rank * WORDS + i] = tile[i];
  }
  cluster_sync();  // nobody has left
}
#endif
