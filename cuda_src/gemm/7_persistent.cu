// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 7, persistent: as many blocks as fit on the device stay there and take one tile of C after the other.
// while the consumers store a tile, the producer already fills the ring for the next one, and the copy engine
// does the storing, too. what is not GEMM in that lives in lcsf.cuh: here are load, compute and finish.
//
// what it gains: no tile but the first waits for its first slice, and the tensor cores wait for a copy into
// shared memory where they waited for stores. most where K is short.
//
// what limits it: tensor cores still idle while accumulators are written to shared memory, and products of
// few tiles keep only few blocks busy.

#include "tile/convert.cuh"
#include "pipeline/lcsf.cuh"
#include "tile/slices.cuh"
#include "tile/vector.cuh"

constexpr int WARP = 32;
constexpr int PANEL = Slice<IN>::DEPTH;  // columns of B in one box where they lie along its rows
constexpr int WARP_ROWS = 16;            // of C: a warp holds 16 rows of 64
constexpr int STAGED = ROW_BYTES / sizeof(OUT), CHUNK = VECTOR_BYTES / sizeof(OUT);
constexpr int STAGED_CHUNKS = STAGED / CHUNK, STAGED_BUFFERS = 2;

static_assert(BLOCK_M % WGMMA_M == 0, "each consumer multiplies 64 rows: BLOCK_M has to be 128 or 192");
static_assert(BLOCK_N == 128 || BLOCK_N == 256, "BLOCK_N is the n of a wgmma: 128 or 256");
static_assert(BLOCK_K == Slice<IN>::DEPTH,
              "BLOCK_K has to be 64: a row of a slice is as wide as the swizzle");

struct Gemm {
  static constexpr int CONSUMERS = BLOCK_M / WGMMA_M;

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
    OUT c[WARPGROUP / WARP][STAGED_BUFFERS][WARP_ROWS * STAGED];
  };
  struct common_state {
    int steps, m, n;  // of k; where the tile starts
  };
  struct consumer_state {
    float sum[BLOCK_N / 2];
    int first;  // row of the tile
  };

  // GROUP_M rows of tiles are walked together, column by column
  static __device__ __forceinline__ bool common_setup(const globals& g, common_state& common, int item) {
    const int tiles_m = (g.M + BLOCK_M - 1) / BLOCK_M, tiles_n = (g.N + BLOCK_N - 1) / BLOCK_N;
    const int tile = blockIdx.x + item * gridDim.x;
    if (tile >= tiles_m * tiles_n) return false;
    const int group = tile / (GROUP_M * tiles_n), within = tile % (GROUP_M * tiles_n);
    const int height = min(GROUP_M, tiles_m - group * GROUP_M);
    common.m = (group * GROUP_M + within % height) * BLOCK_M;
    common.n = within / height * BLOCK_N;
    common.steps = (g.K + BLOCK_K - 1) / BLOCK_K;
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
                                                  consumer_state& state, finish_block& staged, input_block*) {
      const int warp = threadIdx.x / WARP - WARPGROUP / WARP, m = tile.m + warp * WARP_ROWS;
      auto& buffers = staged.c[warp % (WARPGROUP / WARP)];
#pragma unroll
      for (int n = 0; n < BLOCK_N; n += STAGED)
        store(g, buffers[n / STAGED % STAGED_BUFFERS], &state.sum[n / 2], m, tile.n + n);
    }

    // a warp, 16 rows and STAGED columns of C. accumulators lie in pairs; shared memory collects them, and
    // while the copy engine stores one buffer the other is written
    static __device__ __forceinline__ void store(const globals& g, OUT* staged, const float* sum, int m,
                                                 int n) {
      const int lane = threadIdx.x % WARP;
      const auto chunk = [&](int row, int chunk) {
        return staged + row * STAGED + (chunk ^ row % 8) * CHUNK;
      };
      tma_store_wait_read<STAGED_BUFFERS - 1>();
      __syncwarp();
#pragma unroll
      for (int i = 0; i < STAGED / 4; ++i) {  // pairs: 8 columns at a time, in rows lane / 4 and lane / 4 + 8
        const int row = lane / 4 + i % 2 * 8, column = i / 2 * 8 + lane % 4 * 2;
        const Vector<OUT, 2> v = {from_float<OUT>(sum[i * 2]), from_float<OUT>(sum[i * 2 + 1])};
        store_vector(chunk(row, column / CHUNK) + column % CHUNK, v);
      }
      async_fence();
      __syncwarp();
      if (g.ldc % CHUNK == 0 && g.N % CHUNK == 0) {
        if (lane == 0) {
          tma_store(g.C_boxes, staged, m, n);
          tma_store_commit();
        }
      } else {  // no tensor map has such rows, or the engine would store 16 bytes beyond N
#pragma unroll 1
        for (int i = lane; i < WARP_ROWS * STAGED_CHUNKS; i += WARP) {
          const int row = i / STAGED_CHUNKS, column = n + i % STAGED_CHUNKS * CHUNK;
          const auto v = load_vector<CHUNK>(chunk(row, i % STAGED_CHUNKS));
          if (m + row < g.M)
            store_tail(g.C + static_cast<long long>(m + row) * g.ldc + column, v, g.N - column,
                       g.ldc % CHUNK == 0);
        }
      }
    }
  };
};

extern "C" __global__ void __launch_bounds__(Lcsf<Gemm>::THREADS, 1)
    gemm_persistent(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                    const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Lcsf<Gemm>::run({A, B, C_boxes, C, M, N, K, ldc}, memory);
}
