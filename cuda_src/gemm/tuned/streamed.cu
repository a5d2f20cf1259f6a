// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes. bf16 and fp16, sm_90a.
//
// stage 10, streamed: this stage is for an A of few rows, where reading B takes most of the time. tiles are
// 64 columns wide and 128 or 64 rows high. an iteration of a 64-row tile takes two k-tiles, one for each
// consumer. where tiles are few, clusters of two blocks split k. with B_ONCE there is one row of tiles, so no
// two blocks read the same B. then B is evicted first from the L2, and does not force data of others from
// there to memory. B also has a circular buffer of its own, beside that of A, so more of it is in flight.
// with A_AHEAD, each block prefetches some k-tiles of A into the L2. without this, all blocks would ask for
// the same k-tile at the same time, and wait for memory.
//
// what it gains: more memory bandwidth, where that is the limit. at 1024 cubed, there are twice as many tiles
// as with 128 columns, so k need not be split.
//
// what limits it: memory, and the launch. a block computes only one tile. where there are more tiles, stages
// with wider tiles are better.

constexpr int BLOCK_N = 64;

#include "pipeline/load_compute_epilogue.cuh"
#include "product.cuh"
#include "ptx/named_barrier.cuh"

struct Gemm {
  static_assert(BLOCK_M == 64 || BLOCK_M == 128, "BLOCK_M has to be 64 or 128");
  using roles = Roles<2>;
  using globals = Operands;
  static constexpr int BANDS = BLOCK_M / WGMMA_M;          // of rows, a consumer each
  static constexpr int SHARES = roles::CONSUMERS / BANDS;  // of k, a consumer each: k-tiles of an iteration
  static constexpr int STEP_K = SHARES * BLOCK_K;
  static constexpr int WIDTH = BLOCK_N / SHARES;  // columns that a consumer finishes
  static constexpr int PART = WIDTH / SPLIT;      // those of them that this block of the cluster stores
  using Columns = Staging<OUT, PART * sizeof(OUT) < ROW_BYTES ? PART : ROW_BYTES / sizeof(OUT)>;

  using k_tiles_of_a = IN[SHARES][BLOCK_M * BLOCK_K];  // rows of k
  using k_tiles_of_b = IN[SHARES][BLOCK_N * BLOCK_K];  // rows of k, too. without TRANS_B: rows of n
  struct input_block {
    k_tiles_of_a a;
    k_tiles_of_b b;
  };
  struct shared_block {
    alignas(1024) OUT c[roles::CONSUMER_WARPS][Columns::ELEMENTS];  // swizzled
  };
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block), sizeof(shared_block));
  using ring = Pipeline<PIPELINE_STAGES, roles::CONSUMER_WARPS>;
  struct work_tile {
    int iterations, m, n;  // where the tile starts
    int first;             // iteration of this block's part
  };
  struct accumulators {
    float sum[BLOCK_N / 2];
    int band, share;
  };

  // one tile, a part of its k
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    if (number > 0) return false;
    const int all = (g.K + STEP_K - 1) / STEP_K;  // beyond K zeros come
    const int rank = cluster_rank_of<SPLIT>(), first = all * rank / SPLIT;
    tile = {all * (rank + 1) / SPLIT - first, static_cast<int>(blockIdx.x) / SPLIT * BLOCK_M,
            static_cast<int>(blockIdx.y) * BLOCK_N, first};
    return true;
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    load_a(g, tile, input.a, full, iteration);
    load_b(g, tile, input.b, full, iteration);
  }

  static __device__ __forceinline__ void load_a(const globals& g, const work_tile& tile, k_tiles_of_a& a,
                                                Barrier& full, int iteration) {
    const int k = (tile.first + iteration) * STEP_K;
#pragma unroll
    for (int s = 0; s < SHARES; ++s) tma_load(a[s], g.A, full, tile.m, k + s * BLOCK_K);
  }

  static __device__ __forceinline__ void load_b(const globals& g, const work_tile& tile, k_tiles_of_b& b,
                                                Barrier& full, int iteration) {
    const int k = (tile.first + iteration) * STEP_K;
    const auto load = [&](IN* to, int row, int column) {
      if constexpr (B_ONCE)
        tma_load_once(to, g.B, full, row, column);
      else
        tma_load(to, g.B, full, row, column);
    };
#pragma unroll
    for (int s = 0; s < SHARES; ++s) ::load_b(load, b[s], tile.n, k + s * BLOCK_K);
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    void* blocks;

    static __device__ __forceinline__ int band() { return roles::consumer() % BANDS; }
    static __device__ __forceinline__ int share() { return roles::consumer() / BANDS; }

    __device__ __forceinline__ void begin(const work_tile&, accumulators& sums) {
      sums.band = uniform(band()), sums.share = uniform(share());
    }

    // a warpgroup: 64 rows of the tile, a k-tile
    __device__ __forceinline__ void multiply(accumulators& sums, const k_tiles_of_a& a, const k_tiles_of_b& b,
                                             int iteration) {
      KTile<IN>::multiply<TRANS_B>(sums.sum, &a[sums.share][sums.band * WGMMA_M * BLOCK_K], b[sums.share],
                                   iteration > 0);
    }

    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Consumed<ring>& consumed, int iteration) {
      multiply(sums, input.a, input.b, iteration);
      consumed.release_previous();
    }

    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Consumed<ring>& consumed) {
      wgmma_wait<0>();
      consumed.release_last();
      store(tile, sums.sum);
    }

    __device__ __forceinline__ void finish() {}

    // consumers that shared k exchange sums, then blocks do, each time all but the columns they keep; the
    // memory of the k-tiles is free for that once everybody is here
    __device__ __forceinline__ void store(const work_tile& tile, float* sum) {
      constexpr int ALL = 3, THREADS = roles::CONSUMER_THREADS;  // the named barrier of all consumers
      if constexpr (SPLIT > 1)
        cluster_sync();
      else if constexpr (SHARES > 1)
        named_sync<THREADS>(ALL);
      if constexpr (SHARES > 1) {
        float4* inbox = static_cast<float4*>(blocks) + share() * WIDTH / 8 * WARPGROUP;
        float4* outbox = static_cast<float4*>(blocks) + (1 - share()) * WIDTH / 8 * WARPGROUP;
        keep_part<SHARES, WIDTH>(sum, share(), [&](int, int four, float4 v) {
          outbox[four * WARPGROUP + threadIdx.x % WARPGROUP] = v;
        });
        named_sync<THREADS>(ALL);
        add<WIDTH>(sum, inbox + threadIdx.x % WARPGROUP, WARPGROUP);
      }
      const int rank = cluster_rank_of<SPLIT>();
      if constexpr (SPLIT > 1) {
        // behind what consumers exchange
        float4* inbox = static_cast<float4*>(blocks) + BLOCK_N / 8 * WARPGROUP + threadIdx.x - WARPGROUP;
        keep_part<SPLIT, PART>(sum, rank, [&](int part, int four, float4 v) {
          cluster_store(inbox + four * THREADS, part, v);
        });
        cluster_sync();
        add<PART>(sum, inbox, THREADS);
      }
      const int m = tile.m + band() * WGMMA_M + roles::warp() * WARP_ROWS;
      const int n = tile.n + (SHARES > 1 ? share() * WIDTH : 0) + rank * PART;
#pragma unroll
      for (int i = 0; i < PART; i += Columns::COLUMNS) store(&sum[i / 2], m, n + i);
    }

    // of two parts of COLUMNS columns: hands the one that is not `mine` to `give(part, number of four,
    // four)`, and moves mine to the front. registers have no run-time index, so both cases are written out
    template <int PARTS, int COLUMNS, class Give>
    static __device__ __forceinline__ void keep_part(float* sum, int mine, const Give& give) {
      static_assert(PARTS == 2, "there are two parts");
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; i += 4) {
        float *low = &sum[i], *high = &sum[COLUMNS / 2 + i];
        const float4 a = make_float4(low[0], low[1], low[2], low[3]);
        const float4 b = make_float4(high[0], high[1], high[2], high[3]);
        give(1 - mine, i / 4, mine == 0 ? b : a);
        if (mine != 0) low[0] = b.x, low[1] = b.y, low[2] = b.z, low[3] = b.w;
      }
    }

    template <int COLUMNS>
    static __device__ __forceinline__ void add(float* sum, const float4* inbox, int stride) {
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; i += 4) {
        const float4 v = inbox[i / 4 * stride];
        sum[i] += v.x, sum[i + 1] += v.y, sum[i + 2] += v.z, sum[i + 3] += v.w;
      }
    }

    // a warp, 16 rows and some columns of C. accumulators lie in pairs; shared memory collects them for
    // stores of whole lines
    __device__ __forceinline__ void store(const float* sum, int m, int n) {
      constexpr int CHUNK = Columns::CHUNK;
      OUT* staged = shared.c[roles::warp_of_all()];
      __syncwarp();
      Columns::put(staged, sum);
      __syncwarp();
      const int N = g.rows.columns;
      if (g.rows.leading % CHUNK == 0 && (N % CHUNK == 0 || n + Columns::COLUMNS <= N))
        Columns::template by_threads<true>(g.rows, staged, m, n);
      else
        Columns::template by_threads<false>(g.rows, staged, m, n);
    }
  };
};

// the same with a circular buffer for A and another for B, which gets all the memory that A_SLOTS k-tiles of A
// leave. another thread loads B, B_AT_ONCE k-tiles at a time: what they hold of a row lies side by side
struct TwoBuffers {
  using roles = Gemm::roles;
  static constexpr int BURST = B_AT_ONCE, ALIGNMENT = 1024;
  static constexpr int A_STAGES = A_SLOTS > 0 ? A_SLOTS : 2;
  static constexpr int B_STAGES = stages_that_fit(
      roles::SHARED_BYTES - A_STAGES * static_cast<int>(sizeof(Gemm::k_tiles_of_a) + 2 * sizeof(Barrier)),
      sizeof(Gemm::k_tiles_of_b), sizeof(Gemm::shared_block) + ALIGNMENT);
  static_assert(BURST >= 1 && BURST < B_STAGES, "B_AT_ONCE has to be less than there are stages: lower A_SLOTS");

  struct Shared {
    alignas(ALIGNMENT) Gemm::k_tiles_of_a a[A_STAGES];
    Gemm::shared_block own;
    Pipeline<A_STAGES, roles::CONSUMER_WARPS> a_ring;
    alignas(ALIGNMENT) Gemm::k_tiles_of_b b[B_STAGES];
    Pipeline<B_STAGES, roles::CONSUMER_WARPS> b_ring;
  };
  static_assert(sizeof(Shared) <= roles::SHARED_BYTES, "the buffers do not fit: lower A_SLOTS");

  static __device__ __forceinline__ void ask_a(const Operands& g, Shared& shared, const Gemm::work_tile& tile,
                                               int stage, int iteration) {
    Barrier& full = shared.a_ring.commit(stage, sizeof(shared.a[0]));
    Gemm::load_a(g, tile, shared.a[stage], full, iteration);
  }
  static __device__ __forceinline__ void ask_b(const Operands& g, Shared& shared, const Gemm::work_tile& tile,
                                               int stage, int iteration) {
    Barrier& full = shared.b_ring.commit(stage, sizeof(shared.b[0]));
    Gemm::load_b(g, tile, shared.b[stage], full, iteration);
  }

  static __device__ __forceinline__ void produce_a(const Operands& g, Shared& shared,
                                                   const Gemm::work_tile& tile, int iteration) {
    Place<A_STAGES> to;
    to.skip(iteration);
    for (; iteration < tile.iterations; ++iteration, to.advance()) {
      shared.a_ring.acquire(to);
      ask_a(g, shared, tile, to.stage, iteration);
    }
  }

  // consumers release in order: where the last stage of a burst is free, the others are
  static __device__ __forceinline__ void produce_b(const Operands& g, Shared& shared) {
    Place<B_STAGES> to;
    Gemm::work_tile tile;
    Gemm::schedule(g, tile, 0);
    int iteration = min(BURST, tile.iterations);  // those were asked for at the beginning
    to.skip(iteration);
    for (; iteration < tile.iterations; ++iteration, to.advance()) {
      if (iteration % BURST == 0) {
        Place<B_STAGES> last = to;
        last.skip(BURST - 1);
        shared.b_ring.acquire(last);
      }
      ask_b(g, shared, tile, to.stage, iteration);
    }
  }

  static __device__ __forceinline__ void consume(const Operands& g, Shared& shared) {
    Gemm::consumer consumer{g, shared.own, shared.a};
    Consumed<decltype(shared.a_ring)> from_a{shared.a_ring};
    Consumed<decltype(shared.b_ring)> from_b{shared.b_ring};
    Gemm::work_tile tile;
    Gemm::schedule(g, tile, 0);
    Gemm::accumulators sums;
    consumer.begin(tile, sums);
    for (int iteration = 0; iteration < tile.iterations; ++iteration, from_a.advance(), from_b.advance()) {
      from_a.wait();
      from_b.wait();
      consumer.multiply(sums, shared.a[from_a.stage()], shared.b[from_b.stage()], iteration);
      from_a.release_previous();
      from_b.release_previous();
    }
    wgmma_wait<0>();
    consumer.store(tile, sums.sum);
  }

  static __device__ __forceinline__ void run(const Operands& g, unsigned char* memory) {
    constexpr int EARLY = sizeof(Gemm::k_tiles_of_a) > 24 * 1024 ? 1 : 2;
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    Gemm::work_tile tile;
    int early = 0;
    if (threadIdx.x == 0) {
      shared.a_ring.init();
      shared.b_ring.init();
      mbarrier_init_fence();
      Gemm::schedule(g, tile, 0);
      for (int i = 0; i < min(BURST, tile.iterations); ++i) ask_b(g, shared, tile, i, i);
      for (; early < min(EARLY, tile.iterations); ++early) ask_a(g, shared, tile, early, early);
    }
    __syncthreads();
    if (roles::producing()) {
      roles::produce();
      if (threadIdx.x == 0) produce_a(g, shared, tile, early);
      if (threadIdx.x == roles::LANES) produce_b(g, shared);
    } else {
      roles::consume();
      consume(g, shared);
    }
  }
};

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

#if B_ONCE
using Frame = TwoBuffers;
#else
using Frame = LoadComputeEpilogue<Gemm>;
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(Gemm::roles::THREADS, 1)
    gemm_streamed(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, OUT* C, int M,
                  int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  if (A_AHEAD && threadIdx.x == 2 * Gemm::roles::LANES)
    for (int k = blockIdx.y * BLOCK_K; k < K; k += gridDim.y * BLOCK_K)
      tma_prefetch(A, blockIdx.x / SPLIT * BLOCK_M, k);
  Frame::run({A, B, {A, C, M, N, ldc}, K}, memory);  // TMA does not store C
}
