// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 9, fitted tiles: the width of a tile depends on the problem. a tile has 128 columns where tiles of
// 256 would leave the device idle, even with k split. with 128 columns, one and a half times as many k-tiles
// are in flight.
//
// with B_ONCE, B is the first to be evicted from the L2. it is not missed there where the blocks that need
// the same k-tile run at the same time. and what others have written need not be evicted to memory to make
// room for B.
//
// what it gains: where C is small, twice as many blocks are at work.
//
// what limits it: narrow tiles load more for the same work, so wide tiles are used where there are enough of
// them. at 1024 cubed a block has 8 k-tiles to multiply, hardly more than are in flight. filling the
// pipeline, exchanging sums and storing C take longer than the products.

#include "epilogue/cluster_sums.cuh"
#include "pipeline/load_compute_epilogue.cuh"
#include "product.cuh"

struct Gemm {
  using roles = Roles<BLOCK_M / WGMMA_M>;  // a consumer multiplies 64 rows of the tile
  using Sums = ClusterSums<SPLIT, BLOCK_N, WARPGROUP, roles::CONSUMER_THREADS>;
  static constexpr int PART = Sums::PART;  // columns that a block of the cluster stores
  // columns of C that a warp collects before it stores: rows of 64 or 128 bytes, as TMA stores them, or fewer
  using Columns = Staging<OUT, PART * sizeof(OUT) < ROW_BYTES ? PART : ROW_BYTES / sizeof(OUT)>;
  static constexpr int BUFFERS = PART > Columns::COLUMNS ? 2 : 1;
  using globals = Operands;
  using input_block = KTiles;
  struct shared_block {
    alignas(1024) OUT c[roles::CONSUMER_WARPS][BUFFERS][Columns::ELEMENTS];  // swizzled
  };
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block), sizeof(shared_block));
  using ring = Pipeline<PIPELINE_STAGES, roles::CONSUMER_WARPS>;
  struct work_tile {
    int iterations, m, n;  // where the tile starts
    int first;             // k-tile of this block's part
  };
  struct accumulators {
    float sum[BLOCK_N / 2];
    int first;  // row of the tile
  };

  static_assert(Sums::BYTES <= PIPELINE_STAGES * sizeof(input_block),
                "the others' sums do not fit into the buffer");

  // every so many-th tile, a part of its k
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    const int mine = (blockIdx.x + number * gridDim.x) / SPLIT;
    if (mine >= tiles_m(g) * tiles_n(g)) return false;
    const Tile place = grouped_tile<GROUP_M>(mine, tiles_m(g), tiles_n(g));
    const int all = k_tiles(g), rank = cluster_rank_of<SPLIT>(), first = all * rank / SPLIT;
    tile = {all * (rank + 1) / SPLIT - first, place.row * BLOCK_M, place.column * BLOCK_N, first};
    return true;
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    const int k = (tile.first + iteration) * BLOCK_K;
    tma_load(input.a, g.A, full, tile.m, k);
    const auto load = [&](IN* to, int row, int column) {
      if constexpr (B_ONCE)
        tma_load_once(to, g.B, full, row, column);
      else
        tma_load(to, g.B, full, row, column);
    };
    load_b(load, input.b, tile.n, k);
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    input_block* blocks;

    __device__ __forceinline__ void begin(const work_tile&, accumulators& sums) {
      sums.first = uniform(roles::consumer()) * WGMMA_M;
#pragma unroll
      for (float& x : sums.sum) x = 0.f;
    }

    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Consumed<ring>& consumed, int) {
      KTile<IN>::multiply<TRANS_B>(sums.sum, &input.a[sums.first * BLOCK_K], input.b);
      consumed.release_previous();
    }

    // a warp, 16 rows of the tile
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Consumed<ring>& consumed) {
      wgmma_wait<0>();
      consumed.release_last();
      auto& buffers = shared.c[roles::warp_of_all()];
      const int rank = cluster_rank_of<SPLIT>();
      if constexpr (SPLIT > 1) Sums::send(sums.sum, rank, blocks);
#pragma unroll
      for (int part = 0; part < SPLIT; ++part) {
        if (part != rank) continue;  // registers have no run-time index: all parts are written out
        float* sum = &sums.sum[part * PART / 2];
        if constexpr (SPLIT > 1) Sums::gather(sum, blocks);
#pragma unroll
        for (int n = 0; n < PART; n += Columns::COLUMNS)
          Columns::store<BUFFERS>(g.rows, buffers[n / Columns::COLUMNS % BUFFERS], &sum[n / 2],
                                  tile.m + roles::warp_of_all() * WARP_ROWS, tile.n + part * PART + n);
      }
    }

    __device__ __forceinline__ void finish() {}
  };
};

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(Gemm::roles::THREADS, 1)
    gemm_fitted_tiles(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                      const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  LoadComputeEpilogue<Gemm>::run({A, B, {C_boxes, C, M, N, ldc}, K}, memory);
}
