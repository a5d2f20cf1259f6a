// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps of arrays whose rows are multiples of 16 bytes, as in realigned_pipeline. fp32,
// sm_90a.
//
// stage 14 of simt, fitted pipeline: the tile depends on the problem. it is at most half as large as before,
// and four warps multiply it. so a multiprocessor holds two blocks, and one computes while the other waits.
// where tiles are few, a cluster of SPLIT blocks shares a tile, and each block adds up a part of k. then
// every block adds up a part of the tile, from the sums that all blocks of the cluster have in shared memory.
// where k is long, CLUSTERS clusters share a tile, and the last one adds up what all have left in memory:
// partial, (tiles, CLUSTERS, BLOCK_M, BLOCK_N), and counters, (tiles, SPLIT) and zero. they are not used
// else.
//
// what it gains: large tiles leave a part of the device idle, or lie partly outside of C. small tiles do not,
// and compute as many products a cycle.
//
// what limits it: the fp32 units. where k is short: the launch, the filling of the pipeline, and the adding
// up.

#include "epilogue/parted_sums.cuh"
#include "pipeline/circular_buffer.cuh"
#include "ptx/mma.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "scheduler/tile_order.cuh"
#include "tile/realign.cuh"
#include "tile/vector.cuh"

constexpr int WARP = 32, QUAD = 4;       // floats in 16 bytes
constexpr int LANES_M = 8, LANES_N = 4;  // how the threads of a warp lie over its tile
constexpr int QUADS_M = THREAD_M / QUAD, QUADS_N = THREAD_N / QUAD;
constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int BLOCK_K = 32;
constexpr int CONSUMERS = WARPGROUP / WARP;    // warps that multiply, the first ones
constexpr int TURNERS = WARPGROUP / WARP - 1;  // warps that turn: the first one of their warpgroup loads
constexpr int THREADS = 2 * WARPGROUP, BLOCKS_PER_SM = 2;
constexpr int SHARED_BYTES = (228 / BLOCKS_PER_SM - 1) * 1024, ALIGNMENT = 1024;
constexpr int MOST_RAW = 4;                                     // k-tiles that TMA brings at once
constexpr int TURNER_REGISTERS = 72, CONSUMER_REGISTERS = 184;  // together as many as two threads start with

static_assert(CLUSTERS == 1 || SPLIT > 1, "only clusters leave sums in memory");
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0 &&
                  BLOCK_M / WARP_M * (BLOCK_N / WARP_N) == CONSUMERS,
              "the tiles of four warps cover the tile");

// rows of a k-tile that become columns, of COUNT elements. of 32 rows and four of k a thread has the rows r,
// r + 8, r + 16 and r + 24 and one k, as it would have 16-bit elements of four matrices: they become
// neighbours
template <int COUNT>
struct Turned {
  static constexpr int PITCH = COUNT + 8;  // two rows and four columns, 16 bytes each, are in all banks

  // which row of the k-tile becomes this column
  static __device__ __forceinline__ int row(int column) {
    return column / WARP * WARP + column % WARP / QUAD + column % QUAD * (WARP / QUAD);
  }

  // by a warp, from this block of 32 rows on. `k_tile` has rows of 128 bytes, swizzled as a tensor map's
  static __device__ __forceinline__ void turn(const float* k_tile, float* tile, int block) {
    const int lane = threadIdx.x % WARP;
    const float* from = k_tile + (block * WARP + lane) * BLOCK_K;
    float* to = tile + block * WARP + lane / QUAD * QUAD + lane % QUAD * PITCH;
#pragma unroll 1
    for (; block < COUNT / WARP; block += TURNERS) {
#pragma unroll
      for (int first = 0; first < BLOCK_K / QUAD; first += QUAD) {
        u32 x[QUAD][QUAD];
#pragma unroll
        for (int i = 0; i < QUAD; ++i) ldmatrix_x4(x[i], from + ((first + i) ^ lane % 8) * QUAD);
#pragma unroll
        for (int i = 0; i < QUAD; ++i)
          store_vector<QUAD>(to + (first + i) * QUAD * PITCH,
                             {__uint_as_float(x[i][0]), __uint_as_float(x[i][1]), __uint_as_float(x[i][2]),
                              __uint_as_float(x[i][3])});
      }
      from += TURNERS * WARP * BLOCK_K, to += TURNERS * WARP;
    }
  }
};

// rows of a k-tile that are columns already
template <int COUNT>
struct Straight {
  static constexpr int PITCH = COUNT;
  static __device__ __forceinline__ int row(int column) { return column; }
};

struct Gemm {
  static constexpr int WARPS_N = BLOCK_N / WARP_N;
  using RowsOfA = Turned<BLOCK_M>;
#if TRANS_B
  using RowsOfB = Turned<BLOCK_N>;
#else
  using RowsOfB = Straight<BLOCK_N>;
#endif

  struct globals {
    const TensorMap &A, &B;
    float *C, *partial;
    unsigned* counters;
    int M, N, K, ldc;
  };
  struct raw_block {
    float a[BLOCK_M * BLOCK_K];
#if TRANS_B
    float b[BLOCK_N * BLOCK_K];
#endif
  };
  struct alignas(1024) input_block {
    float a[BLOCK_K * RowsOfA::PITCH];
    alignas(128) float b[BLOCK_K * RowsOfB::PITCH];  // of a copy of TMA
  };
  struct staging_block {  // pairs of rows of C, 32 columns of them, that a warp collects to store them
    static constexpr int COLUMNS = WARP, PITCH = COLUMNS + 8;  // neighbours in other banks
    Vector<float, 2> c[SPLIT > 1 ? 1 : CONSUMERS][LANES_M][PITCH];
  };
  // sums of a tile that a cluster shares: where neighbours along m and n are stored, they are in other banks
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

  // two places for what is multiplied, then as many for what TMA brings as it needs, then what is left over
  static constexpr int MEMORY = SHARED_BYTES - sizeof(staging_block) - 2 * ALIGNMENT;
  static constexpr int RAW_FIT = (MEMORY - 2 * static_cast<int>(sizeof(input_block))) / sizeof(raw_block);
  static constexpr int RAW_STAGES = RAW_FIT > MOST_RAW ? MOST_RAW : RAW_FIT;
  static constexpr int PIPELINE_STAGES = (MEMORY - RAW_STAGES * sizeof(raw_block)) / sizeof(input_block);
  static_assert(RAW_STAGES >= 1, "not even one k-tile fits beside two: make the tile smaller");
  using ring = Pipeline<PIPELINE_STAGES, CONSUMERS>;
  struct Shared {
    union {
      struct {
        alignas(ALIGNMENT) input_block blocks[PIPELINE_STAGES];
        alignas(ALIGNMENT) raw_block raw[RAW_STAGES];
      };
      float sums[BLOCK_M * C_PITCH];
    };
    staging_block staging;
    ring barriers;
    bool last;  // whether this block adds up what clusters have left in memory
    Barrier raw_full[RAW_STAGES], raw_empty[RAW_STAGES];
  };
  static_assert(sizeof(Shared) <= SHARED_BYTES, "the buffers have too many stages");

  // GROUP_M rows of tiles are walked together, column by column
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    const int tiles_m = (g.M + BLOCK_M - 1) / BLOCK_M, tiles_n = (g.N + BLOCK_N - 1) / BLOCK_N;
    const int cluster = (blockIdx.x + number * gridDim.x) / SPLIT;
    tile.number = cluster / CLUSTERS, tile.part = cluster % CLUSTERS;
    if (tile.number >= tiles_m * tiles_n) return false;
    const Tile place = grouped_tile<GROUP_M>(tile.number, tiles_m, tiles_n);
    const int all = (g.K + BLOCK_K - 1) / BLOCK_K, own = tile.part * SPLIT + cluster_rank_of<SPLIT>();
    tile.m = place.row * BLOCK_M;
    tile.n = place.column * BLOCK_N;
    tile.first = all * own / (CLUSTERS * SPLIT);
    tile.iterations = all * (own + 1) / (CLUSTERS * SPLIT) - tile.first;
    return true;
  }

  struct producer {
    // asks for a k-tile
    static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, Shared& shared,
                                                int stage, int iteration) {
      const int k = (tile.first + iteration) * BLOCK_K;
      mbarrier_arrive_expect(shared.raw_full[stage], sizeof(raw_block));
      tma_load(shared.raw[stage].a, g.A, shared.raw_full[stage], tile.m, k);
#if TRANS_B
      tma_load(shared.raw[stage].b, g.B, shared.raw_full[stage], tile.n, k);
#endif
    }

    // a thread: all of them, but the first one, which was asked for when the kernel started
    static __device__ __forceinline__ void run(const globals& g, Shared& shared, work_tile tile, bool more) {
      Place<RAW_STAGES> to;
      to.skip(more ? 1 : 0);
      int number = 0, iteration = more ? 1 : 0;
      for (; more; more = schedule(g, tile, ++number), iteration = 0)
        for (; iteration < tile.iterations; ++iteration, to.advance()) {
          mbarrier_wait(shared.raw_empty[to.stage], to.parity ^ 1);
          load(g, tile, shared, to.stage, iteration);
        }
    }
  };

  struct turner {
    // three warps: the k-tile that came is written for the consumers
    static __device__ __forceinline__ void turn(const raw_block& raw, input_block& input) {
      const int warp = threadIdx.x / WARP - CONSUMERS - 1;
#if TRANS_B
      RowsOfB::turn(raw.b, input.b, TURNERS - 1 - warp);  // who has more of A has less of B
#endif
      RowsOfA::turn(raw.a, input.a, warp);
    }

    static __device__ __forceinline__ void run(const globals& g, Shared& shared) {
      Place<RAW_STAGES> from;
      ring::place to;
      work_tile tile;
      for (int number = 0; schedule(g, tile, number); ++number)
        for (int iteration = 0; iteration < tile.iterations; ++iteration, from.advance(), to.advance()) {
          shared.barriers.acquire(to);
          Barrier& full = shared.barriers.full[to.stage];
          input_block& input = shared.blocks[to.stage];
#if !TRANS_B
          if (threadIdx.x == WARPGROUP + WARP) {  // B needs no turning
            mbarrier_expect(full, sizeof(input.b));
            tma_load(input.b, g.B, full, (tile.first + iteration) * BLOCK_K, tile.n);
          }
#endif
          mbarrier_wait(shared.raw_full[from.stage], from.parity);
          turn(shared.raw[from.stage], input);
          __syncwarp();
          if (threadIdx.x % WARP == 0) {
            mbarrier_arrive(shared.raw_empty[from.stage]);
            mbarrier_arrive(full);
          }
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
          a[i] = load_vector<QUAD>(&input.a[k * RowsOfA::PITCH + state.m + i * LANES_M * QUAD]);
#pragma unroll
        for (int j = 0; j < QUADS_N; ++j)
          b[j] = load_vector<QUAD>(&input.b[k * RowsOfB::PITCH + state.n + j * LANES_N * QUAD]);
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j)
#pragma unroll
          for (int row = 0; row < THREAD_M; ++row) {  // down one column and up the next
            const int i = j % 2 ? THREAD_M - 1 - row : row;
            state.sum[i][j] += a[i / QUAD].x[i % QUAD] * b[j / QUAD].x[j % QUAD];
          }
      }
    }

    // a warp, 32 columns of two rows of each thread at a time
    static __device__ __forceinline__ void epilogue(const globals& g, const work_tile& tile,
                                                    accumulators& state, staging_block& staged) {
      constexpr int COLUMNS = staging_block::COLUMNS, ROW_QUADS = COLUMNS / QUAD, PARTS = WARP_N / COLUMNS;
      auto& pairs = staged.c[warp()];
      const int m0 = tile.m + warp() / WARPS_N * WARP_M, n0 = tile.n + warp() % WARPS_N * WARP_N;
      const auto store = [&](int m, int n, const Vector<float, QUAD>& row) {
        if (m < g.M) store_tail(g.C + static_cast<long long>(m) * g.ldc + n, row, g.N - n, g.ldc % QUAD == 0);
      };
#pragma unroll
      for (int part = 0; part < THREAD_M / 2 * PARTS; ++part) {
        const int i = part / PARTS * 2, first = part % PARTS * (THREAD_N / PARTS);
        __syncwarp();
#pragma unroll
        for (int j = first; j < first + THREAD_N / PARTS; ++j) {
          const int column = RowsOfB::row((j / QUAD * LANES_N + lane_n()) * QUAD + j % QUAD);
          pairs[lane_m()][column % COLUMNS] = {state.sum[i + 1][j], state.sum[i][j]};
        }
        __syncwarp();
#pragma unroll
        for (int quad = threadIdx.x % WARP; quad < LANES_M * ROW_QUADS; quad += WARP) {
          const int row = quad / ROW_QUADS, column = quad % ROW_QUADS * QUAD;
          const float* pair = pairs[row][column].x;
          const auto x = load_vector<QUAD>(pair), y = load_vector<QUAD>(pair + QUAD);
          const int m = (i / QUAD * LANES_M + row) * QUAD + i % QUAD,
                    n = n0 + part % PARTS * COLUMNS + column;
          store(m0 + RowsOfA::row(m), n, {x.x[1], x.x[3], y.x[1], y.x[3]});
          store(m0 + RowsOfA::row(m + 1), n, {x.x[0], x.x[2], y.x[0], y.x[2]});
        }
      }
    }

    // the same of a tile that a cluster shares
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
      const int rank = cluster_rank_of<SPLIT>();
      float* const to = g.C + static_cast<long long>(tile.m) * g.ldc + tile.n;
      if constexpr (CLUSTERS > 1)
        store_parted_sums<SPLIT, CLUSTERS, BLOCK_M, BLOCK_N, C_PITCH, WARPGROUP, 1>(
            sums, rank, tile.part,
            g.partial + static_cast<long long>(tile.number) * CLUSTERS * BLOCK_M * BLOCK_N,
            g.counters + tile.number * SPLIT, shared.last, to, g.ldc, g.M - tile.m, g.N - tile.n);
      else
        store_shared_sums<SPLIT, BLOCK_M, BLOCK_N, C_PITCH, WARPGROUP, PIECE_C, 4>(
            sums, rank, to, g.ldc, g.M - tile.m, g.N - tile.n);
    }

    static __device__ __forceinline__ void run(const globals& g, Shared& shared) {
      Consumed<ring> consumed{shared.barriers};
      work_tile tile;
      bool more = schedule(g, tile, 0);
      for (int number = 0; more; ++number) {
        accumulators state;
        begin(state);
        for (int iteration = 0; iteration < tile.iterations; ++iteration, consumed.advance()) {
          consumed.wait();
          compute(state, shared.blocks[consumed.stage()]);
          consumed.release();
        }
        if constexpr (SPLIT > 1) {
          share(g, tile, state, shared);
          return;
        } else {
          work_tile next;
          more = schedule(g, next, number + 1);
          epilogue(g, tile, state, shared.staging);
          tile = next;
        }
      }
    }
  };

  static __device__ __forceinline__ void run(const globals& g, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    work_tile first;
    bool any;
    if (threadIdx.x == WARPGROUP) {
      shared.barriers.init(TURNERS);
      for (int s = 0; s < RAW_STAGES; ++s) {
        mbarrier_init(shared.raw_full[s], 1);
        mbarrier_init(shared.raw_empty[s], TURNERS);
      }
      mbarrier_init_fence();
      any = schedule(g, first, 0);
      if (any) producer::load(g, first, shared, 0, 0);
    }
    __syncthreads();
    if (threadIdx.x >= WARPGROUP) {
      keep_registers<TURNER_REGISTERS>();
      if (threadIdx.x == WARPGROUP) producer::run(g, shared, first, any);
      if (threadIdx.x >= WARPGROUP + WARP) turner::run(g, shared);
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
    gemm_fitted_pipeline(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                         float* __restrict__ C, float* partial, unsigned* counters, int M, int N, int K,
                         int ldc) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Gemm::run({A, B, C, partial, counters, M, N, K, ldc}, memory);
}

constexpr int COPY_THREADS = 256, COPY_EACH = 8;  // elements of a thread, a warp's width apart

// rows `ld` elements apart to rows `packed` elements apart
extern "C" __global__ void __launch_bounds__(COPY_THREADS)
    gemm_realign(const IN* __restrict__ from, IN* __restrict__ to, int rows, int columns, int ld,
                 int packed) {
  realign_rows<COPY_EACH, COPY_THREADS>(from, to, rows, columns, ld, packed);
}

// rows that become columns
extern "C" __global__ void __launch_bounds__(COPY_THREADS)
    gemm_turn(const IN* __restrict__ from, IN* __restrict__ to, int rows, int columns, int ld, int packed) {
  turn_rows<COPY_THREADS>(from, to, rows, columns, ld, packed);
}
