// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes. bf16 and fp16, sm_90a.
//
// stage 13, streamed: for an A of few rows, where the time is that of reading B. tiles are 64 columns wide
// and 128 or 64 rows high; of 64 rows a step takes two slices of k, one for each consumer. clusters of two
// blocks split k where tiles are few. with B_ONCE there is one row of tiles, and no other block reads the
// same B. it is then the first to leave the L2 again, so that it does not push out, and have written back,
// what others left there; and it has a ring of its own beside that of A, and so more of it is on its way.
// with A_AHEAD each block has some slices of A fetched into the L2: all blocks ask for the same one at the
// same time, and would wait for memory.
//
// what it gains: bandwidth where it is short, and at 1024 cubed twice as many tiles as of 128 columns, which
// need not split k then.
//
// what limits it: memory, and the launch. a block has one tile: for more of them there are wider tiles.

#include "pipeline/lcsf.cuh"
#include "tile/slices.cuh"
#include "epilogue/tiles.cuh"

constexpr int WARP = 32, BLOCK_N = Slice<IN>::DEPTH;
constexpr int WARP_ROWS = Staged<OUT>::ROWS;  // of C: a warp holds 16 rows of 64

static_assert(BLOCK_K == BLOCK_N,
              "BLOCK_K has to be 64: a row of a slice is as wide as the swizzle, along k or n");

struct Gemm {
  static_assert(BLOCK_M == 64 || BLOCK_M == 128, "BLOCK_M has to be 64 or 128");
  static constexpr int CONSUMERS = 2, THREADS = CONSUMERS * WARPGROUP;
  static constexpr int BANDS = BLOCK_M / WGMMA_M;   // of rows, a consumer each
  static constexpr int SHARES = CONSUMERS / BANDS;  // of k, a consumer each: slices of a step
  static constexpr int STEP_K = SHARES * BLOCK_K;
  static constexpr int WIDTH = BLOCK_N / SHARES;  // columns that a consumer finishes
  static constexpr int PART = WIDTH / SPLIT;      // those of them that this block of the cluster stores
  static constexpr int STAGED = PART * sizeof(OUT) < ROW_BYTES ? PART : ROW_BYTES / sizeof(OUT);

  struct globals {
    const TensorMap &A, &B;
    OUT* C;
    int M, N, K, ldc;
  };
  using slices_of_a = IN[SHARES][BLOCK_M * BLOCK_K];  // rows of k
  using slices_of_b = IN[SHARES][BLOCK_N * BLOCK_K];  // rows of k, too. without TRANS_B: rows of n
  struct only_a {
    slices_of_a a;
  };
  struct only_b {
    slices_of_b b;
  };
  struct both {
    slices_of_a a;
    slices_of_b b;
  };
  using input_block = Either<B_ONCE, only_a, both>;
  using far_block = Either<B_ONCE, only_b, Nothing>;
  static constexpr int RING_DEPTH = A_SLOTS, BURST = B_AT_ONCE;
  struct finish_block {  // columns of C that a warp collects before it stores, swizzled
    OUT c[WARPGROUP / WARP][WARP_ROWS * STAGED];
  };
  struct common_state {
    int steps, first, m, n;  // of k: how many, from which on; where the tile starts
  };
  struct consumer_state {
    float sum[BLOCK_N / 2];
    int band, share;
    bool add;  // there are sums already
  };

  // where the slices of a step begin
  static __device__ __forceinline__ int k_of(const common_state& tile, int step) {
    return (tile.first + step) * STEP_K;
  }

  static __device__ __forceinline__ int rank() { return SPLIT > 1 ? cluster_rank() : 0; }

  static __device__ __forceinline__ bool common_setup(const globals& g, common_state& common, int item) {
    if (item > 0) return false;
    common.m = blockIdx.x / SPLIT * BLOCK_M;
    common.n = blockIdx.y * BLOCK_N;
    const int steps = (g.K + STEP_K - 1) / STEP_K;  // beyond K zeros come
    common.first = steps * rank() / SPLIT;
    common.steps = steps * (rank() + 1) / SPLIT - common.first;
    return true;
  }

  struct producer {
    static __device__ __forceinline__ void load(const globals& g, const common_state& tile, both& input,
                                                Barrier& full, int step) {
      load_a(g, tile, input.a, full, step);
      load_b(g, tile, input.b, full, step);
    }

    static __device__ __forceinline__ void load(const globals& g, const common_state& tile, only_a& input,
                                                Barrier& full, int step) {
      load_a(g, tile, input.a, full, step);
    }

    static __device__ __forceinline__ void load_far(const globals& g, const common_state& tile, only_b& far,
                                                    Barrier& full, int step) {
      load_b(g, tile, far.b, full, step);
    }

    static __device__ __forceinline__ void load_a(const globals& g, const common_state& tile, slices_of_a& a,
                                                  Barrier& full, int step) {
#pragma unroll
      for (int s = 0; s < SHARES; ++s) tma_load(a[s], g.A, full, tile.m, k_of(tile, step) + s * BLOCK_K);
    }

    static __device__ __forceinline__ void load_b(const globals& g, const common_state& tile, slices_of_b& b,
                                                  Barrier& full, int step) {
      const auto box = [&](IN* to, int row, int column) {
        if constexpr (B_ONCE)
          tma_load_once(to, g.B, full, row, column);
        else
          tma_load(to, g.B, full, row, column);
      };
#pragma unroll
      for (int s = 0; s < SHARES; ++s) {
        const int k = k_of(tile, step) + s * BLOCK_K;
        if constexpr (TRANS_B)
          box(b[s], tile.n, k);
        else
          box(b[s], k, tile.n);
      }
    }
  };

  struct consumer {
    static __device__ __forceinline__ int band() { return Lcsf<Gemm>::warpgroup() % BANDS; }
    static __device__ __forceinline__ int share() { return Lcsf<Gemm>::warpgroup() / BANDS; }

    static __device__ __forceinline__ void setup(const common_state&, consumer_state& state) {
      state.band = uniform(band()), state.share = uniform(share()), state.add = false;
    }

    static __device__ __forceinline__ void compute(const common_state&, consumer_state& state,
                                                   const both& input) {
      multiply(state, input.a, input.b);
    }

    static __device__ __forceinline__ void compute(const common_state&, consumer_state& state,
                                                   const only_a& input, const only_b& far) {
      multiply(state, input.a, far.b);
    }

    // a warpgroup: 64 rows of the tile, a slice of k
    static __device__ __forceinline__ void multiply(consumer_state& state, const slices_of_a& a,
                                                    const slices_of_b& b) {
      Slice<IN>::multiply<TRANS_B>(state.sum, &a[state.share][state.band * WGMMA_M * BLOCK_K], b[state.share],
                                   state.add);
      state.add = true;
    }

    static __device__ __forceinline__ void drain() { wgmma_wait<0>(); }

    // consumers that shared k exchange sums, then blocks do, each time all but the columns they keep; the
    // ring is free for that once everybody is here
    static __device__ __forceinline__ void finish(const globals& g, const common_state& tile,
                                                  consumer_state& state, finish_block& staged,
                                                  input_block* ring) {
      constexpr int ALL = 3;  // the named barrier of all consumers
      if constexpr (SPLIT > 1)
        cluster_sync();
      else if constexpr (SHARES > 1)
        named_sync<THREADS>(ALL);
      float* sum = state.sum;
      if constexpr (SHARES > 1) {
        float4* inbox = reinterpret_cast<float4*>(ring) + share() * WIDTH / 8 * WARPGROUP;
        float4* outbox = reinterpret_cast<float4*>(ring) + (1 - share()) * WIDTH / 8 * WARPGROUP;
        keep_part<SHARES, WIDTH>(sum, share(), [&](int, int four, float4 v) {
          outbox[four * WARPGROUP + threadIdx.x % WARPGROUP] = v;
        });
        named_sync<THREADS>(ALL);
        add<WIDTH>(sum, inbox + threadIdx.x % WARPGROUP, WARPGROUP);
      }
      if constexpr (SPLIT > 1) {
        // behind what consumers exchange
        float4* inbox = reinterpret_cast<float4*>(ring) + BLOCK_N / 8 * WARPGROUP + threadIdx.x - WARPGROUP;
        keep_part<SPLIT, PART>(sum, rank(), [&](int part, int four, float4 v) {
          cluster_store(inbox + four * THREADS, part, v);
        });
        cluster_sync();
        add<PART>(sum, inbox, THREADS);
      }
      const int warp = threadIdx.x / WARP % (WARPGROUP / WARP);
      const int m = tile.m + band() * WGMMA_M + warp * WARP_ROWS;
      const int n = tile.n + (SHARES > 1 ? share() * WIDTH : 0) + rank() * PART;
#pragma unroll
      for (int i = 0; i < PART; i += STAGED) store(g, staged.c[warp], &sum[i / 2], m, n + i);
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

    using Columns = Staged<OUT, STAGED>;

    // a warp, 16 rows and STAGED columns of C. accumulators lie in pairs; shared memory collects them for
    // stores of whole lines
    static __device__ __forceinline__ void store(const globals& g, OUT* staged, const float* sum, int m,
                                                 int n) {
      __syncwarp();
      Columns::put(staged, sum);
      __syncwarp();
      if (g.ldc % Columns::CHUNK == 0 && (g.N % Columns::CHUNK == 0 || n + STAGED <= g.N))
        Columns::by_threads<true>(g, staged, m, n);
      else
        Columns::by_threads<false>(g, staged, m, n);
    }
  };
};

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(Lcsf<Gemm>::THREADS, 1)
    gemm_streamed(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, OUT* C, int M,
                  int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  if (A_AHEAD && threadIdx.x == 2 * WARP)
    for (int k = blockIdx.y * BLOCK_K; k < K; k += gridDim.y * BLOCK_K)
      tma_prefetch(A, blockIdx.x / SPLIT * BLOCK_M, k);
  Lcsf<Gemm>::run({A, B, C, M, N, K, ldc}, memory);
}
