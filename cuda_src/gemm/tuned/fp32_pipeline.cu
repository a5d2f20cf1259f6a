// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes. fp32, sm_90a.
//
// stage 9, fp32 pipeline: `warp_tiles` with specialised warps. TMA loads all k-tiles. in those of A, and in
// those of B with TRANS_B, k runs along the rows. three warps transpose these, and eight warps only multiply.
// the kernel uses none of the library's frames, but their parts: two circular buffers and three roles.
//
// what it gains: the warps that multiply compute no addresses, check no edges and do not wait for each other.
// their reads do not collide in register banks either. neighbouring multiplications share an element of B, so
// each of them reads one element of A and one of C. elements of A are loaded four at a time, into registers
// that begin at an even one. rows of C are kept in pairs, the odd row first. so even rows are in odd
// registers, and the two reads are from different banks. this needs k as the slowest index. otherwise
// elements of A with neighbouring k would be in neighbouring banks.
//
// what limits it: the fp32 units. of 100 instructions of the loop, 94 multiply. one in ten of these still
// reads two registers of the same bank. if the loop is unrolled for 16 of k, it is too long for the
// instruction cache.

#include "pipeline/circular_buffer.cuh"
#include "pipeline/roles.cuh"
#include "ptx/mma.cuh"
#include "ptx/tma.cuh"
#include "scheduler/tile_order.cuh"
#include "tile/vector.cuh"

constexpr int WARP = 32, QUAD = 4;          // floats in 16 bytes
constexpr int LANES_M = 8, LANES_N = 4;     // how the threads of a warp lie over its tile
constexpr int THREAD_M = 8, THREAD_N = 16;  // of C, a thread
constexpr int QUADS_M = THREAD_M / QUAD, QUADS_N = THREAD_N / QUAD;
constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 32;
constexpr int TURNERS = WARPGROUP / WARP - 1;  // warps that turn: the first one of their warpgroup loads

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
  using roles = Roles<2, 72>;  // who turns needs more registers than who loads
  static constexpr int WARPS_N = BLOCK_N / WARP_N, ALIGNMENT = 1024;
  static_assert(BLOCK_M / WARP_M * WARPS_N == roles::CONSUMER_WARPS, "warp tiles cover the tile");

  using RowsOfA = Turned<BLOCK_M>;
#if TRANS_B
  using RowsOfB = Turned<BLOCK_N>;
#else
  using RowsOfB = Straight<BLOCK_N>;
#endif

  struct globals {
    const TensorMap &A, &B;
    float* C;
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
  struct staging_block {  // pairs of rows of C, half as wide as a warp's tile, that it collects to store them
    static constexpr int COLUMNS = WARP_N / 2, PITCH = COLUMNS + 8;  // neighbours in other banks
    Vector<float, 2> c[WARPGROUP / WARP][LANES_M][PITCH];
  };
  struct work_tile {
    int iterations, m, n;
  };
  struct accumulators {
    float sum[THREAD_M][THREAD_N];
    int m, n;  // where in the tile the thread begins
  };

  // one place for what TMA brings, and as many for what is multiplied as fit beside it
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block),
                      sizeof(raw_block) + roles::CONSUMERS * sizeof(staging_block) + ALIGNMENT);
  using ring = Pipeline<PIPELINE_STAGES, roles::CONSUMER_WARPS>;
  struct Shared {
    alignas(ALIGNMENT) input_block blocks[PIPELINE_STAGES];
    staging_block staging[roles::CONSUMERS];
    ring barriers;
    alignas(ALIGNMENT) raw_block raw;
    Barrier raw_full, raw_empty;
  };
  static_assert(sizeof(Shared) <= roles::SHARED_BYTES, "the ring has too many stages");

  // GROUP_M rows of tiles are walked together, column by column
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    const int tiles_m = (g.M + BLOCK_M - 1) / BLOCK_M, tiles_n = (g.N + BLOCK_N - 1) / BLOCK_N;
    const int mine = blockIdx.x + number * gridDim.x;
    if (mine >= tiles_m * tiles_n) return false;
    const Tile place = grouped_tile<GROUP_M>(mine, tiles_m, tiles_n);
    tile.m = place.row * BLOCK_M;
    tile.n = place.column * BLOCK_N;
    tile.iterations = (g.K + BLOCK_K - 1) / BLOCK_K;
    return true;
  }

  struct producer {
    // asks for a k-tile
    static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, Shared& shared,
                                                int iteration) {
      mbarrier_arrive_expect(shared.raw_full, sizeof(raw_block));
      tma_load(shared.raw.a, g.A, shared.raw_full, tile.m, iteration * BLOCK_K);
#if TRANS_B
      tma_load(shared.raw.b, g.B, shared.raw_full, tile.n, iteration * BLOCK_K);
#endif
    }

    // a thread: all of them, but the first one, which was asked for when the kernel started
    static __device__ __forceinline__ void run(const globals& g, Shared& shared, work_tile tile, bool more) {
      Place<1> to;
      to.skip(more ? 1 : 0);
      int number = 0, iteration = more ? 1 : 0;
      for (; more; more = schedule(g, tile, ++number), iteration = 0)
        for (; iteration < tile.iterations; ++iteration, to.advance()) {
          mbarrier_wait(shared.raw_empty, to.parity ^ 1);
          load(g, tile, shared, iteration);
        }
    }
  };

  struct turner {
    // three warps: the k-tile that came is written for the consumers
    static __device__ __forceinline__ void turn(const globals& g, const work_tile& tile, const raw_block& raw,
                                                input_block& input, Barrier& full, int iteration) {
      const int warp = threadIdx.x / WARP - 1;
#if TRANS_B
      RowsOfB::turn(raw.b, input.b, TURNERS - 1 - warp);  // who has more of A has less of B
#else
      if (threadIdx.x == WARP) {
        mbarrier_expect(full, sizeof(input.b));
        tma_load(input.b, g.B, full, iteration * BLOCK_K, tile.n);
      }
#endif
      RowsOfA::turn(raw.a, input.a, warp);
    }

    static __device__ __forceinline__ void run(const globals& g, Shared& shared) {
      Place<1> from;
      ring::place to;
      work_tile tile;
      for (int number = 0; schedule(g, tile, number); ++number)
        for (int iteration = 0; iteration < tile.iterations; ++iteration, from.advance(), to.advance()) {
          shared.barriers.acquire(to);
          mbarrier_wait(shared.raw_full, from.parity);
          Barrier& full = shared.barriers.full[to.stage];
          turn(g, tile, shared.raw, shared.blocks[to.stage], full, iteration);
          __syncwarp();
          if (threadIdx.x % WARP == 0) {
            mbarrier_arrive(shared.raw_empty);
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
    static __device__ __forceinline__ int warp() { return roles::warp_of_all(); }

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

    // a warp, one half of two rows of each thread at a time
    static __device__ __forceinline__ void epilogue(const globals& g, const work_tile& tile,
                                                    accumulators& state, staging_block& staged) {
      constexpr int COLUMNS = staging_block::COLUMNS, ROW_QUADS = COLUMNS / QUAD, HALF = THREAD_N / 2;
      auto& pairs = staged.c[warp() % (WARPGROUP / WARP)];
      const int m0 = tile.m + warp() / WARPS_N * WARP_M, n0 = tile.n + warp() % WARPS_N * WARP_N;
      const auto store = [&](int m, int n, const Vector<float, QUAD>& row) {
        if (m < g.M) store_tail(g.C + static_cast<long long>(m) * g.ldc + n, row, g.N - n, g.ldc % QUAD == 0);
      };
#pragma unroll
      for (int part = 0; part < THREAD_M; ++part) {
        const int i = part / 2 * 2, first = part % 2 * HALF;
        __syncwarp();
#pragma unroll
        for (int j = first; j < first + HALF; ++j) {
          const int column = RowsOfB::row((j / QUAD * LANES_N + lane_n()) * QUAD + j % QUAD);
          pairs[lane_m()][column % COLUMNS] = {state.sum[i + 1][j], state.sum[i][j]};
        }
        __syncwarp();
#pragma unroll
        for (int quad = threadIdx.x % WARP; quad < LANES_M * ROW_QUADS; quad += WARP) {
          const int row = quad / ROW_QUADS, column = quad % ROW_QUADS * QUAD;
          const float* pair = pairs[row][column].x;
          const auto x = load_vector<QUAD>(pair), y = load_vector<QUAD>(pair + QUAD);
          const int m = (i / QUAD * LANES_M + row) * QUAD + i % QUAD, n = n0 + part % 2 * COLUMNS + column;
          store(m0 + RowsOfA::row(m), n, {x.x[1], x.x[3], y.x[1], y.x[3]});
          store(m0 + RowsOfA::row(m + 1), n, {x.x[0], x.x[2], y.x[0], y.x[2]});
        }
      }
    }

    static __device__ __forceinline__ void run(const globals& g, Shared& shared) {
      const int mine = uniform(roles::consumer());
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
        work_tile next;
        more = schedule(g, next, number + 1);
        epilogue(g, tile, state, shared.staging[mine]);
        tile = next;
      }
    }
  };

  static __device__ __forceinline__ void run(const globals& g, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    work_tile first;
    bool any;
    if (threadIdx.x == 0) {
      shared.barriers.init(TURNERS);
      mbarrier_init(shared.raw_full, 1);
      mbarrier_init(shared.raw_empty, TURNERS);
      mbarrier_init_fence();
      any = schedule(g, first, 0);
      if (any) producer::load(g, first, shared, 0);
    }
    __syncthreads();
    if (roles::producing()) {
      roles::produce();
      if (threadIdx.x == 0) producer::run(g, shared, first, any);
      if (threadIdx.x >= WARP) turner::run(g, shared);
    } else {
      roles::consume();
      consumer::run(g, shared);
    }
  }
};

extern "C" __global__ void __launch_bounds__(Gemm::roles::THREADS, 1)
    gemm_fp32_pipeline(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                       float* __restrict__ C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Gemm::run({A, B, C, M, N, K, ldc}, memory);
}
