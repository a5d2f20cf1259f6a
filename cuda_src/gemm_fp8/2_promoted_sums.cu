// C[m, n] = a_scale[m] b_scale[n] sum_k A[m, k] B[n, k]. A: (M, K), B: (N, K), of e4m3, C: (M, N), rows ldc
// elements apart. A and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows
// are. sm_90a.
//
// stage 2, promoted sums: wgmma multiplies e4m3, which TMA loads. the tensor cores keep about 14 bits of a
// sum. these are too few for a long k. so the tensor cores only add up the products of one k-tile, and fp32
// units add up the k-tiles. while one consumer adds, the other multiplies. meanwhile the scales are loaded
// into shared memory, where they are kept until the end of a tile.
//
// tiles are 192 columns wide, and the two blocks of a cluster share B. tiles are 128 columns wide instead
// where this leaves less of the device idle at the end. then there are registers for the sums of two k-tiles,
// and one is added while the other is multiplied.
//
// what it gains: twice as many multiplications per clock as with bf16, from half the bytes. the result is as
// exact as the inputs.
//
// what limits it: a sum needs two or three registers. so tiles are narrower than those of bf16, and more is
// read for the same work.

#include <cuda_fp8.h>

#include "epilogue/staging.cuh"
#include "pipeline/load_compute_epilogue.cuh"
#include "ptx/cp_async.cuh"
#include "scheduler/tile_order.cuh"

using Columns = Staging<OUT>;  // of C that a warp collects before it stores
constexpr int WGMMA_M = 64, WGMMA_K = 32;
constexpr int ATOM_BYTES = 8 * BLOCK_K;       // the swizzle repeats every 8 rows
constexpr int WARP_ROWS = Columns::ROWS;      // of C: a warp holds 16 rows of 64
constexpr int SHARE = BLOCK_N / CLUSTER;      // rows of B that each block of a cluster loads

static_assert(sizeof(IN) == 1, "wgmma_e4m3 takes e4m3");
static_assert(BLOCK_M == 2 * WGMMA_M, "two consumers multiply 64 rows each: BLOCK_M has to be 128");
static_assert(BLOCK_N == 128 || BLOCK_N == 192, "a thread has registers for two sums of 128 or 192 columns");
static_assert(BLOCK_K == 128, "BLOCK_K has to be 128: a row of a k-tile is as wide as the swizzle");

struct Gemm {
  using roles = Roles<BLOCK_M / WGMMA_M>;
  static constexpr int K_TILES = BLOCK_N == 128 ? 2 : 1;  // an iteration: there are registers for so many

  struct globals {
    const TensorMap &A, &B;
    Rows<OUT> rows;
    const float *a_scale, *b_scale;
    int K;
  };
  struct input_block {
    IN a[K_TILES][BLOCK_M * BLOCK_K], b[K_TILES][BLOCK_N * BLOCK_K];  // rows of k
  };
  struct shared_block {
    alignas(1024) OUT c[roles::CONSUMER_WARPS][BUFFERS][Columns::ELEMENTS];  // swizzled
    // a copy for each warp, which then need not wait for others
    float a_scale[roles::CONSUMER_WARPS][WARP_ROWS], b_scale[roles::CONSUMER_WARPS][BLOCK_N];
  };
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block), sizeof(shared_block));
  using ring = Pipeline<PIPELINE_STAGES, roles::CONSUMER_WARPS, CLUSTER>;
  struct work_tile {
    int iterations, m, n;  // where the tile starts
  };
  struct accumulators {
    float sum[BLOCK_N / 2];
    int first;  // row of the tile
  };

  // as many tiles as blocks share B, GROUP_M rows of them walked together, column by column
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    constexpr int SHARED_M = CLUSTER * BLOCK_M;
    const int tiles_m = (g.rows.rows + SHARED_M - 1) / SHARED_M;
    const int tiles_n = (g.rows.columns + BLOCK_N - 1) / BLOCK_N;
    const int mine = (blockIdx.x + number * gridDim.x) / CLUSTER;
    if (mine >= tiles_m * tiles_n) return false;
    const Tile place = grouped_tile<GROUP_M>(mine, tiles_m, tiles_n);
    tile.m = place.row * SHARED_M + cluster_rank_of<CLUSTER>() * BLOCK_M;
    tile.n = place.column * BLOCK_N;
    tile.iterations = (g.K + K_TILES * BLOCK_K - 1) / (K_TILES * BLOCK_K);  // beyond K zeros come
    return true;
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    constexpr unsigned ALL = (1 << CLUSTER) - 1;
    const int mine = cluster_rank_of<CLUSTER>() * SHARE;
#pragma unroll
    for (int i = 0; i < K_TILES; ++i) {
      const int k = (iteration * K_TILES + i) * BLOCK_K;
      tma_load(input.a[i], g.A, full, tile.m, k);
      if constexpr (CLUSTER > 1)
        tma_load_to(ALL, &input.b[i][mine * BLOCK_K], g.B, full, tile.n + mine, k);
      else
        tma_load(input.b[i], g.B, full, tile.n, k);
    }
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    input_block* blocks;

    __device__ __forceinline__ void begin(const work_tile& tile, accumulators& sums) {
      sums.first = uniform(roles::consumer()) * WGMMA_M;
#pragma unroll
      for (float& x : sums.sum) x = 0.f;
      const int lane = threadIdx.x % roles::LANES, mine = roles::warp_of_all();
      const auto copy = [](float* to, const float* scales, int i, int count) {
        cp_async<4>(to, i < count ? scales + i : scales, i < count ? sizeof(float) : 0);
      };
      __syncwarp();  // nobody reads those of the tile before
      if (lane < WARP_ROWS)
        copy(&shared.a_scale[mine][lane], g.a_scale, tile.m + mine * WARP_ROWS + lane, g.rows.rows);
      for (int n = lane; n < BLOCK_N; n += roles::LANES)
        copy(&shared.b_scale[mine][n], g.b_scale, tile.n + n, g.rows.columns);
      cp_async_commit();
    }

    // a warpgroup, 64 rows of the tile. of two k-tiles one is added to the sum while the other is multiplied
    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Consumed<ring>& consumed, int) {
      float products[K_TILES][BLOCK_N / 2];
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < K_TILES; ++i) {
        const u64 a = swizzled_operand(shared_address(&input.a[i][sums.first * BLOCK_K]), 0, ATOM_BYTES);
        const u64 b = swizzled_operand(shared_address(input.b[i]), 0, ATOM_BYTES);
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += WGMMA_K)
          wgmma_e4m3(products[i], operand_at(a, k), operand_at(b, k), k > 0);
        wgmma_commit();
      }
      wgmma_wait<K_TILES - 1>();
      add(sums.sum, products[0]);
      if constexpr (K_TILES > 1) {
        wgmma_wait<0>();
        add(sums.sum, products[1]);
      }
      consumed.release();
    }

    static __device__ __forceinline__ void add(float (&sum)[BLOCK_N / 2], const float (&products)[BLOCK_N / 2]) {
#pragma unroll
      for (int i = 0; i < BLOCK_N / 2; ++i) sum[i] += products[i];
    }

    // a warp, 16 rows of the tile
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums, Consumed<ring>&) {
      const int mine = roles::warp_of_all(), row = threadIdx.x % roles::LANES / 4;
      cp_async_wait<0>();
      __syncwarp();
      const float* a_scale = shared.a_scale[mine];
      const float upper = a_scale[row], lower = a_scale[row + WARP_ROWS / 2];
#pragma unroll
      for (int i = 0; i < BLOCK_N / 2; ++i) {  // in pairs: row lane / 4, then the one 8 further down
        const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        sums.sum[i] *= (i / 2 % 2 ? lower : upper) * shared.b_scale[mine][column];
      }
#pragma unroll
      for (int n = 0; n < BLOCK_N; n += Columns::COLUMNS)
        Columns::store<BUFFERS>(g.rows, shared.c[mine][n / Columns::COLUMNS % BUFFERS], &sums.sum[n / 2],
                                tile.m + mine * WARP_ROWS, tile.n + n);
    }

    __device__ __forceinline__ void finish() {}
  };
};

#if CLUSTER > 1
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif

extern "C" __global__ void CLUSTERED __launch_bounds__(Gemm::roles::THREADS, 1)
    gemm_fp8_promoted_sums(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                           const __grid_constant__ TensorMap C_boxes, const float* a_scale,
                           const float* b_scale, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  LoadComputeEpilogue<Gemm>::run({A, B, {C_boxes, C, M, N, ldc}, a_scale, b_scale, K}, memory);
}
