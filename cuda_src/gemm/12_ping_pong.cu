// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 12, ping-pong: a consumer has a tile of 128 columns to itself, all of its 128 rows, and the two take
// turns: while one writes its sums to C the other multiplies. it does so with pauses, as there is time: all
// blocks together would push more out of the L2 than memory can take, and slices would have to wait.
//
// what it gains: tensor cores no longer wait for the end of a tile. most where K is short.
//
// what limits it: a tile of half the size needs a third more of the slices for the same work, and at large K
// the L2 cannot deliver them: there the wide tiles that two consumers share are faster.

#include "pipeline/lcsf.cuh"
#include "tile/slices.cuh"
#include "epilogue/tiles.cuh"

constexpr int WARP = 32;
constexpr int PANEL = Slice<IN>::DEPTH;       // columns of B in one box where they lie along its rows
constexpr int WARP_ROWS = Staged<OUT>::ROWS;  // of C: a warp holds 16 rows of 64
constexpr int STAGED = Staged<OUT>::COLUMNS, STAGED_BUFFERS = 2;
constexpr unsigned PAUSE = 8;  // between parts of a tile that leave, for each step of k: ns

static_assert(BLOCK_M % WGMMA_M == 0, "a wgmma multiplies 64 rows: BLOCK_M has to be 64 or 128");
static_assert(BLOCK_N == 128 || BLOCK_N == 256, "BLOCK_N is the n of a wgmma: 128 or 256");
static_assert(BLOCK_M * BLOCK_N <= 128 * 128,
              "a thread has registers for 128 sums: take 128 x 128 or 64 x 256");
static_assert(BLOCK_K == Slice<IN>::DEPTH,
              "BLOCK_K has to be 64: a row of a slice is as wide as the swizzle");

struct Gemm {
  static constexpr int CONSUMERS = 2, BANDS = BLOCK_M / WGMMA_M;  // bands of 64 rows of a tile

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
    bool last;        // there is no other to be multiplied meanwhile
  };
  struct consumer_state {
    float sum[BANDS][BLOCK_N / 2];
    bool add;  // there are sums already
  };

  // GROUP_M rows of tiles are walked together, column by column
  static __device__ __forceinline__ bool common_setup(const globals& g, common_state& common, int item) {
    const int tiles_m = (g.M + BLOCK_M - 1) / BLOCK_M, tiles_n = (g.N + BLOCK_N - 1) / BLOCK_N;
    const int tile = blockIdx.x + item * gridDim.x;
    if (tile >= tiles_m * tiles_n) return false;
    const Tile place = grouped_tile<GROUP_M>(tile, tiles_m, tiles_n);
    common.m = place.row * BLOCK_M;
    common.n = place.column * BLOCK_N;
    common.steps = (g.K + BLOCK_K - 1) / BLOCK_K;
    common.last = tile + gridDim.x >= tiles_m * tiles_n;
    return true;
  }

  struct producer {
    static __device__ __forceinline__ void load(const globals& g, const common_state& tile,
                                                input_block& input, Barrier& full, int step) {
      const int k = step * BLOCK_K;
      tma_load(input.a, g.A, full, tile.m, k);
      if constexpr (TRANS_B)
        tma_load(input.b, g.B, full, tile.n, k);
      else
        for (int n = 0; n < BLOCK_N; n += PANEL) tma_load(&input.b[n * BLOCK_K], g.B, full, k, tile.n + n);
    }
  };

  struct consumer {
    static __device__ __forceinline__ void setup(const common_state&, consumer_state& state) {
      state.add = false;
    }

    // a warpgroup, the whole tile
    static __device__ __forceinline__ void compute(const common_state&, consumer_state& state,
                                                   const input_block& input) {
      constexpr int A_STEP = WGMMA_K * sizeof(IN);  // bytes to the next 16 of k
      constexpr int B_STEP = TRANS_B ? A_STEP : WGMMA_K * ROW_BYTES;
      constexpr int PANEL_BYTES = BLOCK_K * ROW_BYTES;
      constexpr int BAND_BYTES = WGMMA_M * ROW_BYTES;
      const u64 a = swizzled_operand(shared_address(input.a), 0, ATOM_BYTES);
      const u64 b = swizzled_operand(shared_address(input.b), TRANS_B ? 0 : PANEL_BYTES, ATOM_BYTES);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < BLOCK_K / WGMMA_K; ++k)
#pragma unroll
        for (int band = 0; band < BANDS; ++band)
          wgmma<!TRANS_B>(state.sum[band], operand_at(a, band * BAND_BYTES + k * A_STEP),
                          operand_at(b, k * B_STEP), IN(), k > 0 || state.add);
      wgmma_commit();
      wgmma_wait<1>();
      state.add = true;
    }

    static __device__ __forceinline__ void drain() { wgmma_wait<0>(); }

    static __device__ __forceinline__ void finish(const globals& g, const common_state& tile,
                                                  consumer_state& state, finish_block& staged, input_block*) {
      const int warp = threadIdx.x / WARP % (WARPGROUP / WARP);
      auto& buffers = staged.c[warp];
#pragma unroll
      for (int band = 0; band < BANDS; ++band)
#pragma unroll
        for (int n = 0; n < BLOCK_N; n += STAGED) {
          if (band + n > 0 && !tile.last) __nanosleep(PAUSE * tile.steps);
          Staged<OUT>::store<STAGED_BUFFERS>(g, buffers[n / STAGED % STAGED_BUFFERS], &state.sum[band][n / 2],
                                             tile.m + band * WGMMA_M + warp * WARP_ROWS, tile.n + n);
        }
    }
  };
};

extern "C" __global__ void __launch_bounds__(Lcsf<Gemm, 1, true>::THREADS, 1)
    gemm_ping_pong(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                   const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Lcsf<Gemm, 1, true>::run({A, B, C_boxes, C, M, N, K, ldc}, memory);
}
