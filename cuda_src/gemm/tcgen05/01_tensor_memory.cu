// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_100a.
//
// stage 1, tensor memory: a block computes one tile. one thread asks TMA for a k-tile of A and of B, starts the
// product of both, waits until it is complete, and goes on with the next. the sums lie in tensor memory. at the
// end each of four warps reads its 32 lanes, which are 32 rows of C.
//
// what it gains: a single thread keeps the tensor cores of a multiprocessor busy. 128 x 256 sums take no
// register, where wgmma needs 64 of each of 512 threads.
//
// what limits it: loads and products take turns, and nobody computes while the tile is stored. other blocks of
// the multiprocessor do, as far as tensor memory and shared memory let them be there.

#include "product.cuh"

extern "C" __global__ void __launch_bounds__(TENSOR_LANES)
    gemm_tensor_memory(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                       const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  struct Shared {
    KTiles<BLOCK_M, BLOCK_N> k_tile;
    LaneStaging<OUT, 1> c[TENSOR_LANES / 32];
    Barrier full, done;
    u32 sums;
  };
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / 32;
  const Tile place = grouped_tile<GROUP_M>(blockIdx.x, tiles<BLOCK_M>(M), tiles<BLOCK_N>(N));
  const int m = place.row * BLOCK_M, n = place.column * BLOCK_N;

  if (warp == 0) tensor_allocate<BLOCK_N, 1>(shared.sums);
  if (threadIdx.x == 0) {
    mbarrier_init(shared.full, 1);
    mbarrier_init(shared.done, 1);
    mbarrier_init_fence();
  }
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();

  if (threadIdx.x == 0)
    for (int i = 0; i < tiles<BLOCK_K>(K); ++i) {
      mbarrier_arrive_expect(shared.full, sizeof(shared.k_tile));
      shared.k_tile.load(A, B, shared.full, m, n, i * BLOCK_K);
      mbarrier_wait(shared.full, i % 2);
      shared.k_tile.multiply<1>(shared.sums, i > 0);
      tensor_commit(shared.done);
      mbarrier_wait(shared.done, i % 2);
    }
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();

  const u32 lanes = shared.sums + (warp * 32 << 16);
  shared.c[warp].store<BLOCK_N>({C_boxes, C, M, N, ldc}, lanes, m + warp * 32, n);
  tma_store_wait_read<0>();
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();
  if (warp == 0) tensor_free<BLOCK_N, 1>(shared.sums);
}
