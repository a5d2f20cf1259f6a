// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 7, stream-K: if the tiles do not divide evenly among the blocks, the blocks divide the k-iterations
// of the remaining tiles evenly. so several blocks may compute parts of one tile. each of them stores its
// sums in memory and raises a flag. the block with the last k-tiles of a tile adds the sums of the others to
// its own. then it lowers the flags again, so that the next launch finds all of them down. with SHARING 2,
// blocks come in pairs, and so do tiles.
//
// what it gains: at most the time of one round of tiles, the last one. at 8192 cubed this is one round of 16.
// also, blocks finish tiles one after the other, not all at once. so they draw power, and read k-tiles from
// the L2, more evenly.
//
// what limits it: the sums of a part are 128 KB. they are written and read while no tensor core is busy.
//
// source: Osama et al., Stream-K: work-centric parallel decomposition for dense matrix-matrix multiplication
// on the GPU, 2023. this stage is its hybrid of two rounds.

#include "epilogue/deferred.cuh"
#include "pipeline/load_compute_epilogue.cuh"
#include "product.cuh"
#include "ptx/flag.cuh"
#include "scheduler/stream_k.cuh"

using Columns = Staging<OUT>;  // of C that a warp collects before it stores
constexpr int BUFFERS = 2;
constexpr int PAIR_M = SHARING * BLOCK_M;  // rows of C that the blocks of a cluster compute at once

struct Gemm {
  using roles = Roles<BLOCK_M / WGMMA_M>;  // a consumer multiplies 64 rows of the tile
  struct globals : Operands {
    float4* partial;  // sums of a part of a tile, of each block
    int* flags;       // of each warp that consumes: they are there. zero at the beginning, and at the end
  };
  using input_block = KTiles;
  struct shared_block {
    alignas(1024) OUT c[roles::CONSUMER_WARPS][BUFFERS][Columns::ELEMENTS];  // swizzled
  };
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block), sizeof(shared_block));
  using ring = Pipeline<PIPELINE_STAGES, roles::CONSUMER_WARPS, SHARING>;
  struct work_tile {
    int iterations, m, n;  // where the tile starts
    IterationOrder order;  // of its k-tiles
    int others;            // blocks of which the parts are to be added; -1: this is such a part
  };
  struct accumulators {
    float sum[BLOCK_N / 2];
    int first;  // row of the tile
  };

  // a share of the pairs of tiles that are left over, then every so many-th pair
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    const int pairs = tiles_m<PAIR_M>(g) * tiles_n(g), clusters = gridDim.x / SHARING;
    StreamK mine;
    if (!mine.work(number, blockIdx.x / SHARING, clusters, pairs, k_tiles(g), LEAST_GAIN)) return false;
    const Tile place = serpentine_tile<GROUP_M>(mine.tile, tiles_m<PAIR_M>(g), tiles_n(g));
    tile = {mine.iterations, place.row * PAIR_M + cluster_rank() * BLOCK_M, place.column * BLOCK_N};
    tile.order = mine.whole < 0 ? IterationOrder{mine.first, 1} : serpentine_order(mine.whole, mine.iterations);
    tile.others = mine.others;
    return true;
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    constexpr int SHARE = BLOCK_N / SHARING, ALL = (1 << SHARING) - 1;  // columns of B; blocks
    const int k = tile.order(iteration) * BLOCK_K;
    tma_load(input.a, g.A, full, tile.m, k);
    load_b([&](IN* to, int row, int column) { tma_load_to(ALL, to, g.B, full, row, column); }, input.b,
           tile.n, k, cluster_rank() * SHARE, SHARE);
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    input_block* blocks;
    Deferred<OUT, BLOCK_N> deferred = {};  // the tile before

    // of this warp
    __device__ __forceinline__ auto& buffers() { return shared.c[roles::warp_of_all()]; }

    __device__ __forceinline__ void begin(const work_tile& tile, accumulators& sums) {
      deferred.begin(tile.iterations);
      sums.first = uniform(roles::consumer()) * WGMMA_M;
    }

    __device__ __forceinline__ void compute(const work_tile& tile, accumulators& sums, const input_block& input,
                                            Consumed<ring>& consumed, int iteration) {
      KTile<IN>::multiply<TRANS_B>(sums.sum, &input.a[sums.first * BLOCK_K], input.b, iteration > 0);
      consumed.release_previous();
      deferred.step(g.rows, buffers(), iteration, tile.iterations);
    }

    // a warp, 16 rows of the tile
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Consumed<ring>& consumed) {
      deferred.flush(g.rows, buffers());
      wgmma_wait<0>();
      consumed.release_last();
      if (!complete(tile, sums.sum)) return;
      const int m = tile.m + roles::warp_of_all() * WARP_ROWS;
      if constexpr (Deferred<OUT, BLOCK_N>::PARTS > 0)
        deferred.keep(sums.sum, m, tile.n);
      else
#pragma unroll
        for (int n = 0; n < BLOCK_N; n += Columns::COLUMNS)
          Columns::store<BUFFERS>(g.rows, buffers()[n / Columns::COLUMNS % BUFFERS], &sums.sum[n / 2], m,
                                  tile.n + n);
    }

    __device__ __forceinline__ void finish() { deferred.flush(g.rows, buffers()); }

    // a tile has the parts of other blocks added; a part is left to another block, and there is no tile
    __device__ __forceinline__ bool complete(const work_tile& tile, float* sum) {
      if (tile.others < 0) {
        leave_part(sum);
        return false;
      }
      for (int other = 1; other <= tile.others; ++other) add(sum, blockIdx.x - other * SHARING);
      return true;
    }

    // where a block has, or leaves, the sums of a part
    __device__ __forceinline__ float4* partial(int block) {
      return g.partial + block * (BLOCK_N / 8) * roles::CONSUMER_THREADS + threadIdx.x - WARPGROUP;
    }
    __device__ __forceinline__ int* flag(int block) {
      return &g.flags[block * roles::CONSUMER_WARPS + roles::warp_of_all()];
    }

    __device__ __forceinline__ void leave_part(const float* sum) {
      float4* to = partial(blockIdx.x);
#pragma unroll
      for (int i = 0; i < BLOCK_N / 8; ++i)
        to[i * roles::CONSUMER_THREADS] =
            make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
      flag_raise(flag(blockIdx.x));
    }

    __device__ __forceinline__ void add(float* sum, int block) {
      flag_wait(flag(block), roles::LANES);
      const float4* from = partial(block);
#pragma unroll
      for (int i = 0; i < BLOCK_N / 8; ++i) {
        const float4 v = from[i * roles::CONSUMER_THREADS];
        sum[4 * i] += v.x, sum[4 * i + 1] += v.y, sum[4 * i + 2] += v.z, sum[4 * i + 3] += v.w;
      }
      if (threadIdx.x % roles::LANES == 0) *flag(block) = 0;  // for the next launch: nobody else waits for it
    }
  };
};

extern "C" __global__ void __cluster_dims__(SHARING, 1, 1) __launch_bounds__(Gemm::roles::THREADS, 1)
    gemm_stream_k(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                  const __grid_constant__ TensorMap C_boxes, float4* partial, int* flags, OUT* C, int M,
                  int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  LoadComputeEpilogue<Gemm>::run({{A, B, {C_boxes, C, M, N, ldc}, K}, partial, flags}, memory);
}
