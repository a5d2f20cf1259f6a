// C[m, n] = a_scale[m] b_scale[n] sum_k A[m, k] B[n, k]. A: (M, K), B: (N, K), of e4m3, C: (M, N), rows ldc
// elements apart. A and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows
// are. sm_90a.
//
// stage 2, promoted sums: wgmma of e4m3, fed by TMA, on the template. the tensor cores keep about 14 bits of
// a sum, too few for a long k: they add up one slice, and float adds up the slices. while one consumer adds,
// the other multiplies. scales come into the scratch block meanwhile and wait there for the end of a tile.
//
// tiles are 192 columns wide, and two blocks of a cluster share B; or 128 where that leaves less of the
// device idle at the end. then there are registers for the sums of two slices, of which one is added while
// the other is multiplied.
//
// what it gains: twice the multiplications of bf16 a clock, from half the bytes, as exact as the inputs are.
//
// what limits it: a sum needs two registers or three, so tiles are narrower than those of bf16, and more is
// read for the same work.

#include <cuda_fp8.h>

#include "ptx/cp_async.cuh"
#include "pipeline/lcsf.cuh"
#include "epilogue/tiles.cuh"

constexpr int WARP = 32, WGMMA_M = 64, WGMMA_K = 32;
constexpr int ATOM_BYTES = 8 * BLOCK_K;  // the swizzle repeats every 8 rows
constexpr int WARP_ROWS = Staged<OUT>::ROWS,
              STAGED = Staged<OUT>::COLUMNS;  // of C: a warp holds 16 rows of 64
constexpr int SHARE = BLOCK_N / CLUSTER;      // rows of B that each block of a cluster loads

static_assert(sizeof(IN) == 1, "wgmma_e4m3 takes e4m3");
static_assert(BLOCK_M == 2 * WGMMA_M, "two consumers multiply 64 rows each: BLOCK_M has to be 128");
static_assert(BLOCK_N == 128 || BLOCK_N == 192, "a thread has registers for two sums of 128 or 192 columns");
static_assert(BLOCK_K == 128, "BLOCK_K has to be 128: a row of a slice is as wide as the swizzle");

struct Gemm {
  static constexpr int CONSUMERS = BLOCK_M / WGMMA_M, IN_FLIGHT = 0;
  static constexpr int SLICES = BLOCK_N == 128 ? 2 : 1;  // a step: as many as there are registers for

  struct globals {
    const TensorMap &A, &B, &C_boxes;
    const float *a_scale, *b_scale;
    OUT* C;
    int M, N, K, ldc;
  };
  struct input_block {
    IN a[SLICES][BLOCK_M * BLOCK_K], b[SLICES][BLOCK_N * BLOCK_K];  // rows of k
  };
  struct finish_block {  // columns of C that a warp collects before it stores, swizzled
    OUT c[WARPGROUP / WARP][BUFFERS][Staged<OUT>::ELEMENTS];
  };
  struct scratch_block {  // a copy for each warp, which then need not wait for others
    float a_scale[WARPGROUP / WARP][WARP_ROWS], b_scale[WARPGROUP / WARP][BLOCK_N];
  };
  struct common_state {
    int steps, m, n;  // of k; where the tile starts
  };
  struct consumer_state {
    float sum[BLOCK_N / 2];
    int first;  // row of the tile
  };

  static __device__ __forceinline__ int rank() { return CLUSTER > 1 ? cluster_rank() : 0; }

  // as many tiles as blocks share B, GROUP_M rows of them walked together, column by column
  static __device__ __forceinline__ bool common_setup(const globals& g, common_state& common, int item) {
    constexpr int SHARED_M = CLUSTER * BLOCK_M;
    const int rows = (g.M + SHARED_M - 1) / SHARED_M, tiles_n = (g.N + BLOCK_N - 1) / BLOCK_N;
    const int number = (blockIdx.x + item * gridDim.x) / CLUSTER;
    if (number >= rows * tiles_n) return false;
    const Tile place = grouped_tile<GROUP_M>(number, rows, tiles_n);
    common.m = place.row * SHARED_M + rank() * BLOCK_M;
    common.n = place.column * BLOCK_N;
    common.steps = (g.K + SLICES * BLOCK_K - 1) / (SLICES * BLOCK_K);  // beyond K zeros come
    return true;
  }

  struct producer {
    static __device__ __forceinline__ void load(const globals& g, const common_state& tile,
                                                input_block& input, Barrier& full, int step) {
      constexpr unsigned ALL = (1 << CLUSTER) - 1;
      const int mine = rank() * SHARE;
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice) {
        const int k = (step * SLICES + slice) * BLOCK_K;
        tma_load(input.a[slice], g.A, full, tile.m, k);
        if constexpr (CLUSTER > 1)
          tma_load_to(ALL, &input.b[slice][mine * BLOCK_K], g.B, full, tile.n + mine, k);
        else
          tma_load(input.b[slice], g.B, full, tile.n, k);
      }
    }
  };

  struct consumer {
    // which 16 rows of the tile are this warp's
    static __device__ __forceinline__ int warp() { return threadIdx.x / WARP - WARPGROUP / WARP; }

    static __device__ __forceinline__ void setup(const globals& g, const common_state& tile,
                                                 consumer_state& state, scratch_block& scratch) {
      state.first = uniform(Lcsf<Gemm, CLUSTER>::warpgroup()) * WGMMA_M;
#pragma unroll
      for (float& x : state.sum) x = 0.f;
      const int lane = threadIdx.x % WARP, mine = warp() % (WARPGROUP / WARP);
      const auto copy = [](float* to, const float* scales, int i, int count) {
        cp_async<4>(to, i < count ? scales + i : scales, i < count ? sizeof(float) : 0);
      };
      __syncwarp();  // nobody reads those of the tile before
      if (lane < WARP_ROWS)
        copy(&scratch.a_scale[mine][lane], g.a_scale, tile.m + warp() * WARP_ROWS + lane, g.M);
      for (int n = lane; n < BLOCK_N; n += WARP) copy(&scratch.b_scale[mine][n], g.b_scale, tile.n + n, g.N);
      cp_async_commit();
    }

    // a warpgroup, 64 rows of the tile. of two slices one is added to the sum while the other is multiplied
    static __device__ __forceinline__ void compute(const common_state&, consumer_state& state,
                                                   const input_block& input) {
      float sums[SLICES][BLOCK_N / 2];
      wgmma_fence();
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice) {
        const u64 a = swizzled_operand(shared_address(&input.a[slice][state.first * BLOCK_K]), 0, ATOM_BYTES);
        const u64 b = swizzled_operand(shared_address(input.b[slice]), 0, ATOM_BYTES);
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += WGMMA_K)
          wgmma_e4m3(sums[slice], operand_at(a, k), operand_at(b, k), k > 0);
        wgmma_commit();
      }
      wgmma_wait<SLICES - 1>();
      add(state.sum, sums[0]);
      if constexpr (SLICES > 1) {
        wgmma_wait<0>();
        add(state.sum, sums[1]);
      }
    }

    static __device__ __forceinline__ void add(float (&sum)[BLOCK_N / 2], const float (&slice)[BLOCK_N / 2]) {
#pragma unroll
      for (int i = 0; i < BLOCK_N / 2; ++i) sum[i] += slice[i];
    }

    static __device__ __forceinline__ void finish(const globals& g, const common_state& tile,
                                                  consumer_state& state, const scratch_block& scratch,
                                                  finish_block& staged) {
      const int mine = warp() % (WARPGROUP / WARP), row = threadIdx.x % WARP / 4;
      cp_async_wait<0>();
      __syncwarp();
      const float* a_scale = scratch.a_scale[mine];
      const float upper = a_scale[row], lower = a_scale[row + WARP_ROWS / 2];
#pragma unroll
      for (int i = 0; i < BLOCK_N / 2; ++i) {  // in pairs: row lane / 4, then the one 8 further down
        const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        state.sum[i] *= (i / 2 % 2 ? lower : upper) * scratch.b_scale[mine][column];
      }
#pragma unroll
      for (int n = 0; n < BLOCK_N; n += STAGED)
        Staged<OUT>::store<BUFFERS>(g, staged.c[mine][n / STAGED % BUFFERS], &state.sum[n / 2],
                                    tile.m + warp() * WARP_ROWS, tile.n + n);
    }
  };
};

#if CLUSTER > 1
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif

extern "C" __global__ void CLUSTERED __launch_bounds__(Lcsf<Gemm, CLUSTER>::THREADS, 1)
    gemm_fp8_promoted_sums(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                           const __grid_constant__ TensorMap C_boxes, const float* a_scale,
                           const float* b_scale, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Lcsf<Gemm, CLUSTER>::run({A, B, C_boxes, a_scale, b_scale, C, M, N, K, ldc}, memory);
}
