// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 9, fitted tiles: the width of a tile is chosen for the problem, 128 columns where tiles of 256 leave
// the device idle even with k split. the ring is then half as deep again.
//
// with B_ONCE, B is the first to leave the L2: where the blocks that need a slice run at the same time, it is
// not missed, and what others have written need not go to memory to make room for it.
//
// what it gains: twice the blocks at work where C is small.
//
// what limits it: narrow tiles fetch more for the same work, so wide ones stay where they suffice. at 1024
// cubed a block has 8 slices to multiply, hardly more than the pipeline is deep: filling it, handing sums
// over and storing C take longer than that.

#include "epilogue/cluster_sums.cuh"
#include "pipeline/lcsf.cuh"
#include "tile/slices.cuh"
#include "epilogue/tiles.cuh"

constexpr int WARP = 32;
constexpr int PANEL = Slice<IN>::DEPTH;       // columns of B in one box where they lie along its rows
constexpr int WARP_ROWS = Staged<OUT>::ROWS;  // of C: a warp holds 16 rows of 64
constexpr int STAGED = Staged<OUT>::COLUMNS, STAGED_BUFFERS = 2;

static_assert(BLOCK_M % WGMMA_M == 0, "each consumer multiplies 64 rows: BLOCK_M has to be 128 or 192");
static_assert(BLOCK_K == Slice<IN>::DEPTH,
              "BLOCK_K has to be 64: a row of a slice is as wide as the swizzle");

struct Gemm {
  static_assert(BLOCK_N == 128 || BLOCK_N == 256, "BLOCK_N is the n of a wgmma: 128 or 256");
  static constexpr int CONSUMERS = BLOCK_M / WGMMA_M;
  using Sums = ClusterSums<SPLIT, BLOCK_N, WARPGROUP, CONSUMERS * WARPGROUP>;
  static constexpr int PART = Sums::PART;  // columns a block of the cluster stores
  static_assert(PART % STAGED == 0, "a block has to store whole rows of staged columns: SPLIT is too large");

  struct globals {
    const TensorMap &A, &B, &C_boxes;
    OUT* C;
    int M, N, K, ldc;
  };
  struct input_block {
    IN a[BLOCK_M * BLOCK_K];  // rows of k
    IN b[BLOCK_N * BLOCK_K];  // rows of k, too. without TRANS_B: panels of 64 columns, in rows of n
  };
  struct finish_block {  // columns of C that a warp collects before it stores, swizzled
    OUT c[WARPGROUP / WARP][STAGED_BUFFERS][Staged<OUT>::ELEMENTS];
  };
  struct common_state {
    int steps, first, m, n;  // of k: how many, from which on; where the tile starts
  };
  struct consumer_state {
    float sum[BLOCK_N / 2];
    int first;  // row of the tile
  };

  // GROUP_M rows of tiles are walked together, column by column
  static __device__ __forceinline__ bool common_setup(const globals& g, common_state& common, int item) {
    const int tiles_m = (g.M + BLOCK_M - 1) / BLOCK_M, tiles_n = (g.N + BLOCK_N - 1) / BLOCK_N;
    const int tile = (blockIdx.x + item * gridDim.x) / SPLIT;
    if (tile >= tiles_m * tiles_n) return false;
    const Tile place = grouped_tile<GROUP_M>(tile, tiles_m, tiles_n);
    common.m = place.row * BLOCK_M;
    common.n = place.column * BLOCK_N;
    const int steps = (g.K + BLOCK_K - 1) / BLOCK_K, rank = SPLIT > 1 ? cluster_rank() : 0;
    common.first = steps * rank / SPLIT;
    common.steps = steps * (rank + 1) / SPLIT - common.first;
    return true;
  }

  struct producer {
    static __device__ __forceinline__ void load(const globals& g, const common_state& tile,
                                                input_block& input, Barrier& full, int step) {
      const int k = (tile.first + step) * BLOCK_K;
      const auto load_b = [&](IN* to, int row, int column) {
        if constexpr (B_ONCE)
          tma_load_once(to, g.B, full, row, column);
        else
          tma_load(to, g.B, full, row, column);
      };
      tma_load(input.a, g.A, full, tile.m, k);
      if constexpr (TRANS_B)
        load_b(input.b, tile.n, k);
      else
        for (int n = 0; n < BLOCK_N; n += PANEL) load_b(&input.b[n * BLOCK_K], k, tile.n + n);
    }
  };

  struct consumer {
    static __device__ __forceinline__ void setup(const common_state&, consumer_state& state) {
      state.first = uniform(Lcsf<Gemm>::warpgroup()) * WGMMA_M;
#pragma unroll
      for (float& x : state.sum) x = 0.f;
    }

    // a warpgroup, 64 rows of the tile
    static __device__ __forceinline__ void compute(const common_state&, consumer_state& state,
                                                   const input_block& input) {
      Slice<IN>::multiply<TRANS_B>(state.sum, &input.a[state.first * BLOCK_K], input.b);
    }

    static __device__ __forceinline__ void drain() { wgmma_wait<0>(); }

    static __device__ __forceinline__ void finish(const globals& g, const common_state& tile,
                                                  consumer_state& state, finish_block& staged,
                                                  input_block* ring) {
      const int warp = threadIdx.x / WARP - WARPGROUP / WARP, m = tile.m + warp * WARP_ROWS;
      const int rank = SPLIT > 1 ? cluster_rank() : 0;
      auto& buffers = staged.c[warp % (WARPGROUP / WARP)];
      static_assert(Sums::BYTES <= Lcsf<Gemm>::DEPTH * sizeof(input_block),
                    "the sums of the other blocks do not fit into the ring");
      if constexpr (SPLIT > 1) Sums::send(state.sum, rank, ring);
#pragma unroll
      for (int part = 0; part < SPLIT; ++part) {
        if (part != rank) continue;  // registers have no run-time index: all parts are written out
        float* sum = &state.sum[part * PART / 2];
        if constexpr (SPLIT > 1) Sums::gather(sum, ring);
#pragma unroll
        for (int n = 0; n < PART; n += STAGED)
          Staged<OUT>::store<STAGED_BUFFERS>(g, buffers[n / STAGED % STAGED_BUFFERS], &sum[n / 2], m,
                                             tile.n + part * PART + n);
      }
    }
  };
};

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(Lcsf<Gemm>::THREADS, 1)
    gemm_fitted_tiles(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                      const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Lcsf<Gemm>::run({A, B, C_boxes, C, M, N, K, ldc}, memory);
}
