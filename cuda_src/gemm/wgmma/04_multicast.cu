// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 4, multicast: two blocks whose tiles lie one above the other need the same k-tiles of B. they form a
// cluster. each of them loads half of every k-tile of B, and TMA delivers it to both. each block loads its
// own k-tiles of A.
//
// what it gains: the blocks read a third less from the L2, which is at its limit for large sizes.
//
// what limits it: the shared memory of a block receives as much as before, and two blocks have to free a
// pipeline stage. an odd number of rows of tiles leaves a block without work in every column. where that
// costs a round, SHARING is 1, and no blocks form a cluster.

#include "pipeline/load_compute_epilogue.cuh"
#include "product.cuh"

using Columns = Staging<OUT>;  // of C that a warp collects before it stores
constexpr int BUFFERS = 2;
constexpr int PAIR_M = SHARING * BLOCK_M;  // rows of C that the blocks of a cluster compute at once

struct Gemm {
  using roles = Roles<BLOCK_M / WGMMA_M>;  // a consumer multiplies 64 rows of the tile
  using globals = Operands;
  using input_block = KTiles;
  struct shared_block {
    alignas(1024) OUT c[roles::CONSUMER_WARPS][BUFFERS][Columns::ELEMENTS];  // swizzled
  };
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block), sizeof(shared_block));
  using ring = Pipeline<PIPELINE_STAGES, roles::CONSUMER_WARPS, SHARING>;
  struct work_tile {
    int iterations, m, n;  // where the tile starts
  };
  struct accumulators {
    float sum[BLOCK_N / 2];
    int first;  // row of the tile
  };

  // every so many-th pair of tiles
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    const int mine = (blockIdx.x + number * gridDim.x) / SHARING;
    if (mine >= tiles_m<PAIR_M>(g) * tiles_n(g)) return false;
    const Tile place = grouped_tile<GROUP_M>(mine, tiles_m<PAIR_M>(g), tiles_n(g));
    tile = {k_tiles(g), place.row * PAIR_M + cluster_rank() * BLOCK_M, place.column * BLOCK_N};
    return true;
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    constexpr int SHARE = BLOCK_N / SHARING, ALL = (1 << SHARING) - 1;  // columns of B; blocks
    const int k = iteration * BLOCK_K;
    tma_load(input.a, g.A, full, tile.m, k);
    load_b([&](IN* to, int row, int column) { tma_load_to(ALL, to, g.B, full, row, column); }, input.b,
           tile.n, k, cluster_rank() * SHARE, SHARE);
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    input_block* blocks;

    __device__ __forceinline__ void begin(const work_tile&, accumulators& sums) {
      sums.first = uniform(roles::consumer()) * WGMMA_M;
    }

    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Consumed<ring>& consumed, int iteration) {
      KTile<IN>::multiply<TRANS_B>(sums.sum, &input.a[sums.first * BLOCK_K], input.b, iteration > 0);
      consumed.release_previous();
    }

    // a warp, 16 rows of the tile
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Consumed<ring>& consumed) {
      wgmma_wait<0>();
      consumed.release_last();
      auto& buffers = shared.c[roles::warp_of_all()];
#pragma unroll
      for (int n = 0; n < BLOCK_N; n += Columns::COLUMNS)
        Columns::store<BUFFERS>(g.rows, buffers[n / Columns::COLUMNS % BUFFERS], &sums.sum[n / 2],
                                tile.m + roles::warp_of_all() * WARP_ROWS, tile.n + n);
    }

    __device__ __forceinline__ void finish() {}
  };
};

extern "C" __global__ void __cluster_dims__(SHARING, 1, 1) __launch_bounds__(Gemm::roles::THREADS, 1)
    gemm_multicast(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                   const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  LoadComputeEpilogue<Gemm>::run({A, B, {C_boxes, C, M, N, ldc}, K}, memory);
}
