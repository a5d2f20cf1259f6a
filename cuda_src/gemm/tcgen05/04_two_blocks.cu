// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_100a.
//
// stage 4, two blocks: a cluster of two blocks computes tiles of 256 rows, by products of cta_group::2. each block
// loads its 128 rows of A and half of the columns of B, and has the sums of its rows in its own tensor memory. the
// first block starts the products of both. copies of both report to its mbarriers, and a commit to those of both.
//
// what it gains: a block loads half of B, and its shared memory is read less: the tensor cores of both read each
// half of B once. the k-tiles are smaller, so more of them fit.
//
// what limits it: an odd number of rows of tiles leaves a block without work in every column. tiles are given
// out by their numbers, whoever is late.

#include "product.cuh"

constexpr int ACCUMULATORS = 2, BLOCKS = 2, PAIR_M = BLOCKS * BLOCK_M, SHARE_N = BLOCK_N / BLOCKS;
static_assert(ACCUMULATORS * BLOCK_N <= TENSOR_COLUMNS, "two accumulators have 512 columns: lower BLOCK_N to 256");

struct Shared {
  KTiles<BLOCK_M, SHARE_N> k_tiles[STAGES];
  LaneStaging<OUT, 2> c[TileWarps::EPILOGUE];
  Pipeline<STAGES, 1> ring;
  Pipeline<ACCUMULATORS, BLOCKS * TileWarps::EPILOGUE> done;  // the first block's takes accumulators back
  u32 sums;
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the k-tiles do not fit into shared memory: lower STAGES");

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(TileWarps::THREADS)
    gemm_two_blocks(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                    const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / 32, iterations = tiles<BLOCK_K>(K), rank = cluster_rank();
  const bool first_lane = threadIdx.x % 32 == 0;
  const int tiles_m = tiles<PAIR_M>(M), tiles_n = tiles<BLOCK_N>(N);
  const int first = blockIdx.x / BLOCKS, step = gridDim.x / BLOCKS;

  tensor_begin<ACCUMULATORS * BLOCK_N, BLOCKS>(shared.sums, shared.ring, shared.done);

  Place<STAGES> at;
  Place<ACCUMULATORS> to;
  if (warp == TileWarps::LOADS && first_lane) {
    for (int tile = first; tile < tiles_m * tiles_n; tile += step) {
      const Tile place = grouped_tile<GROUP_M>(tile, tiles_m, tiles_n);
      const int m = place.row * PAIR_M + rank * BLOCK_M, n = place.column * BLOCK_N + rank * SHARE_N;
      for (int i = 0; i < iterations; ++i, at.advance()) {
        shared.ring.acquire(at);
        auto& k_tile = shared.k_tiles[at.stage];
        Barrier& full = shared.ring.full[at.stage];
        if (rank == 0) mbarrier_arrive_expect(full, BLOCKS * sizeof(k_tile));
        k_tile.load_for(0, A, B, full, m, n, i * BLOCK_K);
      }
    }
  } else if (warp == TileWarps::MULTIPLIES && first_lane && rank == 0) {
    for (int tile = first; tile < tiles_m * tiles_n; tile += step, to.advance()) {
      shared.done.acquire(to);
      tensor_take_over();
      multiply_k_tiles<BLOCKS>(shared.k_tiles, shared.ring, at, iterations, shared.sums + to.stage * BLOCK_N,
                              shared.done.full[to.stage]);
    }
  } else if (warp < TileWarps::EPILOGUE) {
    for (int tile = first; tile < tiles_m * tiles_n; tile += step, to.advance()) {
      const Tile place = grouped_tile<GROUP_M>(tile, tiles_m, tiles_n);
      shared.done.wait(to);
      tensor_take_over();
      shared.c[warp].store<BLOCK_N>({C_boxes, C, M, N, ldc},
                                    shared.sums + (warp * 32 << 16) + to.stage * BLOCK_N,
                                    place.row * PAIR_M + rank * BLOCK_M + warp * 32, place.column * BLOCK_N);
      tensor_hand_over();
      __syncwarp();
      if (first_lane) mbarrier_arrive_at(shared.done.empty[to.stage], 0);
    }
    tma_store_wait_read<0>();
  }
  tensor_end<ACCUMULATORS * BLOCK_N, BLOCKS>(shared.sums);
  cluster_started();  // nor does it end before both have freed
}
