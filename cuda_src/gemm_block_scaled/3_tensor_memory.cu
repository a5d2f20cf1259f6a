// C[m, n] = sum_k a_scale[m, k / BLOCK] A[m, k] b_scale[n, k / BLOCK] B[n, k]. A: (M, K), B: (N, K), of e4m3, or of
// e2m1 that are packed two a byte; C: (M, N), rows ldc elements apart. A and B come as tensor maps, so their rows are
// multiples of 16 bytes; so do the scales: tiles of 128 rows and 4 blocks, as cuBLAS has them. sm_100a.
//
// stage 3, tensor memory: a block computes one tile. one thread asks TMA for a k-tile and its scales. it has the scales
// copied to tensor memory, which has the layout of their tiles, and starts products, which scale each block before it is
// added. it waits until they are complete, and goes on. at the end four warps read the sums.
//
// what it gains: nobody decodes a number or multiplies by a scale, and 4 bits are read where others read 16.
//
// what limits it: loads and products take turns, and nobody computes while the tile is stored.

#include "k_tile.cuh"

extern "C" __global__ void __launch_bounds__(TENSOR_LANES)
    gemm_block_scaled_tensor_memory(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                                    const __grid_constant__ TensorMap C_boxes, const __grid_constant__ TensorMap A_scales,
                                    const __grid_constant__ TensorMap B_scales, OUT* C, int M, int N, int K, int ldc) {
  struct Shared {
    ScaledKTile k_tile;
    LaneStaging<OUT, 1> c[TENSOR_LANES / 32];
    Barrier full, done;
    u32 sums;
  };
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / 32;
  const Tile place = grouped_tile<GROUP_M>(blockIdx.x, tiles<BLOCK_M>(M), tiles<BLOCK_N>(N));
  const int m = place.row * BLOCK_M, n = place.column * BLOCK_N;

  if (warp == 0) tensor_allocate<TENSOR_COLUMNS, 1>(shared.sums);
  if (threadIdx.x == 0) {
    mbarrier_init(shared.full, 1);
    mbarrier_init(shared.done, 1);
    mbarrier_init_fence();
  }
  tensor_meet<1>();

  if (threadIdx.x == 0)
    for (int i = 0; i < tiles<ELEMENTS>(K); ++i) {
      mbarrier_arrive_expect(shared.full, ScaledKTile::BYTES);
      shared.k_tile.load(A, B, A_scales, B_scales, shared.full, m, n, i);
      mbarrier_wait(shared.full, i % 2);
      shared.k_tile.multiply(shared.sums, shared.sums + BLOCK_N, K - i * ELEMENTS, i > 0);
      tensor_commit(shared.done);
      mbarrier_wait(shared.done, i % 2);
    }
  tensor_meet<1>();

  shared.c[warp].store<BLOCK_N>({C_boxes, C, M, N, ldc}, shared.sums + (warp * 32 << 16), m + warp * 32, n);
  tma_store_wait_read<0>();
  tensor_meet<1>();
  if (warp == 0) tensor_free<TENSOR_COLUMNS, 1>(shared.sums);
}
