// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 8, split k: where tiles are too few for the device, SPLIT blocks, a cluster, share one. each
// multiplies its part of k; then each gathers the others' sums for its own columns, through distributed
// shared memory, and stores these. the memory it gathers in is the ring, which by then nobody needs.
//
// what it gains: up to SPLIT times the blocks at work, and as much memory bandwidth, where C is small. the
// order of summation is fixed, and no sum goes through global memory.
//
// what limits it: more than two blocks a cluster do not pay. an H200 holds 66 clusters of two, but only 30 of
// four: 32 tiles then take turns. with two, 32 tiles leave half of the device idle.

#include "epilogue/cluster_sums.cuh"
#include "pipeline/lcsf.cuh"
#include "tile/slices.cuh"
#include "epilogue/tiles.cuh"

constexpr int WARP = 32;
constexpr int PANEL = Slice<IN>::DEPTH;       // columns of B in one box where they lie along its rows
constexpr int WARP_ROWS = Staged<OUT>::ROWS;  // of C: a warp holds 16 rows of 64
constexpr int STAGED = Staged<OUT>::COLUMNS, STAGED_BUFFERS = 2;

static_assert(BLOCK_M % WGMMA_M == 0, "each consumer multiplies 64 rows: BLOCK_M has to be 128 or 192");
static_assert(BLOCK_N == 128 || BLOCK_N == 256, "BLOCK_N is the n of a wgmma: 128 or 256");
static_assert(BLOCK_K == Slice<IN>::DEPTH,
              "BLOCK_K has to be 64: a row of a slice is as wide as the swizzle");

struct Gemm {
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
      tma_load(input.a, g.A, full, tile.m, k);
      if constexpr (TRANS_B)
        tma_load(input.b, g.B, full, tile.n, k);
      else
        for (int n = 0; n < BLOCK_N; n += PANEL) tma_load(&input.b[n * BLOCK_K], g.B, full, k, tile.n + n);
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
    gemm_split_k(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                 const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Lcsf<Gemm>::run({A, B, C_boxes, C, M, N, K, ldc}, memory);
}
