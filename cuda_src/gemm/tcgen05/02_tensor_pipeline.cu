// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_100a.
//
// stage 2, TMA pipeline: the warps specialise. a thread of one warp asks TMA for k-tiles, ahead of time, into a
// circular buffer. a thread of another warp starts their products, and commits each to the mbarrier by which the
// buffer takes a k-tile back: the tensor cores themselves release it. four warps store the tile at the end.
//
// what it gains: loads and products overlap, and no thread waits for either where it has something to start.
//
// what limits it: a block computes one tile. the tensor cores idle while its first k-tiles come, and while the
// tile is stored.

#include "product.cuh"

using KTile = KTiles<BLOCK_M, BLOCK_N>;

struct Shared {
  KTile k_tiles[STAGES];
  LaneStaging<OUT, 2> c[TileWarps::EPILOGUE];
  Pipeline<STAGES, 1> ring;
  Barrier done;
  u32 sums;
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the k-tiles do not fit into shared memory: lower STAGES");

extern "C" __global__ void __launch_bounds__(TileWarps::THREADS)
    gemm_tensor_pipeline(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                         const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / 32, iterations = tiles<BLOCK_K>(K);
  const bool first_lane = threadIdx.x % 32 == 0;
  const Tile place = grouped_tile<GROUP_M>(blockIdx.x, tiles<BLOCK_M>(M), tiles<BLOCK_N>(N));
  const int m = place.row * BLOCK_M, n = place.column * BLOCK_N;

  if (warp == TileWarps::MULTIPLIES) tensor_allocate<BLOCK_N, 1>(shared.sums);
  if (threadIdx.x == 0) {
    shared.ring.init();
    mbarrier_init(shared.done, 1);
    mbarrier_init_fence();
  }
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();

  Place<STAGES> at;
  if (warp == TileWarps::LOADS && first_lane) {
    load_k_tiles(shared.k_tiles, shared.ring, at, iterations,
                 [&](KTile& k_tile, Barrier& full, int k) { k_tile.load(A, B, full, m, n, k); });
  } else if (warp == TileWarps::MULTIPLIES && first_lane) {
    multiply_k_tiles<1>(shared.k_tiles, shared.ring, at, iterations, shared.sums, shared.done);
  } else if (warp < TileWarps::EPILOGUE) {
    mbarrier_wait(shared.done, 0);
    tensor_take_over();
    shared.c[warp].store<BLOCK_N>({C_boxes, C, M, N, ldc}, shared.sums + (warp * 32 << 16), m + warp * 32, n);
    tma_store_wait_read<0>();
  }
  tensor_end<BLOCK_N, 1>(shared.sums);
}
