// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 13, a branch of stage 9, flexible tiles: one side of a tile is 128 or 192, as wgmma has it for its
// rows, 64 for each consumer. the other side is any multiple of 16 up to 256, since wgmma may have that many
// columns. with SWAPPED, rows of C are columns of the wgmma: it multiplies B^T by A^T, and the sums are
// transposed on their way to C. so either side of C is divided almost without a rest.
//
// what it gains: 288 rows are two tiles of 144, not three of 128; 184 columns are one tile.
//
// what limits it: a wgmma with few columns reads more of shared memory for the same work.

#include "epilogue/cluster_sums.cuh"
#include "epilogue/staging.cuh"
#include "pipeline/load_compute_epilogue.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/wgmma_all.cuh"
#include "scheduler/tile_order.cuh"
#include "tile/k_tile.cuh"

// the wgmma has HIGH rows in all its consumers, and WIDE columns
constexpr int HIGH = SWAPPED ? BLOCK_N : BLOCK_M, WIDE = SWAPPED ? BLOCK_M : BLOCK_N;
constexpr bool HIGH_ALONG_K = !SWAPPED || TRANS_B, WIDE_ALONG_K = SWAPPED || TRANS_B;
constexpr int PANEL = KTile<IN>::DEPTH;  // columns of B in one box where they lie along its rows
constexpr int PANELS = (BLOCK_N + PANEL - 1) / PANEL;
constexpr int WARP_ROWS = 16;  // of the wgmma: a warp holds 16 rows of 64

static_assert(HIGH % WGMMA_M == 0, "each consumer multiplies 64 rows: that side is a multiple of 64");
static_assert(WIDE % 16 == 0 && WIDE <= 256, "the other side is a multiple of 16, and 256 at most");
static_assert(BLOCK_K == KTile<IN>::DEPTH, "a row of a k-tile is as wide as the swizzle: BLOCK_K is 64");
static_assert(!SWAPPED || sizeof(OUT) == 2, "sums are transposed in pairs of 16 bits");

// stmatrix.x4.trans: as stmatrix_x4, of which every 8x8 matrix is transposed
__device__ __forceinline__ void stmatrix_x4_trans(void* row, const u32 (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

struct Gemm {
  using roles = Roles<HIGH / WGMMA_M>;  // a consumer multiplies 64 rows
  using Sums = ClusterSums<SPLIT, WIDE, WARPGROUP, roles::CONSUMER_THREADS>;
  static constexpr int PART = Sums::PART;  // columns of the wgmma that a block of the cluster stores
  // columns of C that a warp collects before it stores: as wide rows as divide its part
  static constexpr int FULL = ROW_BYTES / sizeof(OUT);
  static constexpr int STORED = SWAPPED || PART % FULL == 0 ? FULL : PART % (FULL / 2) == 0 ? FULL / 2 : 16;
  using Columns = Staging<OUT, STORED>;
  static constexpr int BUFFERS = PART > STORED ? 2 : 1;
  // a warp collects for itself, or, SWAPPED, a consumer 64 rows of C
  static constexpr int ROWS_AT_ONCE = 64, COLLECTED = SWAPPED ? ROWS_AT_ONCE / WARP_ROWS : BUFFERS;

  struct globals {
    const TensorMap &A, &B;
    Rows<OUT> rows;  // C
    int K;
  };
  struct input_block {
    IN a[BLOCK_M * BLOCK_K];                               // rows of k
    IN b[(TRANS_B ? BLOCK_N : PANELS * PANEL) * BLOCK_K];  // rows of k, too, or panels of 64 columns
  };
  struct shared_block {
    alignas(1024) OUT c[SWAPPED ? roles::CONSUMERS : roles::CONSUMER_WARPS][COLLECTED][Columns::ELEMENTS];
  };
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block), sizeof(shared_block));
  using ring = Pipeline<PIPELINE_STAGES, roles::CONSUMER_WARPS>;
  struct work_tile {
    int iterations, m, n;  // where the tile starts
    int first;             // k-tile of this block's part
  };
  struct accumulators {
    float sum[WIDE / 2];
  };

  static_assert(PART % 16 == 0, "a part of a tile is a multiple of 16 columns of the wgmma");
  static_assert(Sums::BYTES <= PIPELINE_STAGES * sizeof(input_block),
                "the others' sums do not fit into the buffer");

  // every so many-th tile, a part of its k
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    const int mine = (blockIdx.x + number * gridDim.x) / SPLIT;
    const int down = (g.rows.rows + BLOCK_M - 1) / BLOCK_M, across = (g.rows.columns + BLOCK_N - 1) / BLOCK_N;
    if (mine >= down * across) return false;
    const Tile place = grouped_tile<GROUP_M>(mine, down, across);
    const int all = (g.K + BLOCK_K - 1) / BLOCK_K, rank = cluster_rank_of<SPLIT>(),
              first = all * rank / SPLIT;
    tile = {all * (rank + 1) / SPLIT - first, place.row * BLOCK_M, place.column * BLOCK_N, first};
    return true;
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    const int k = (tile.first + iteration) * BLOCK_K;
    tma_load(input.a, g.A, full, tile.m, k);
    if constexpr (TRANS_B)
      tma_load(input.b, g.B, full, tile.n, k);
    else
      for (int i = 0; i < PANELS; ++i)
        tma_load(&input.b[i * PANEL * BLOCK_K], g.B, full, k, tile.n + i * PANEL);
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    input_block* blocks;
    int stored = 0;  // buffers so far: of a tile they may be an odd number

    __device__ __forceinline__ void begin(const work_tile&, accumulators& sums) {
#pragma unroll
      for (float& x : sums.sum) x = 0.f;
    }

    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Consumed<ring>& consumed, int) {
      constexpr int ALONG_K = WGMMA_K * sizeof(IN),
                    ACROSS_K = WGMMA_K * ROW_BYTES;  // bytes to the next 16 of k
      // 64 rows that lie along k, and a panel of 64 columns, have as many bytes
      const int own = uniform(roles::consumer()) * WGMMA_M * BLOCK_K;
      const IN *const high = (SWAPPED ? input.b : input.a) + own, *const wide = SWAPPED ? input.a : input.b;
      const u64 a = swizzled_operand(shared_address(high), 0, ATOM_BYTES);
      const u64 b = swizzled_operand(shared_address(wide),
                                     WIDE_ALONG_K || PANELS == 1 ? 0 : PANEL * ROW_BYTES, ATOM_BYTES);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < BLOCK_K / WGMMA_K; ++k)
        wgmma<!WIDE_ALONG_K, !HIGH_ALONG_K>(sums.sum, operand_at(a, k * (HIGH_ALONG_K ? ALONG_K : ACROSS_K)),
                                            operand_at(b, k * (WIDE_ALONG_K ? ALONG_K : ACROSS_K)), IN());
      wgmma_commit();
      wgmma_wait<1>();
      consumed.release_previous();
    }

    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Consumed<ring>& consumed) {
      wgmma_wait<0>();
      consumed.release_last();
      const int rank = cluster_rank_of<SPLIT>();
      if constexpr (SPLIT > 1) Sums::send(sums.sum, rank, blocks);
#pragma unroll
      for (int part = 0; part < SPLIT; ++part) {
        if (part != rank) continue;  // registers have no run-time index: all parts are written out
        float* const sum = &sums.sum[part * PART / 2];
        if constexpr (SPLIT > 1) Sums::gather(sum, blocks);
        store(sum, tile, part * PART);
      }
    }

    // what is held of columns of the wgmma from `first` on
#if SWAPPED
    // by a consumer, 64 columns of C: each warp puts 16 of them into rows of shared memory, and stores 16
    // rows
    __device__ __forceinline__ void store(const float* sum, const work_tile& tile, int first) {
      const int lane = threadIdx.x % roles::LANES, warp = roles::warp(), name = 1 + roles::consumer();
      const int column = tile.n + roles::consumer() * WGMMA_M;
      auto& rows = shared.c[roles::consumer()];
#pragma unroll
      for (int done = 0; done < PART; done += ROWS_AT_ONCE) {
        const int count = PART - done < ROWS_AT_ONCE ? PART - done : ROWS_AT_ONCE;
        tma_store_wait_read<0>();
        named_sync<WARPGROUP>(name);  // what was here is stored
#pragma unroll
        for (int i = 0; i < count; i += WARP_ROWS) {
          const float* const s = &sum[(done + i) / 2];
          const u32 four[4] = {pair_from_float<OUT>(s[0], s[1]), pair_from_float<OUT>(s[2], s[3]),
                               pair_from_float<OUT>(s[4], s[5]), pair_from_float<OUT>(s[6], s[7])};
          stmatrix_x4_trans(
              Columns::chunk(rows[i / WARP_ROWS], lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2), four);
        }
        async_fence();
        named_sync<WARPGROUP>(name);  // all 64 columns are there
        if (warp * WARP_ROWS >= count) continue;
        const int row = tile.m + first + done + warp * WARP_ROWS;
        if (!g.rows.mapped()) {
          Columns::template by_threads<false>(g.rows, rows[warp], row, column);
        } else if (lane == 0) {
          tma_store(g.rows.boxes, rows[warp], row, column);
          tma_store_commit();
        }
      }
    }
#else
    // by a warp, 16 rows of C
    __device__ __forceinline__ void store(const float* sum, const work_tile& tile, int first) {
      const int warp = roles::warp_of_all();
#pragma unroll
      for (int n = 0; n < PART; n += STORED)
        Columns::template store<BUFFERS>(g.rows, shared.c[warp][stored++ % BUFFERS], &sum[n / 2],
                                         tile.m + warp * WARP_ROWS, tile.n + first + n);
    }
#endif

    __device__ __forceinline__ void finish() {}
  };
};

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
#else
#define CLUSTER
#endif

extern "C" __global__ void CLUSTER __launch_bounds__(Gemm::roles::THREADS, 1)
    gemm_flexible_tiles(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                        const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  LoadComputeEpilogue<Gemm>::run({A, B, {C_boxes, C, M, N, ldc}, K}, memory);
}
