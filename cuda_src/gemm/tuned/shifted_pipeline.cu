// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart. fp32, sm_90a.
//
// stage 15 of simt, shifted pipeline: rows may begin at any address, and no launch copies them first. the
// warps that transpose a k-tile also load it, by cp.async, 16 bytes at a time. they begin at the last
// multiple of 16 bytes before a row's part of the k-tile, and shift the row when they read it. a warp
// transposes only what its own lanes have copied, so that it waits for no other warp. a block computes one
// tile, and stores its sums through shared memory. where tiles are few, SPLIT blocks of a cluster and
// CLUSTERS clusters share one, as in fitted_pipeline, with the same partial and counters.
//
// what it gains: no launches that copy A and B, and no bytes that these would move. where products take long,
// copies cost little, and `fitted_pipeline` is faster.
//
// what limits it: the fp32 units. in shared memory, a row's part of a k-tile takes an eighth more room than
// its elements need.

#include "epilogue/parted_sums.cuh"
#include "pipeline/circular_buffer.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/wgmma.cuh"
#include "scheduler/tile_order.cuh"
#include "tile/vector.cuh"

constexpr int WARP = 32, QUAD = 4;       // floats in 16 bytes
constexpr int LANES_M = 8, LANES_N = 4;  // how the threads of a warp lie over its tile
constexpr int QUADS_M = THREAD_M / QUAD, QUADS_N = THREAD_N / QUAD;
constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int BLOCK_K = 32;
constexpr int CONSUMERS = WARPGROUP / WARP;  // warps that multiply, the first ones
constexpr int TURNERS = WARPGROUP / WARP;    // warps that load and turn
constexpr int THREADS = 2 * WARPGROUP, BLOCKS_PER_SM = 2;
constexpr int SHARED_BYTES = (228 / BLOCKS_PER_SM - 1) * 1024, ALIGNMENT = 1024;
constexpr int TURNER_REGISTERS = 88, CONSUMER_REGISTERS = 168;  // together as many as two threads start with
constexpr int COMING_K = BLOCK_K + QUAD;                        // of a row that begins anywhere

static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0 &&
                  BLOCK_M / WARP_M * (BLOCK_N / WARP_N) == CONSUMERS,
              "the tiles of four warps cover the tile");

// how many elements behind a multiple of 16 bytes a row begins, and each part of it that a k-tile or a tile
// has: they are multiples of 32 elements apart. rows that are multiples of four apart begin alike
__device__ __forceinline__ int behind(int row, int ld) { return row % QUAD * (ld % QUAD) % QUAD; }

// starts to copy four elements of a row, of which `valid` are left, 0 or less too: the others become zero
__device__ __forceinline__ void copy_quad(float* to, const float* from, const float* any, int valid) {
  valid = min(max(valid, 0), QUAD);
  cp_async_past_l1<VECTOR_BYTES>(to, valid > 0 ? from : any, valid * sizeof(float));
}

// rows of a matrix, k along them, that become columns. of 32 rows and four of k a thread has the rows r, r +
// 8, r + 16 and r + 24 and one k: they become neighbours
struct RowsAlongK {
  const float* data;
  int rows, depth, ld;

  // which row becomes this column
  static __device__ __forceinline__ int row(int column) {
    return column / WARP * WARP + column % WARP / QUAD + column % QUAD * (WARP / QUAD);
  }

  // by a warp: starts to copy 32 rows from `row0` on, a k-tile of each
  __device__ __forceinline__ void load(float* come, int row0, int k0) const {
    constexpr int STEP = WARP / 8;  // rows that the warp copies at once, eight lanes each
    const int lane = threadIdx.x % WARP, row = lane / 8, place = lane % 8 * QUAD - behind(row, ld);
    const float* from = data + static_cast<long long>(row0 + row) * ld + k0 + place;
    float* to = come + row * COMING_K + lane % 8 * QUAD;
    const long long step = static_cast<long long>(STEP) * ld;
#pragma unroll
    for (int i = 0; i < WARP; i += STEP, from += step)
      copy_quad(to + i * COMING_K, from, data, row0 + row + i < rows ? depth - k0 - place : 0);
    const int last = BLOCK_K - behind(lane, ld);  // a row a lane
    copy_quad(come + lane * COMING_K + BLOCK_K, data + static_cast<long long>(row0 + lane) * ld + k0 + last,
              data, row0 + lane < rows ? depth - k0 - last : 0);
  }

  // by the same warp, when they have come: writes them as columns, PITCH apart
  template <int PITCH>
  __device__ __forceinline__ void turn(const float* come, float* tile) const {
    constexpr int APART = WARP / QUAD * COMING_K;
    const int lane = threadIdx.x % WARP, r = lane / QUAD, k = lane % QUAD;
    const float* from = come + r * COMING_K + behind(r, ld) + k;
    float* to = tile + k * PITCH + r * QUAD;
#pragma unroll
    for (int i = 0; i < BLOCK_K; i += QUAD)
      store_vector<QUAD>(to + i * PITCH,
                         {from[i], from[i + APART], from[i + 2 * APART], from[i + 3 * APART]});
  }
};

// rows of a matrix, n along them, that stay rows
struct RowsAlongN {
  const float* data;
  int rows, columns, ld;
  static constexpr int COMING_N = BLOCK_N + QUAD;
  static __device__ __forceinline__ int row(int column) { return column; }

  // by a warp: starts to copy every TURNERS-th of the rows of a k-tile, its first one `first`. these begin
  // alike
  __device__ __forceinline__ void load(float* come, int first, int k0, int n0) const {
    const int lane = threadIdx.x % WARP, place = lane * QUAD - behind(first, ld);
    const float* from = data + static_cast<long long>(k0 + first) * ld + n0 + place;
    const long long step = static_cast<long long>(TURNERS) * ld;
#pragma unroll 4
    for (int k = first; k < BLOCK_K; k += TURNERS, from += step) {
      float* const to = come + k * COMING_N + lane * QUAD;
      const int left = k0 + k < rows ? columns - n0 - place : 0;
      if (lane <= BLOCK_N / QUAD) copy_quad(to, from, data, left);
      if (BLOCK_N / QUAD >= WARP && lane == 0) copy_quad(to + BLOCK_N, from + BLOCK_N, data, left - BLOCK_N);
    }
  }

  // by the same warp, when they have come: writes them where rows begin at multiples of 16 bytes
  __device__ __forceinline__ void turn(const float* come, float* tile, int first) const {
    const int column = threadIdx.x % WARP * QUAD;
    if (column >= BLOCK_N) return;
    const unsigned bytes = behind(first, ld) * sizeof(float);
#pragma unroll 4
    for (int k = first; k < BLOCK_K; k += TURNERS) {
      const float* from = come + k * COMING_N + column;
      store_vector(tile + k * BLOCK_N + column,
                   shifted(load_vector<QUAD>(from), load_vector<QUAD>(from + QUAD), bytes));
    }
  }
};

static_assert(CLUSTERS == 1 || SPLIT > 1, "only clusters leave sums in memory");
static_assert(TURNERS % QUAD == 0, "rows that a warp moves have to begin alike");

struct Gemm {
  static constexpr int WARPS_N = BLOCK_N / WARP_N;
  static constexpr int PITCH_A = BLOCK_M + 8;  // two rows and four columns, 16 bytes each, are in all banks
#if TRANS_B
  using RowsOfB = RowsAlongK;
  static constexpr int PITCH_B = BLOCK_N + 8, COMING_B = BLOCK_N * COMING_K;
#else
  using RowsOfB = RowsAlongN;
  static constexpr int PITCH_B = BLOCK_N, COMING_B = BLOCK_K * RowsOfB::COMING_N;
#endif
  using RowsOfA = RowsAlongK;
  struct globals {
    RowsOfA a;
    RowsOfB b;
    float *C, *partial;
    unsigned* counters;
    int M, N, K, ldc;
  };
  struct alignas(16) coming_block {
    float a[BLOCK_M * COMING_K], b[COMING_B];
  };
  struct alignas(16) input_block {
    float a[BLOCK_K * PITCH_A], b[BLOCK_K * PITCH_B];
  };
  // where neighbours along m and n are stored, sums are in other banks
  static constexpr int C_PITCH = BLOCK_N + (TRANS_B ? 4 : 16);
  struct work_tile {
    int iterations, m, n;
    int first;  // k-tile of this block's part
    int number, part;
  };
  struct accumulators {
    float sum[THREAD_M][THREAD_N];
    int m, n;  // where in the tile the thread begins
  };

  // two places for what is multiplied, and as many for what comes as fit beside them
  static constexpr int MEMORY = SHARED_BYTES - ALIGNMENT - 2 * static_cast<int>(sizeof(input_block));
  static constexpr int FIT = MEMORY / static_cast<int>(sizeof(coming_block));
  static constexpr int COMING = FIT > MOST_COMING ? MOST_COMING : FIT, PIPELINE_STAGES = 2;
  static_assert(COMING >= 2, "a k-tile has to come while another one is turned: make the tile smaller");
  using ring = Pipeline<PIPELINE_STAGES, CONSUMERS>;
  struct Shared {
    union {
      struct {
        input_block blocks[PIPELINE_STAGES];
        coming_block coming[COMING];
      };
      float sums[BLOCK_M * C_PITCH];
    };
    ring barriers;
    bool last;  // whether this block adds up what clusters have left in memory
  };
  static_assert(sizeof(Shared) <= SHARED_BYTES, "the buffers have too many stages");

  // GROUP_M rows of tiles are walked together, column by column
  static __device__ __forceinline__ work_tile schedule(const globals& g) {
    const int tiles_m = (g.M + BLOCK_M - 1) / BLOCK_M, tiles_n = (g.N + BLOCK_N - 1) / BLOCK_N;
    const int number = blockIdx.x / (SPLIT * CLUSTERS), part = blockIdx.x / SPLIT % CLUSTERS;
    const Tile place = grouped_tile<GROUP_M>(number, tiles_m, tiles_n);
    const int all = (g.K + BLOCK_K - 1) / BLOCK_K, own = part * SPLIT + cluster_rank_of<SPLIT>();
    const int first = all * own / (CLUSTERS * SPLIT), end = all * (own + 1) / (CLUSTERS * SPLIT);
    return {end - first, place.row * BLOCK_M, place.column * BLOCK_N, first, number, part};
  }

  // four warps. each has some blocks of 32 rows, of A and of a B with k along its rows
  struct turner {
    static constexpr int BLOCKS_A = BLOCK_M / WARP, BLOCKS_B = TRANS_B ? BLOCK_N / WARP : 0;
    static __device__ __forceinline__ int warp() { return threadIdx.x / WARP - CONSUMERS; }

    static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, coming_block& to,
                                                int iteration) {
      const int k = (tile.first + iteration) * BLOCK_K;
#if !TRANS_B
      g.b.load(to.b, warp(), k, tile.n);
#endif
#pragma unroll 1
      for (int block = warp(); block < BLOCKS_A + BLOCKS_B; block += TURNERS) {
#if TRANS_B
        const int of_b = (block - BLOCKS_A) * WARP;
        if (of_b >= 0) {
          g.b.load(to.b + of_b * COMING_K, tile.n + of_b, k);
          continue;
        }
#endif
        g.a.load(to.a + block * WARP * COMING_K, tile.m + block * WARP, k);
      }
    }

    static __device__ __forceinline__ void turn(const globals& g, const coming_block& from, input_block& to) {
#if !TRANS_B
      g.b.turn(from.b, to.b, warp());
#endif
#pragma unroll 1
      for (int block = warp(); block < BLOCKS_A + BLOCKS_B; block += TURNERS) {
#if TRANS_B
        const int of_b = (block - BLOCKS_A) * WARP;
        if (of_b >= 0) {
          g.b.turn<PITCH_B>(from.b + of_b * COMING_K, to.b + of_b);
          continue;
        }
#endif
        g.a.turn<PITCH_A>(from.a + block * WARP * COMING_K, to.a + block * WARP);
      }
    }

    static __device__ __forceinline__ void run(const globals& g, Shared& shared) {
      const work_tile tile = schedule(g);
      // one group of copies a k-tile, empty ones at the end
      const auto load_next = [&](int iteration) {
        if (iteration < tile.iterations) load(g, tile, shared.coming[iteration % COMING], iteration);
        cp_async_commit();
      };
      for (int i = 0; i < COMING - 1; ++i) load_next(i);
      ring::place to;
      for (int iteration = 0; iteration < tile.iterations; ++iteration, to.advance()) {
        load_next(iteration + COMING - 1);
        shared.barriers.acquire(to);
        cp_async_wait<COMING - 1>();
        __syncwarp();
        turn(g, shared.coming[iteration % COMING], shared.blocks[to.stage]);
        shared.barriers.commit_written(to.stage);
      }
    }
  };

  struct consumer {
    // a thread has QUADS_M x QUADS_N quads, far apart: so neighbours read neighbouring quads. lanes are
    // numbered 0 2 4 6 / 1 3 5 7 / 8 ...: whether they read A or B, quads that several want take two
    // wavefronts, not four
    static __device__ __forceinline__ int lane_m() { return threadIdx.x % WARP / 8 * 2 + threadIdx.x % 2; }
    static __device__ __forceinline__ int lane_n() { return threadIdx.x / 2 % LANES_N; }
    static __device__ __forceinline__ int warp() { return threadIdx.x / WARP; }

    static __device__ __forceinline__ void begin(accumulators& state) {
      state.m = warp() / WARPS_N * WARP_M + lane_m() * QUAD;
      state.n = warp() % WARPS_N * WARP_N + lane_n() * QUAD;
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) state.sum[i][j] = 0.f;
    }

    static __device__ __forceinline__ void compute(accumulators& state, const input_block& input) {
#pragma unroll UNROLL
      for (int k = 0; k < BLOCK_K; ++k) {
        Vector<float, QUAD> a[QUADS_M], b[QUADS_N];
#pragma unroll
        for (int i = 0; i < QUADS_M; ++i)
          a[i] = load_vector<QUAD>(&input.a[k * PITCH_A + state.m + i * LANES_M * QUAD]);
#pragma unroll
        for (int j = 0; j < QUADS_N; ++j)
          b[j] = load_vector<QUAD>(&input.b[k * PITCH_B + state.n + j * LANES_N * QUAD]);
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j)
#pragma unroll
          for (int row = 0; row < THREAD_M; ++row) {  // down one column and up the next
            const int i = j % 2 ? THREAD_M - 1 - row : row;
            state.sum[i][j] += a[i / QUAD].x[i % QUAD] * b[j / QUAD].x[j % QUAD];
          }
      }
    }

    // sums leave through shared memory, in whole rows
    static __device__ __forceinline__ void share(const globals& g, const work_tile& tile, accumulators& state,
                                                 Shared& shared) {
      float* const sums = shared.sums;
      named_sync<WARPGROUP>(1);  // nobody reads k-tiles any more, and none is on its way
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i) {
        float* const row = sums + RowsOfA::row(state.m + i / QUAD * LANES_M * QUAD + i % QUAD) * C_PITCH;
#pragma unroll
        for (int j = 0; j < THREAD_N; j += QUAD) {
          const int column = state.n + j * LANES_N;
          if constexpr (TRANS_B) {
#pragma unroll
            for (int e = 0; e < QUAD; ++e) row[RowsOfB::row(column + e)] = state.sum[i][j + e];
          } else {
            const float* const s = &state.sum[i][j];
            store_vector<QUAD>(row + column, {s[0], s[1], s[2], s[3]});
          }
        }
      }
      float* const to = g.C + static_cast<long long>(tile.m) * g.ldc + tile.n;
      if constexpr (CLUSTERS > 1) {
        store_parted_sums<SPLIT, CLUSTERS, BLOCK_M, BLOCK_N, C_PITCH, WARPGROUP, 1>(
            sums, cluster_rank_of<SPLIT>(), tile.part,
            g.partial + static_cast<long long>(tile.number) * CLUSTERS * BLOCK_M * BLOCK_N,
            g.counters + tile.number * SPLIT, shared.last, to, g.ldc, g.M - tile.m, g.N - tile.n);
      } else if constexpr (SPLIT > 1) {
        store_shared_sums<SPLIT, BLOCK_M, BLOCK_N, C_PITCH, WARPGROUP, PIECE_C, 4>(
            sums, cluster_rank_of<SPLIT>(), to, g.ldc, g.M - tile.m, g.N - tile.n);
      } else {
        named_sync<WARPGROUP>(1);
#pragma unroll 4
        for (int i = threadIdx.x; i < BLOCK_M * BLOCK_N / PIECE_C; i += WARPGROUP) {
          const int row = i / (BLOCK_N / PIECE_C), column = i % (BLOCK_N / PIECE_C) * PIECE_C;
          if (tile.m + row < g.M)
            store_tail(to + static_cast<long long>(row) * g.ldc + column,
                       load_vector<PIECE_C>(sums + row * C_PITCH + column), g.N - tile.n - column, true);
        }
      }
    }

    static __device__ __forceinline__ void run(const globals& g, Shared& shared) {
      Consumed<ring> consumed{shared.barriers};
      const work_tile tile = schedule(g);
      accumulators state;
      begin(state);
      for (int iteration = 0; iteration < tile.iterations; ++iteration, consumed.advance()) {
        consumed.wait();
        compute(state, shared.blocks[consumed.stage()]);
        consumed.release();
      }
      share(g, tile, state, shared);
    }
  };

  static __device__ __forceinline__ void run(const globals& g, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
      shared.barriers.init(TURNERS);
      mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x >= WARPGROUP) {
      keep_registers<TURNER_REGISTERS>();
      turner::run(g, shared);
    } else {
      take_registers<CONSUMER_REGISTERS>();
      consumer::run(g, shared);
    }
  }
};

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, BLOCKS_PER_SM)
    gemm_shifted_pipeline(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                          float* partial, unsigned* counters, int M, int N, int K, int lda, int ldb,
                          int ldc) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Gemm::run({{A, M, K, lda}, {B, TRANS_B ? N : K, TRANS_B ? K : N, ldb}, C, partial, counters, M, N, K, ldc},
            memory);
}
