// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 10, multicast: two blocks one above the other need the same slices of B. as a cluster they load half
// of each and the copy engine delivers it to both; slices of A they load for themselves.
//
// every other tile of a block takes its slices of k backwards, and every other group of rows is walked from
// right to left: so what was read last is read next.
//
// a finished tile stays in registers, rounded, and leaves in parts while the next one is multiplied. of fp32
// there is no room for it: that leaves at once.
//
// what it gains: a third less is read from the L2, which at large sizes delivers all that it can, and less
// from memory: less waiting, and less power, which there decides the clock. tensor cores hardly pause between
// tiles.
//
// what limits it: shared memory of a block receives as much as before, and it takes two blocks to free a
// slot. where C has one row of tiles the second block of a cluster has nothing to do.

#include "pipeline/lcsf.cuh"
#include "tile/slices.cuh"
#include "epilogue/tiles.cuh"

constexpr int WARP = 32;
constexpr int PANEL = Slice<IN>::DEPTH;       // columns of B in one box where they lie along its rows
constexpr int WARP_ROWS = Staged<OUT>::ROWS;  // of C: a warp holds 16 rows of 64
constexpr int STAGED = Staged<OUT>::COLUMNS, STAGED_BUFFERS = 2;
constexpr int SHARING = 2,
              SHARE = BLOCK_N / SHARING;  // blocks of a cluster; the columns that each loads of B

static_assert(BLOCK_M % WGMMA_M == 0, "each consumer multiplies 64 rows: BLOCK_M has to be 128 or 192");
static_assert(BLOCK_N == 128 || BLOCK_N == 256, "BLOCK_N is the n of a wgmma: 128 or 256");
static_assert(BLOCK_K == Slice<IN>::DEPTH,
              "BLOCK_K has to be 64: a row of a slice is as wide as the swizzle");

struct Gemm {
  static constexpr int CONSUMERS = BLOCK_M / WGMMA_M;
  // a finished tile leaves while the next is multiplied where it fits into registers beside it
  using result_state = Kept<OUT, BLOCK_N>;
  static constexpr int LATER = result_state::PARTS;

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
    int steps, m, n;  // of k; where the tile starts
    SliceOrder order;
  };
  struct consumer_state {
    float sum[BLOCK_N / 2];
    int first;  // row of the tile
    bool add;   // there are sums already
  };

  // pairs of tiles, about GROUP_M rows of them walked together, column by column
  static __device__ __forceinline__ bool common_setup(const globals& g, common_state& common, int item) {
    constexpr int PAIR_M = SHARING * BLOCK_M;
    const int pairs_m = (g.M + PAIR_M - 1) / PAIR_M, tiles_n = (g.N + BLOCK_N - 1) / BLOCK_N;
    const int pair = (blockIdx.x + item * gridDim.x) / SHARING;
    if (pair >= pairs_m * tiles_n) return false;
    const Tile place = winding_tile<GROUP_M>(pair, pairs_m, tiles_n);
    common.m = place.row * PAIR_M + cluster_rank() * BLOCK_M;
    common.n = place.column * BLOCK_N;
    common.steps = (g.K + BLOCK_K - 1) / BLOCK_K;
    common.order = there_and_back(item, common.steps);
    return true;
  }

  struct producer {
    static __device__ __forceinline__ void load(const globals& g, const common_state& tile,
                                                input_block& input, Barrier& full, int step) {
      constexpr unsigned ALL = (1 << SHARING) - 1;
      const int k = tile.order.slice(step) * BLOCK_K, mine = cluster_rank() * SHARE;
      tma_load(input.a, g.A, full, tile.m, k);
      if constexpr (TRANS_B)
        tma_load_to(ALL, &input.b[mine * BLOCK_K], g.B, full, tile.n + mine, k);
      else
        for (int n = mine; n < mine + SHARE; n += PANEL)
          tma_load_to(ALL, &input.b[n * BLOCK_K], g.B, full, k, tile.n + n);
    }
  };

  struct consumer {
    static __device__ __forceinline__ void setup(const common_state&, consumer_state& state) {
      state.first = uniform(Lcsf<Gemm, SHARING>::warpgroup()) * WGMMA_M;
      state.add = false;
    }

    // a warpgroup, 64 rows of the tile
    static __device__ __forceinline__ void compute(const common_state&, consumer_state& state,
                                                   const input_block& input) {
      Slice<IN>::multiply<TRANS_B>(state.sum, &input.a[state.first * BLOCK_K], input.b, state.add);
      state.add = true;
    }

    static __device__ __forceinline__ void drain() { wgmma_wait<0>(); }

    static __device__ __forceinline__ bool keep(const globals&, const common_state& tile,
                                                const consumer_state& state, result_state& result) {
      result.keep(state.sum, tile.m + (threadIdx.x / WARP - WARPGROUP / WARP) * WARP_ROWS, tile.n);
      return true;
    }

    template <int PART>
    static __device__ __forceinline__ void leave(const globals& g, const result_state& result,
                                                 finish_block& staged) {
      result.store<PART>(g, staged.c[threadIdx.x / WARP % (WARPGROUP / WARP)]);
    }

    static __device__ __forceinline__ void finish(const globals& g, const common_state& tile,
                                                  consumer_state& state, finish_block& staged, input_block*) {
      const int warp = threadIdx.x / WARP - WARPGROUP / WARP, m = tile.m + warp * WARP_ROWS;
      auto& buffers = staged.c[warp % (WARPGROUP / WARP)];
#pragma unroll
      for (int n = 0; n < BLOCK_N; n += STAGED)
        Staged<OUT>::store<STAGED_BUFFERS>(g, buffers[n / STAGED % STAGED_BUFFERS], &state.sum[n / 2], m,
                                           tile.n + n);
    }
  };
};

extern "C" __global__ void __cluster_dims__(SHARING, 1, 1) __launch_bounds__(Lcsf<Gemm, SHARING>::THREADS, 1)
    gemm_multicast(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                   const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Lcsf<Gemm, SHARING>::run({A, B, C_boxes, C, M, N, K, ldc}, memory);
}
