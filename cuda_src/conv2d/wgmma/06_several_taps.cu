// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels); y: (images, rows, columns, filters). one
// group. x comes as an im2col map, f and y as tensor maps; y has one where its filters are a multiple of 8.
// partial: (tiles, splits, BLOCK_M BLOCK_N) and counters: (tiles), scratch, the counters zero. bf16 and fp16,
// sm_90a.
//
// stage 6 of wgmma, several taps: k runs through taps and channels together. TMA brings the windows of a
// k-tile in boxes of CHANNELS, 8, 16 or 32, which divide the channels: each is a part of one tap. rows of 32
// and 64 bytes have a swizzle as wide, those of 16 bytes none. the filters of a k-tile lie side by side in
// memory, and one box brings them. behind the last tap, boxes lie outside of all images and filters: they are
// zeros.
//
// what it gains: with 32 channels, half of a k-tile of one tap would be zeros. no box ends with the channels,
// which TMA loads slowly.
//
// what limits it: TMA takes as long for a row of 16 bytes as for one of 128. every pixel is loaded once for
// each tap.

#include "epilogue/staging.cuh"
#include "pipeline/load_compute_epilogue.cuh"
#include "ptx/tma_im2col.cuh"
#include "ptx/tma_ranks.cuh"
#include "ptx/wgmma_all.cuh"
#include "shared_tiles.cuh"
#include "tile/k_tile.cuh"

constexpr int BOXES = BLOCK_K / CHANNELS;   // of windows in a k-tile
constexpr int ROW = CHANNELS * sizeof(IN);  // bytes of a box for each window
constexpr int CONSUMERS = BLOCK_M == 192 ? 3 : 2;
constexpr int BANDS = BLOCK_M / CONSUMERS / WGMMA_M;  // of 64 windows that a consumer multiplies
constexpr int WARP_ROWS = 16;                         // of a band that a warp holds
constexpr int NO_IMAGE = 1 << 30;                     // behind the last
// filters that a warp stores at once
constexpr int WIDTH = BLOCK_N % 64 == 0 ? 64 : BLOCK_N % 32 == 0 ? 32 : 16;
constexpr int BUFFERS = 2;  // of a warp, in turn
using Columns = Staging<IN, WIDTH>;

static_assert(BLOCK_M % (CONSUMERS * WGMMA_M) == 0,
              "two or three consumers multiply 64 rows at a time: take 128, 192 or 256");
static_assert(BLOCK_N % 16 == 0 && BLOCK_N <= 256,
              "filters are stored 16 at a time: take a multiple, up to 256");
static_assert(CHANNELS == 8 || CHANNELS == 16 || CHANNELS == 32,
              "a box has rows of up to 64 bytes: take 8, 16 or 32 channels");
static_assert(BLOCK_M <= 2 * WGMMA_M || BLOCK_N <= 176,
              "a thread has no registers for so many sums: take 128 x 256 or 256 x 176 at most");

struct SeveralTaps {
  using roles = Roles<CONSUMERS>;
  using globals = Operands;
  struct input_block {
    IN windows[BOXES][BLOCK_M * CHANNELS];
    IN filters[BLOCK_N * BLOCK_K];
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
    return tile.take(g, number, (g.c.taps_y * g.c.taps_x * g.c.channels + BLOCK_K - 1) / BLOCK_K);
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    const Convolution& c = g.c;
    const int of_tap = c.channels / CHANNELS, first = (tile.first + iteration) * BOXES;
    int tap = first / of_tap, box = first - tap * of_tap, r = tap / c.taps_x, s = tap - r * c.taps_x;
#pragma unroll
    for (int i = 0; i < BOXES; ++i) {
      const bool there = r < c.taps_y;
      tma_load_im2col(input.windows[i], g.x, full, there ? tile.window.image : NO_IMAGE, tile.window.top,
                      tile.window.left, box * CHANNELS, there ? r * c.dilation_y : 0,
                      there ? s * c.dilation_x : 0);
      if (++box == of_tap) box = 0, ++s;
      if (s == c.taps_x) s = 0, ++r;
    }
    tma_load(input.filters, g.f, full, tile.at.filter, first * CHANNELS);
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    input_block* blocks;
    int turn = 0;  // which buffer is written next: tiles may store an odd number of times

    __device__ __forceinline__ void begin(const work_tile&, accumulators&) {}

    // returns when only the products of this k-tile are in flight
    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Consumed<ring>& consumed, int iteration) {
      constexpr int STEP = WGMMA_K * sizeof(IN);  // bytes
      const int first = uniform(roles::consumer()) * BANDS * WGMMA_M;
      const u64 rows = windows_at(&input.windows[0][first * CHANNELS]);
      const u64 columns = swizzled_operand(shared_address(input.filters), 0, ATOM_BYTES);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < BLOCK_K / WGMMA_K; ++k) {
        const int box = k * STEP / ROW * BLOCK_M * ROW + k * STEP % ROW;
#pragma unroll
        for (int band = 0; band < BANDS; ++band)
          wgmma<false>(sums.sum[band], operand_at(rows, box + band * WGMMA_M * ROW),
                       operand_at(columns, k * STEP), IN(), iteration > 0 || k > 0);
      }
      wgmma_commit();
      wgmma_wait<1>();
      consumed.release_previous();
    }

    // the descriptor of windows in rows of ROW bytes, stored with a swizzle as wide; or, of 16 bytes, with
    // none: the next 16 bytes of a row are in the next box
    static __device__ __forceinline__ u64 windows_at(const IN* first) {
      constexpr u64 SWIZZLE = ROW == 64 ? 2 : ROW == 32 ? 3 : 0;
      return swizzled_operand(shared_address(first), BLOCK_M * ROW, 8 * ROW) << 2 >> 2 | SWIZZLE << 62;
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

extern "C" __global__ void __launch_bounds__(SeveralTaps::roles::THREADS, 1)
    conv2d_several_taps(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap f,
                        const __grid_constant__ TensorMap y_boxes, const IN* bias, IN* y,
                        const __grid_constant__ Convolution c, float* partial, unsigned* counters,
                        int splits) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  const Rows<IN> rows{y_boxes, y, c.pixels, c.filters, c.filters};
  LoadComputeEpilogue<SeveralTaps>::run({x, f, rows, bias, c, partial, counters, splits}, memory);
}
