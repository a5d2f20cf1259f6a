// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group); y: (images, rows, columns,
// filters). x comes as an im2col map, f and y as tensor maps; y has one where its filters are a multiple
// of 8. partial: (tiles, splits, ROWS BLOCK_N) and counters: (tiles), scratch, the counters zero. bf16 and
// fp16, sm_90a.
//
// stage 5 of wgmma, flexible tiles: all sides of a tile are multiples of 16. it has so many filters, up to
// 256, since wgmma may have that many columns, and so many pixels, since a box of TMA may have that many
// rows. consumers multiply 64 rows at a time all the same. the rows behind the last window of a k-tile are
// its filters, and these sums are not stored. the last k-tile of a tap ends with its channels: it begins
// SKIPPED times 16 channels before the end of the k-tile before it, and multiplies only those behind. as in
// split k, blocks share the k-tiles of few tiles.
//
// what it gains: TMA loads little that there is not: 72 filters are a tile of 80, not of 128. pixels are
// divided so that all multiprocessors have tiles until the end. boxes in which channels end, which are slow,
// are fewer.
//
// what limits it: products are wasted on the rows behind the last pixel. a wgmma with few columns reads more
// of shared memory for the same work. channels that are no multiple of 16 still end within a box.

#include "epilogue/staging.cuh"
#include "pipeline/load_compute_epilogue.cuh"
#include "ptx/tma_im2col.cuh"
#include "ptx/tma_ranks.cuh"
#include "ptx/wgmma_all.cuh"
#include "shared_tiles.cuh"
#include "tile/k_tile.cuh"

constexpr int ALL = (BLOCK_M + WGMMA_M - 1) / WGMMA_M;  // bands of 64 windows
constexpr int CONSUMERS = ALL == 3 ? 3 : 2;
constexpr int BANDS = (ALL + CONSUMERS - 1) / CONSUMERS;  // that a consumer multiplies
constexpr int ROWS = CONSUMERS * BANDS * WGMMA_M;         // that are multiplied: at least BLOCK_M
constexpr int WARP_ROWS = 16;                             // of a band that a warp holds
// filters that a warp stores at once
constexpr int WIDTH = BLOCK_N % 64 == 0 ? 64 : BLOCK_N % 32 == 0 ? 32 : 16;
constexpr int BUFFERS = 2;  // of a warp, in turn
using Columns = Staging<IN, WIDTH>;

static_assert(BLOCK_M % WARP_ROWS == 0 && BLOCK_M <= ROWS,
              "a warp stores 16 rows: take a multiple, up to 256");
static_assert(
    BLOCK_M + BLOCK_N >= ROWS,
    "rows behind the last window would lie in another k-tile: take a multiple of 64, or more filters");
static_assert(BLOCK_N % 16 == 0 && BLOCK_N <= 256,
              "filters are stored 16 at a time: take a multiple, up to 256");
static_assert(SKIPPED * WGMMA_K < BLOCK_K, "the last k-tile of a tap has channels of its own");
static_assert(BLOCK_M <= 2 * WGMMA_M || BLOCK_N <= 176,
              "a thread has no registers for so many sums: take 128 x 256 or 256 x 176 at most");

struct FlexibleTiles {
  using roles = Roles<CONSUMERS>;
  using globals = Operands;
  struct input_block {
    IN windows[BLOCK_M * BLOCK_K];
    IN filters[BLOCK_N * BLOCK_K];  // the rows that are multiplied behind the last window, too
  };
  struct shared_block {
    alignas(1024) IN y[roles::CONSUMER_WARPS][BUFFERS][Columns::ELEMENTS];  // swizzled
    bool last;  // of the blocks that share the tile
  };
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block), sizeof(shared_block));
  using ring = Pipeline<PIPELINE_STAGES, roles::CONSUMER_WARPS>;
  using work_tile = TilePart;
  struct accumulators {
    float sum[BANDS][BLOCK_N / 2];
  };

  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    return tile.take(g, number);
  }

  // of a k-tile, by how many of its tap come before it
  static __device__ __forceinline__ bool last_of_tap(const work_tile& tile, int of_tap) {
    return of_tap + 1 == tile.channel_tiles;
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    const Convolution& c = g.c;
    const int k_tile = tile.first + iteration, tap = k_tile / tile.channel_tiles;
    const int of_tap = k_tile - tap * tile.channel_tiles;
    const int channel = of_tap * BLOCK_K - (last_of_tap(tile, of_tap) ? SKIPPED * WGMMA_K : 0);
    const int r = tap / c.taps_x, s = tap - r * c.taps_x;
    tma_load_im2col(input.windows, g.x, full, tile.window.image, tile.window.top, tile.window.left,
                    tile.at.group * c.group_channels + channel, r * c.dilation_y, s * c.dilation_x);
    tma_load(input.filters, g.f, full, tile.at.group * c.group_filters + tile.at.filter, tap, channel);
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    input_block* blocks;
    int turn = 0;  // which buffer is written next: tiles may store an odd number of times
    int of_tap;    // which k-tile of its tap is next

    __device__ __forceinline__ void begin(const work_tile& tile, accumulators&) {
      of_tap = tile.first % tile.channel_tiles;
    }

    __device__ __forceinline__ void compute(const work_tile& tile, accumulators& sums,
                                            const input_block& input, Consumed<ring>& consumed,
                                            int iteration) {
      if (SKIPPED == 0 || !last_of_tap(tile, of_tap)) {
        multiply<0>(sums, input, iteration > 0);
        ++of_tap;
      } else {
        multiply<SKIPPED>(sums, input, iteration > 0);
        of_tap = 0;
      }
      consumed.release_previous();
    }

    // without the first steps of 16 channels. returns when only these products are in flight
    template <int STEPS>
    static __device__ __forceinline__ void multiply(accumulators& sums, const input_block& input, bool add) {
      constexpr int STEP = WGMMA_K * sizeof(IN);  // bytes
      const int first = uniform(roles::consumer()) * BANDS * WGMMA_M;
      const u64 rows = swizzled_operand(shared_address(&input.windows[first * BLOCK_K]), 0, ATOM_BYTES);
      const u64 columns = swizzled_operand(shared_address(input.filters), 0, ATOM_BYTES);
      wgmma_fence();
#pragma unroll
      for (int k = STEPS; k < BLOCK_K / WGMMA_K; ++k)
#pragma unroll
        for (int band = 0; band < BANDS; ++band)
          wgmma<false>(sums.sum[band], operand_at(rows, band * WGMMA_M * ROW_BYTES + k * STEP),
                       operand_at(columns, k * STEP), IN(), add || k > STEPS);
      wgmma_commit();
      wgmma_wait<1>();
    }

    // a warp, 16 rows of each band
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Consumed<ring>& consumed) {
      wgmma_wait<0>();
      consumed.release_last();
      if (g.splits > 1 && !add_up<roles::CONSUMER_THREADS>(g, tile, sums.sum, shared.last)) return;
      auto& buffers = shared.y[roles::warp_of_all()];
      const int first = roles::consumer() * BANDS * WGMMA_M + roles::warp() * WARP_ROWS;
      const int filter = tile.at.group * g.c.group_filters + tile.at.filter;
#pragma unroll
      for (int band = 0; band < BANDS; ++band) {
        const int row = first + band * WGMMA_M;
        if (BLOCK_M < ROWS && row >= BLOCK_M) break;  // of the next tile
#pragma unroll
        for (int n = 0; n < BLOCK_N; n += WIDTH) {
          if (tile.at.filter + n >= g.c.group_filters) break;  // of another group
          complete<WIDTH>(g, &sums.sum[band][n / 2], filter + n);
          Columns::store<BUFFERS>(g.rows, buffers[turn], &sums.sum[band][n / 2], tile.at.pixel + row,
                                  filter + n);
          turn ^= 1;
        }
      }
    }

    __device__ __forceinline__ void finish() {}
  };
};

extern "C" __global__ void __launch_bounds__(FlexibleTiles::roles::THREADS, 1)
    conv2d_flexible_tiles(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap f,
                          const __grid_constant__ TensorMap y_boxes, const IN* bias, IN* y,
                          const __grid_constant__ Convolution c, float* partial, unsigned* counters,
                          int splits) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  const Rows<IN> rows{y_boxes, y, c.pixels, c.filters, c.filters};
  LoadComputeEpilogue<FlexibleTiles>::run({x, f, rows, bias, c, partial, counters, splits}, memory);
}
