// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 11, stream_k: where the tiles do not come out even, blocks would wait for the few that have one more.
// here they share the steps of the tiles that are left over instead, evenly, wherever a tile ends: then a
// tile may be computed in parts. the block with its last slices of k adds to its own sums those of the
// others, which leave theirs in memory and raise a flag, and lowers the flag again: the next launch finds all
// of them down. multicast is kept: blocks are pairs, and so are tiles, in its order.
//
// what it gains: up to the last round of tiles, of 16 at 8192 cubed; and blocks that finish tiles one after
// the other, not all at once, draw power and ask the L2 for slices more evenly.
//
// what limits it: sums of a part are 128 KB, written and read while no tensor core is busy.
//
// source: Osama et al., Stream-K: work-centric parallel decomposition for dense matrix-matrix multiplication
// on the GPU, 2023: the hybrid of two rounds.

#include "ptx/flag.cuh"
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
  static constexpr int THREADS = CONSUMERS * WARPGROUP, WARPS = THREADS / WARP;  // that consume

  struct globals {
    const TensorMap &A, &B, &C_boxes;
    OUT* C;
    float4* partial;  // sums of a part of a tile, of each block
    int* flags;       // of each warp that consumes: they are there. zero at the beginning, and at the end
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
    int others;  // blocks of which the parts are to be added; -1: this is such a part
  };
  struct consumer_state {
    float sum[BLOCK_N / 2];
    int first;  // row of the tile
    bool add;   // there are sums already
  };

  // first this block's share of the steps of tiles that are shared out, its last tile first: other blocks
  // wait for the beginning of that one, and no block waits before it has left what others wait for. then
  // whole tiles, in rounds. pairs of tiles, about GROUP_M rows of them walked together, column by column
  static __device__ __forceinline__ bool common_setup(const globals& g, common_state& common, int item) {
    constexpr int PAIR_M = SHARING * BLOCK_M;
    const int pairs_m = (g.M + PAIR_M - 1) / PAIR_M, tiles_n = (g.N + BLOCK_N - 1) / BLOCK_N;
    const int pairs = pairs_m * tiles_n, steps = (g.K + BLOCK_K - 1) / BLOCK_K;
    const int clusters = gridDim.x / SHARING, cluster = blockIdx.x / SHARING;
    const int shared_out = to_share(pairs, clusters, steps);
    const int all = shared_out * steps, each = all / clusters, more = all % clusters;
    const auto share_of = [&](int cluster) { return each * cluster + more * cluster / clusters; };
    const int from = share_of(cluster), to = share_of(cluster + 1), last = (to - 1) / steps;
    const int parts = to > from ? last - from / steps + 1 : 0;
    int pair;
    common.others = 0;
    if (item < parts) {
      pair = last - item;
      const int begin = pair * steps, end = begin + steps;
      common.order = {max(from - begin, 0), 1};
      common.steps = min(to, end) - max(from, begin);
      if (to < end)
        common.others = -1;
      else
        while (share_of(cluster - common.others) > begin) ++common.others;
    } else {
      pair = shared_out + (item - parts) * clusters + cluster;
      if (pair >= pairs) return false;
      common.steps = steps;
      common.order = there_and_back(item - parts, steps);
    }
    const Tile place = winding_tile<GROUP_M>(pair, pairs_m, tiles_n);
    common.m = place.row * PAIR_M + cluster_rank() * BLOCK_M;
    common.n = place.column * BLOCK_N;
    return true;
  }

  // how many tiles. none where blocks would not gain enough steps for what handing over parts costs; few that
  // are left over together with a whole round: a tile of which many blocks have a part is slow to add up
  static __device__ __forceinline__ int to_share(int tiles, int blocks, int steps) {
    const int left = tiles % blocks, gain = (blocks - left) * steps / blocks;
    if (left == 0 || gain < LEAST_GAIN) return 0;
    return left * 2 < blocks ? left + blocks : left;
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

    static __device__ __forceinline__ bool keep(const globals& g, const common_state& tile,
                                                consumer_state& state, result_state& result) {
      const int warp = threadIdx.x / WARP - WARPGROUP / WARP;
      if (!complete(g, tile, state.sum, warp)) return false;
      result.keep(state.sum, tile.m + warp * WARP_ROWS, tile.n);
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
      if (!complete(g, tile, state.sum, warp)) return;
      auto& buffers = staged.c[warp % (WARPGROUP / WARP)];
#pragma unroll
      for (int n = 0; n < BLOCK_N; n += STAGED)
        Staged<OUT>::store<STAGED_BUFFERS>(g, buffers[n / STAGED % STAGED_BUFFERS], &state.sum[n / 2], m,
                                           tile.n + n);
    }

    // where a block has, or leaves, the sums of a part
    static __device__ __forceinline__ float4* partial(const globals& g, int block) {
      return g.partial + block * (BLOCK_N / 8) * THREADS + threadIdx.x - WARPGROUP;
    }

    // a tile has the parts of other blocks added; a part is left to another block, and there is no tile
    static __device__ __forceinline__ bool complete(const globals& g, const common_state& tile, float* sum,
                                                    int warp) {
      if (tile.others < 0) {
        leave_part(g, sum, warp);
        return false;
      }
      for (int other = 1; other <= tile.others; ++other) add(g, sum, warp, blockIdx.x - other * SHARING);
      return true;
    }

    static __device__ __forceinline__ void leave_part(const globals& g, const float* sum, int warp) {
      float4* to = partial(g, blockIdx.x);
#pragma unroll
      for (int i = 0; i < BLOCK_N / 8; ++i)
        to[i * THREADS] = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
      flag_raise(&g.flags[blockIdx.x * WARPS + warp]);
    }

    static __device__ __forceinline__ void add(const globals& g, float* sum, int warp, int block) {
      int* flag = &g.flags[block * WARPS + warp];
      flag_wait(flag, WARP);
      const float4* from = partial(g, block);
#pragma unroll
      for (int i = 0; i < BLOCK_N / 8; ++i) {
        const float4 v = from[i * THREADS];
        sum[4 * i] += v.x, sum[4 * i + 1] += v.y, sum[4 * i + 2] += v.z, sum[4 * i + 3] += v.w;
      }
      if (threadIdx.x % WARP == 0) *flag = 0;  // for the next launch: nobody else waits for it in this one
    }
  };
};

extern "C" __global__ void __cluster_dims__(SHARING, 1, 1) __launch_bounds__(Lcsf<Gemm, SHARING>::THREADS, 1)
    gemm_stream_k(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                  const __grid_constant__ TensorMap C_boxes, float4* partial, int* flags, OUT* C, int M,
                  int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Lcsf<Gemm, SHARING>::run({A, B, C_boxes, C, partial, flags, M, N, K, ldc}, memory);
}
