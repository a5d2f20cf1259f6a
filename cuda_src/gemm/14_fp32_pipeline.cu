// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart. fp32, sm_90a.
//
// stage 14, fp32 pipeline: the warp tiles of stage 12 on the template, whose warps specialise: four only
// copy, eight only multiply, each of them at its own pace.
//
// what it gains: the warps that multiply no longer count addresses, ask where the edges are, or wait for one
// another. and banks: neighbouring multiplications have an element of B in common, so two registers are read
// for each, of A and of C. those of A come from memory by fours, row by row from an even register on. C
// leaves in pairs of rows, the odd one first: so its even rows are in odd registers, and no two reads meet in
// a bank.
//
// what limits it: the fp32 units. of 100 instructions of the loop 95 multiply; written out for 32 of k they
// would be too many for the cache that holds them. a B along k costs its copies, 4 bytes each.

#include "lcsf.cuh"
#include "tiles.cuh"
#include "vector.cuh"

constexpr int WARP = 32, QUAD = 4;          // floats in 16 bytes
constexpr int LANES_M = 8, LANES_N = 4;     // how the threads of a warp lie over its tile
constexpr int THREAD_M = 8, THREAD_N = 16;  // of C, a thread
constexpr int QUADS_M = THREAD_M / QUAD, QUADS_N = THREAD_N / QUAD;
constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 32;
constexpr int PAD = 4;  // spreads the transposing copies over the banks, and keeps rows multiples of 16 bytes

// what a thread copies of a slice of ROWS rows along k, which become columns: every ROW_STEP-th row, of one k
template <int ROWS>
struct Transposing {
  static constexpr int LANES_K = 8, ROW_STEP = WARP / LANES_K;
  static_assert(BLOCK_K == WARPGROUP / WARP * LANES_K, "a warp copies 8 of k, four warps all of them");
  const float* from;
  long long step;
  int rows, depth, target;  // that there are; where the first goes

  __device__ __forceinline__ void setup(const float* matrix, int ld, int row0, int rows_there, int k_there) {
    const int lane = threadIdx.x % WARP, k = threadIdx.x / WARP * LANES_K + lane % LANES_K;
    const int row = row0 + lane / LANES_K;
    from = matrix + static_cast<long long>(row) * ld + k;
    step = static_cast<long long>(ROW_STEP) * ld;
    rows = rows_there - row, depth = k_there - k;
    target = k * (ROWS + PAD) + lane / LANES_K;
  }

  __device__ __forceinline__ void copy(float* tile, const float* matrix, int k0) const {
    const float* source = from + k0;
    if (rows > ROWS - ROW_STEP && k0 < depth) {
#pragma unroll 8
      for (int i = 0; i < ROWS; i += ROW_STEP, source += step) cp_async<4>(tile + target + i, source);
    } else {
#pragma unroll 1
      for (int i = 0; i < ROWS; i += ROW_STEP, source += step) {
        const bool inside = i < rows && k0 < depth;
        cp_async<4>(tile + target + i, inside ? source : matrix, inside ? sizeof(float) : 0);
      }
    }
  }
};

// the same where rows lie along n: quads of COLUMNS columns as they are
template <int COLUMNS>
struct Straight {
  static constexpr int ROW_QUADS = COLUMNS / QUAD, ROW_STEP = WARPGROUP / ROW_QUADS;
  const float* from;
  long long ld;
  int columns, depth, target;

  __device__ __forceinline__ void setup(const float* matrix, int ldb, int column0, int columns_there,
                                        int k_there) {
    const int column = threadIdx.x % ROW_QUADS * QUAD, k = threadIdx.x / ROW_QUADS;
    ld = ldb;
    from = matrix + k * ld + column0 + column;
    columns = min(max(columns_there - column0 - column, 0), QUAD), depth = k_there - k;
    target = k * (COLUMNS + PAD) + column;
  }

  __device__ __forceinline__ void copy(float* tile, const float* matrix, int k0) const {
    const float* source = from + k0 * ld;
    tile += target;
    if (ld % QUAD == 0 && columns == QUAD && k0 + BLOCK_K - ROW_STEP < depth) {
#pragma unroll 8
      for (int k = 0; k < BLOCK_K; k += ROW_STEP, source += ROW_STEP * ld)
        cp_async_16(tile + k * (COLUMNS + PAD), source);
    } else if (ld % QUAD == 0) {
#pragma unroll 1
      for (int k = 0; k < BLOCK_K; k += ROW_STEP, source += ROW_STEP * ld) {
        const int valid = k0 + k < depth ? columns : 0;
        cp_async<VECTOR_BYTES>(tile + k * (COLUMNS + PAD), valid > 0 ? source : matrix,
                               valid * sizeof(float));
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < BLOCK_K / ROW_STEP * QUAD; ++i) {
        const int k = i / QUAD * ROW_STEP, column = i % QUAD;
        const bool inside = k0 + k < depth && column < columns;
        cp_async<4>(tile + k * (COLUMNS + PAD) + column, inside ? source + k * ld + column : matrix,
                    inside ? sizeof(float) : 0);
      }
    }
  }
};

struct Gemm {
  static constexpr int CONSUMERS = 2, LOADERS = WARPGROUP, IN_FLIGHT = 0, WARPS_N = BLOCK_N / WARP_N;
  static_assert(BLOCK_M / WARP_M * WARPS_N * WARP == CONSUMERS * WARPGROUP, "warp tiles cover the tile");

  struct globals {
    const float *A, *B;
    float* C;
    int M, N, K, lda, ldb, ldc;
  };
  struct input_block {
    float a[BLOCK_K][BLOCK_M + PAD], b[BLOCK_K][BLOCK_N + PAD];
  };
  struct finish_block {                       // pairs of rows of C that a warp collects before it stores
    static constexpr int PITCH = WARP_N + 8;  // neighbours in other banks
    Vector<float, 2> c[WARPGROUP / WARP][LANES_M][PITCH];
  };
  struct common_state {
    int steps, m, n;
  };
  struct producer_state {
    Transposing<BLOCK_M> a;
#if TRANS_B
    Transposing<BLOCK_N> b;
#else
    Straight<BLOCK_N> b;
#endif
  };
  struct consumer_state {
    float sum[THREAD_M][THREAD_N];
    int m, n;  // where in the tile the thread begins
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
    return true;
  }

  struct producer {
    static __device__ __forceinline__ void setup(const globals& g, const common_state& tile,
                                                 producer_state& state) {
      state.a.setup(g.A, g.lda, tile.m, g.M, g.K);
      state.b.setup(g.B, g.ldb, tile.n, g.N, g.K);
    }

    static __device__ __forceinline__ void load(const globals& g, const common_state&,
                                                const producer_state& state, input_block& input, Barrier&,
                                                int step) {
      state.a.copy(input.a[0], g.A, step * BLOCK_K);
      state.b.copy(input.b[0], g.B, step * BLOCK_K);
    }
  };

  struct consumer {
    // a thread has QUADS_M x QUADS_N quads, far apart: so neighbours read neighbouring quads. lanes are
    // numbered 0 2 4 6 / 1 3 5 7 / 8 ...: whether they read A or B, quads that several want take two
    // wavefronts, not four
    static __device__ __forceinline__ int lane_m() { return threadIdx.x % WARP / 8 * 2 + threadIdx.x % 2; }
    static __device__ __forceinline__ int lane_n() { return threadIdx.x / 2 % LANES_N; }
    static __device__ __forceinline__ int warp() { return threadIdx.x / WARP - WARPGROUP / WARP; }

    static __device__ __forceinline__ void setup(const common_state&, consumer_state& state) {
      state.m = warp() / WARPS_N * WARP_M + lane_m() * QUAD;
      state.n = warp() % WARPS_N * WARP_N + lane_n() * QUAD;
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) state.sum[i][j] = 0.f;
    }

    static __device__ __forceinline__ void compute(const common_state&, consumer_state& state,
                                                   const input_block& input) {
#pragma unroll UNROLL
      for (int k = 0; k < BLOCK_K; ++k) {
        Vector<float, QUAD> a[QUADS_M], b[QUADS_N];
#pragma unroll
        for (int i = 0; i < QUADS_M; ++i) a[i] = load_vector<QUAD>(&input.a[k][state.m + i * LANES_M * QUAD]);
#pragma unroll
        for (int j = 0; j < QUADS_N; ++j) b[j] = load_vector<QUAD>(&input.b[k][state.n + j * LANES_N * QUAD]);
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j)
#pragma unroll
          for (int row = 0; row < THREAD_M; ++row) {  // down one column and up the next
            const int i = j % 2 ? THREAD_M - 1 - row : row;
            state.sum[i][j] += a[i / QUAD].x[i % QUAD] * b[j / QUAD].x[j % QUAD];
          }
      }
    }

    // a warp, two rows of each thread at a time
    static __device__ __forceinline__ void finish(const globals& g, const common_state& tile,
                                                  consumer_state& state, finish_block& staged, input_block*) {
      constexpr int ROW_QUADS = WARP_N / QUAD;
      auto& pairs = staged.c[warp() % (WARPGROUP / WARP)];
      const int m0 = tile.m + warp() / WARPS_N * WARP_M, n0 = tile.n + warp() % WARPS_N * WARP_N;
      const auto store = [&](int m, int n, const Vector<float, QUAD>& row) {
        if (m < g.M) store_tail(g.C + static_cast<long long>(m) * g.ldc + n, row, g.N - n, g.ldc % QUAD == 0);
      };
#pragma unroll
      for (int i = 0; i < THREAD_M; i += 2) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j)
          pairs[lane_m()][(j / QUAD * LANES_N + lane_n()) * QUAD + j % QUAD] = {state.sum[i + 1][j],
                                                                                state.sum[i][j]};
        __syncwarp();
#pragma unroll
        for (int quad = threadIdx.x % WARP; quad < LANES_M * ROW_QUADS; quad += WARP) {
          const int row = quad / ROW_QUADS, column = quad % ROW_QUADS * QUAD;
          const float* pair = pairs[row][column].x;
          const auto x = load_vector<QUAD>(pair), y = load_vector<QUAD>(pair + QUAD);
          const int m = m0 + (i / QUAD * LANES_M + row) * QUAD + i % QUAD, n = n0 + column;
          store(m, n, {x.x[1], x.x[3], y.x[1], y.x[3]});
          store(m + 1, n, {x.x[0], x.x[2], y.x[0], y.x[2]});
        }
      }
    }
  };
};

extern "C" __global__ void __launch_bounds__(Lcsf<Gemm>::THREADS, 1)
    gemm_fp32_pipeline(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M,
                       int N, int K, int lda, int ldb, int ldc) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Lcsf<Gemm>::run({A, B, C, M, N, K, lda, ldb, ldc}, memory);
}
