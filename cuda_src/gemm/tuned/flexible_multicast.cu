// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), with TRANS_A: (K, M), C: (M, N), rows
// ldc elements apart. A and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its
// rows are. batches, whose maps have three dimensions, and an epilogue as general.cuh has them. partial:
// (tiles, CLUSTERS, BLOCK_M BLOCK_N) and counters: (tiles), scratch, the counters zero. they are not used
// with one cluster. bf16 and fp16, sm_90a.
//
// stage 14, flexible multicast: SHARING blocks of a cluster compute tiles that are neighbours: one above the
// other, with the same columns of B, or with SHARE_A side by side, with the same rows of A. of what they
// share each block loads a part, and TMA delivers it to all. where tiles are few and k is long, CLUSTERS
// clusters share tiles: blocks leave their sums in memory, and the last one of a tile adds them up. a
// consumer may multiply two bands of 64 rows.
//
// what it gains: fewer lines of the L2 are asked for. where rows are no multiples of 128 bytes, each row of a
// k-tile lies in two lines, and their number decides: the L2 delivers about 105 lines a nanosecond.
//
// what limits it: blocks of a cluster wait for each other. clusters of four do not fill all multiprocessors.

#include "epilogue/register_sums.cuh"
#include "epilogue/staging.cuh"
#include "general.cuh"
#include "pipeline/load_compute_epilogue.cuh"
#include "ptx/cluster.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/tma_ranks.cuh"
#include "ptx/wgmma_all.cuh"
#include "scheduler/tile_order.cuh"
#include "tile/fragment.cuh"
#include "tile/k_tile.cuh"

// consumers have HIGH rows of wgmma, and WIDE columns
constexpr int HIGH = SWAPPED ? BLOCK_N : BLOCK_M, WIDE = SWAPPED ? BLOCK_M : BLOCK_N;
constexpr bool A_ALONG_K = !TRANS_A, B_ALONG_K = TRANS_B;
constexpr bool HIGH_ALONG_K = SWAPPED ? B_ALONG_K : A_ALONG_K, WIDE_ALONG_K = SWAPPED ? A_ALONG_K : B_ALONG_K;
constexpr int PANEL =
    KTile<IN>::DEPTH;  // rows of A, or columns of B, in one box where they do not lie along k
__host__ __device__ constexpr int panels(int lines) { return (lines + PANEL - 1) / PANEL; }
constexpr int WARP_ROWS = 16;  // of the wgmma: a warp holds 16 rows of 64

constexpr int CONSUMERS = HIGH == 192 ? 3 : 2, BANDS = HIGH / CONSUMERS / WGMMA_M;  // of 64 rows, of each
constexpr int TALL = (SHARE_A ? 1 : SHARING) * BLOCK_M, BROAD = (SHARE_A ? SHARING : 1) * BLOCK_N;  // of all
constexpr unsigned ALL = (1 << SHARING) - 1;  // blocks of the cluster

static_assert(HIGH % (CONSUMERS * WGMMA_M) == 0, "each consumer multiplies 64 rows at a time");
static_assert(WIDE % 16 == 0 && WIDE <= 256, "the other side is a multiple of 16, and 256 at most");
static_assert((SHARE_A ? BLOCK_M : BLOCK_N) % (SHARING * 8) == 0, "each block loads groups of 8 rows");
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
  using roles = Roles<CONSUMERS>;
  // columns of C that a warp collects before it stores: as wide rows as divide the tile
  static constexpr int FULL = ROW_BYTES / sizeof(OUT);
  static constexpr int STORED = SWAPPED || WIDE % FULL == 0 ? FULL : WIDE % (FULL / 2) == 0 ? FULL / 2 : 16;
  using Columns = Staging<OUT, STORED>;
  static constexpr int BUFFERS = 2;
  // a warp collects for itself, or, SWAPPED, a consumer 64 rows of C
  static constexpr int ROWS_AT_ONCE = 64, COLLECTED = SWAPPED ? ROWS_AT_ONCE / WARP_ROWS : BUFFERS;

  struct globals {
    const TensorMap &A, &B;
    Rows<OUT> rows;  // C
    int K;
    float* partial;
    unsigned* counters;
    Epilogue epilogue;
    Steps steps;
    int count;  // products
  };
  struct input_block {  // rows of k, or panels of 64 rows of A, or columns of B
    IN a[(A_ALONG_K ? BLOCK_M : panels(BLOCK_M) * PANEL) * BLOCK_K];
    IN b[(B_ALONG_K ? BLOCK_N : panels(BLOCK_N) * PANEL) * BLOCK_K];
  };
  struct shared_block {
    alignas(1024) OUT c[SWAPPED ? roles::CONSUMERS : roles::CONSUMER_WARPS][COLLECTED][Columns::ELEMENTS];
    bool last;  // of the blocks that share a tile
  };
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block), sizeof(shared_block));
  using ring = Pipeline<PIPELINE_STAGES, roles::CONSUMER_WARPS, SHARING>;
  struct work_tile {
    int iterations, m, n;     // where the tile starts
    int first, part, number;  // k-tile of this block's part of k; which part; which tile
    int product;              // of a batch
  };
  struct accumulators {
    float sum[BANDS][WIDE / 2];
  };

  // every so many-th group of neighbours
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    const int mine = (blockIdx.x + number * gridDim.x) / SHARING, group = mine / CLUSTERS;
    const int down = (g.rows.rows + TALL - 1) / TALL, across = (g.rows.columns + BROAD - 1) / BROAD;
    if (group >= down * across * (BATCHED ? g.count : 1)) return false;
    const int product = BATCHED ? group / (down * across) : 0;
    const Tile place = grouped_tile<GROUP_M>(group - product * down * across, down, across);
    const int all = (g.K + BLOCK_K - 1) / BLOCK_K, rank = cluster_rank(), part = mine - group * CLUSTERS;
    const int first = all * part / CLUSTERS;
    tile = {all * (part + 1) / CLUSTERS - first, place.row * TALL, place.column * BROAD, first, part};
    (SHARE_A ? tile.n : tile.m) += rank * (SHARE_A ? BLOCK_N : BLOCK_M);
    tile.number = group * SHARING + rank;
    tile.product = product;
    return true;
  }

  // for all blocks if it is SHARED, else for this one
  template <bool SHARED, class... Place>
  static __device__ __forceinline__ void load_box(IN* to, const TensorMap& map, Barrier& full,
                                                  Place... place) {
    if constexpr (SHARED)
      tma_load_to(ALL, to, map, full, place...);
    else
      tma_load(to, map, full, place...);
  }

  // ROWS rows of a k-tile: if they are SHARED, this block's part of them, for all
  template <bool SHARED, int ROWS>
  static __device__ __forceinline__ void load_rows(IN* to, const TensorMap& map, Barrier& full, int row,
                                                   int column, int matrix) {
    const int own = cluster_rank() * (SHARED ? ROWS / SHARING : 0);
    IN* const part = to + own * PANEL;
    if constexpr (BATCHED)
      load_box<SHARED>(part, map, full, matrix, row + own, column);
    else
      load_box<SHARED>(part, map, full, row + own, column);
  }

  // LINES rows of A or columns of B from `line` on
  template <bool ALONG_K, bool SHARED, int LINES>
  static __device__ __forceinline__ void load_operand(IN* to, const TensorMap& map, Barrier& full, int line,
                                                      int k, int matrix) {
    if constexpr (ALONG_K)
      load_rows<SHARED, LINES>(to, map, full, line, k, matrix);
    else
      for (int i = 0; i < panels(LINES); ++i)
        load_rows<SHARED, BLOCK_K>(&to[i * PANEL * BLOCK_K], map, full, k, line + i * PANEL, matrix);
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    const int k = (tile.first + iteration) * BLOCK_K;
    load_operand<A_ALONG_K, SHARE_A, BLOCK_M>(input.a, g.A, full, tile.m, k, g.steps.a ? tile.product : 0);
    load_operand<B_ALONG_K, !SHARE_A, BLOCK_N>(input.b, g.B, full, tile.n, k, g.steps.b ? tile.product : 0);
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    input_block* blocks;
    int stored = 0;  // buffers so far: of a tile they may be an odd number

    __device__ __forceinline__ void begin(const work_tile&, accumulators& sums) {
#pragma unroll
      for (auto& band : sums.sum)
#pragma unroll
        for (float& x : band) x = 0.f;
    }

    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Consumed<ring>& consumed, int) {
      constexpr int ALONG_K = WGMMA_K * sizeof(IN),
                    ACROSS_K = WGMMA_K * ROW_BYTES;  // bytes to the next 16 of k
      // 64 rows that lie along k, and a panel of 64 columns, have as many bytes
      const int own = uniform(roles::consumer()) * BANDS * WGMMA_M * BLOCK_K;
      const IN *const high = (SWAPPED ? input.b : input.a) + own, *const wide = SWAPPED ? input.a : input.b;
      const u64 a = swizzled_operand(shared_address(high), 0, ATOM_BYTES);
      const u64 b = swizzled_operand(shared_address(wide),
                                     WIDE_ALONG_K || panels(WIDE) == 1 ? 0 : PANEL * ROW_BYTES, ATOM_BYTES);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < BLOCK_K / WGMMA_K; ++k)
#pragma unroll
        for (int band = 0; band < BANDS; ++band)
          wgmma<!WIDE_ALONG_K, !HIGH_ALONG_K>(
              sums.sum[band],
              operand_at(a, band * WGMMA_M * ROW_BYTES + k * (HIGH_ALONG_K ? ALONG_K : ACROSS_K)),
              operand_at(b, k * (WIDE_ALONG_K ? ALONG_K : ACROSS_K)), IN());
      wgmma_commit();
      wgmma_wait<1>();
      consumed.release_previous();
    }

    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Consumed<ring>& consumed) {
      wgmma_wait<0>();
      consumed.release_last();
      if (CLUSTERS > 1 && !add_up(tile, sums)) return;
#pragma unroll
      for (int band = 0; band < BANDS; ++band) {
        const int first = (roles::consumer() * BANDS + band) * WGMMA_M;
        if constexpr (EPILOGUE) change(sums.sum[band], tile, first);
        store(sums.sum[band], tile, first);
      }
    }

    // what is stored of the sums of 64 rows of the wgmma
    __device__ __forceinline__ void change(float (&sum)[WIDE / 2], const work_tile& tile, int first) {
      const Epilogue epilogue = g.epilogue.from(tile.m, tile.n, tile.product, g.steps.added);
#pragma unroll
      for (int i = 0; i < WIDE / 2; ++i) {
        const FragmentPlace at = fragment_place(i);
        sum[i] = epilogue(sum[i], SWAPPED ? at.column : first + at.row, SWAPPED ? first + at.row : at.column);
      }
    }

    // C, of a batch one that no tensor map has
    __device__ __forceinline__ Rows<OUT> rows_of(const work_tile& tile) const {
      Rows<OUT> to = g.rows;
      if constexpr (BATCHED) to.data += tile.product * g.steps.c;
      return to;
    }

    // true in the last of the blocks that share the tile, with the sums of all
    __device__ __forceinline__ bool add_up(const work_tile& tile, accumulators& sums) {
      constexpr int WHOLE = HIGH * WIDE;
      return add_parts<roles::CONSUMER_THREADS>(
          sums.sum, tile.part, CLUSTERS, g.partial + static_cast<long long>(tile.number) * CLUSTERS * WHOLE,
          g.counters + tile.number, shared.last);
    }

    // 64 rows of the wgmma, from `first` on
#if SWAPPED
    // by a consumer, 64 columns of C: each warp puts 16 of them into rows of shared memory, and stores 16
    // rows
    __device__ __forceinline__ void store(const float* sum, const work_tile& tile, int first) {
      const int lane = threadIdx.x % roles::LANES, warp = roles::warp(), name = 2 + roles::consumer();
      const int column = tile.n + first;
      const Rows<OUT> to = rows_of(tile);
      auto& rows = shared.c[roles::consumer()];
#pragma unroll
      for (int done = 0; done < WIDE; done += ROWS_AT_ONCE) {
        const int count = WIDE - done < ROWS_AT_ONCE ? WIDE - done : ROWS_AT_ONCE;
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
        const int row = tile.m + done + warp * WARP_ROWS;
        if (BATCHED || !to.mapped()) {
          Columns::template by_threads<false>(to, rows[warp], row, column);
        } else if (lane == 0) {
          tma_store(to.boxes, rows[warp], row, column);
          tma_store_commit();
        }
      }
    }
#else
    // by a warp, 16 rows of C
    __device__ __forceinline__ void store(const float* sum, const work_tile& tile, int first) {
      const int row = tile.m + first + roles::warp() * WARP_ROWS;
      const Rows<OUT> to = rows_of(tile);
#pragma unroll
      for (int n = 0; n < WIDE; n += STORED) {
        OUT* const staged = shared.c[roles::warp_of_all()][stored++ % BUFFERS];
#if BATCHED
        __syncwarp();  // what was here is stored
        Columns::put(staged, &sum[n / 2]);
        __syncwarp();
        Columns::template by_threads<false>(to, staged, row, tile.n + n);
#else
        Columns::template store<BUFFERS>(to, staged, &sum[n / 2], row, tile.n + n);
#endif
      }
    }
#endif

    __device__ __forceinline__ void finish() {}
  };
};

extern "C" __global__ void __cluster_dims__(SHARING, 1, 1) __launch_bounds__(Gemm::roles::THREADS, 1)
    gemm_flexible_multicast(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                            const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc,
                            float* partial, unsigned* counters, int count, const OUT* added, int ld_added,
                            float alpha, float beta, long long step_a, long long step_b, long long step_c,
                            long long step_added) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  LoadComputeEpilogue<Gemm>::run({A,
                                  B,
                                  {C_boxes, C, M, N, ldc},
                                  K,
                                  partial,
                                  counters,
                                  {added, ld_added, M, N, alpha, beta},
                                  {step_a, step_b, step_c, step_added},
                                  count},
                                 memory);
}
