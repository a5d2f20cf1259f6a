// C[m, n] = sum_k a_scale[m, k / BLOCK] A[m, k] b_scale[n, k / BLOCK] B[n, k]. A: (M, K), B: (N, K), of e4m3, or of
// e2m1 that are packed two a byte; C: (M, N), rows ldc elements apart. A and B come as tensor maps, so their rows are
// multiples of 16 bytes; so do the scales: tiles of 128 rows and 4 blocks, as cuBLAS has them. sm_100a.
//
// stage 4, TMA pipeline: the warps specialise, as in the stage of that name of gemm. a thread of one warp asks TMA for
// k-tiles and their scales, ahead of time, into a circular buffer. a thread of another warp has the scales copied, to
// columns that belong to the buffer's stage, and starts the products. the commit behind them releases the stage. four
// warps store the tile at the end.
//
// what it gains: loads, copies and products overlap, and no thread waits for one where it has another to start.
//
// what limits it: a block computes one tile. the tensor cores idle while its first k-tiles come, and while the tile is
// stored.

#include "k_tile.cuh"

struct Shared {
  ScaledKTile k_tiles[STAGES];
  LaneStaging<OUT, 2> c[TileWarps::EPILOGUE];
  Pipeline<STAGES, 1> ring;
  Barrier done;
  u32 sums;
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the k-tiles do not fit into shared memory: lower STAGES");
static_assert(BLOCK_N + STAGES * SCALE_COLUMNS <= TENSOR_COLUMNS, "scales have no room in tensor memory: lower STAGES");

extern "C" __global__ void __launch_bounds__(TileWarps::THREADS)
    gemm_block_scaled_tensor_pipeline(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                                      const __grid_constant__ TensorMap C_boxes,
                                      const __grid_constant__ TensorMap A_scales,
                                      const __grid_constant__ TensorMap B_scales, OUT* C, int M, int N, int K,
                                      int ldc) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / 32, iterations = tiles<ELEMENTS>(K);
  const bool first_lane = threadIdx.x % 32 == 0;
  const Tile place = grouped_tile<GROUP_M>(blockIdx.x, tiles<BLOCK_M>(M), tiles<BLOCK_N>(N));
  const int m = place.row * BLOCK_M, n = place.column * BLOCK_N;

  if (warp == TileWarps::MULTIPLIES) tensor_allocate<TENSOR_COLUMNS, 1>(shared.sums);
  if (threadIdx.x == 0) {
    shared.ring.init();
    mbarrier_init(shared.done, 1);
    mbarrier_init_fence();
  }
  tensor_meet<1>();

  Place<STAGES> at;
  if (warp == TileWarps::LOADS && first_lane) {
    for (int i = 0; i < iterations; ++i, at.advance()) {
      shared.ring.acquire(at);
      shared.k_tiles[at.stage].load(A, B, A_scales, B_scales, shared.ring.commit(at.stage, ScaledKTile::BYTES), m, n,
                                    i);
    }
  } else if (warp == TileWarps::MULTIPLIES && first_lane) {
    for (int i = 0; i < iterations; ++i, at.advance()) {
      shared.ring.wait(at);
      shared.k_tiles[at.stage].multiply(shared.sums, shared.sums + BLOCK_N + at.stage * SCALE_COLUMNS,
                                        K - i * ELEMENTS, i > 0);
      tensor_commit(shared.ring.empty[at.stage]);
    }
    tensor_commit(shared.done);
  } else if (warp < TileWarps::EPILOGUE) {
    mbarrier_wait(shared.done, 0);
    tensor_take_over();
    shared.c[warp].store<BLOCK_N>({C_boxes, C, M, N, ldc}, shared.sums + (warp * 32 << 16), m + warp * 32, n);
    tma_store_wait_read<0>();
  }
  tensor_end<TENSOR_COLUMNS, 1>(shared.sums);
}
