// a box of ROWS rows of 128 bytes. `image` is how it lies in shared memory, in 32-bit words.
#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"

constexpr int WORDS = ROWS * 32;

// the box at (row, column) of `from`; with all signs changed it is stored at (to_row, to_column) of `to`
template <class Load>
__device__ __forceinline__ void through(Load load, const TensorMap& to, u32* image, int to_row,
                                        int to_column) {
  __shared__ alignas(1024) u32 tile[WORDS];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    load(tile, full);
  }
  __syncthreads();
  mbarrier_wait(full, 0);
  for (int i = threadIdx.x; i < WORDS; i += blockDim.x) {
    image[i] = tile[i];
    tile[i] ^= 0x80008000u;
  }
  async_fence();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma_store(to, tile, to_row, to_column);
    tma_store_commit();
    tma_store_wait_read<0>();
  }
}

extern "C" __global__ void boxes(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to,
                                 u32* image, int row, int column, int to_row, int to_column) {
  const auto load = [&](u32(&tile)[WORDS], Barrier& full) {
    mbarrier_arrive_expect(full, sizeof(tile));
    tma_prefetch_map(from);
    tma_load(tile, from, full, row, column);
  };
  through(load, to, image, to_row, to_column);
}

extern "C" __global__ void boxes_once(const __grid_constant__ TensorMap from,
                                      const __grid_constant__ TensorMap to, u32* image, int row, int column,
                                      int to_row, int to_column) {
  const auto load = [&](u32(&tile)[WORDS], Barrier& full) {
    mbarrier_arrive_expect(full, sizeof(tile));
    tma_prefetch(from, row, column);
    tma_load_once(tile, from, full, row, column);
  };
  through(load, to, image, to_row, to_column);
}

// the arrival comes after the copy has been asked for
extern "C" __global__ void boxes_announced(const __grid_constant__ TensorMap from,
                                           const __grid_constant__ TensorMap to, u32* image, int row,
                                           int column, int to_row, int to_column) {
  const auto load = [&](u32(&tile)[WORDS], Barrier& full) {
    mbarrier_expect(full, sizeof(tile));
    tma_load(tile, from, full, row, column);
    mbarrier_arrive(full);
  };
  through(load, to, image, to_row, to_column);
}

// blocks 0 and 2 of a cluster of three get the same box, asked for by block 1. image: (3, WORDS)
extern "C" __global__ void __cluster_dims__(3, 1, 1)
    multicast(const __grid_constant__ TensorMap from, u32* image, int row, int column) {
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
    if (threadIdx.x == 0) tma_load_to(0b101, tile, from, full, row, column);
  } else {
    mbarrier_wait(full, 0);
    for (int i = threadIdx.x; i < WORDS; i += blockDim.x) image[rank * WORDS + i] = tile[i];
  }
  cluster_sync();  // nobody has left
}
