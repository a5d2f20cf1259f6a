// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group); y: (images, rows, columns,
// filters). x comes as an im2col map, f and y as tensor maps; y has one where its filters are a multiple
// of 8. partial: (tiles, splits, BLOCK_M BLOCK_N) and counters: (tiles), scratch, the counters zero. bf16 and
// fp16, sm_90a.
//
// stage 4 of wgmma, split k: if there are too few tiles for the device, `splits` blocks share the k-tiles of
// one tile. each block stores its sums in `partial`, in the order of its registers, and increments the
// counter of the tile. the last block adds up all of the sums, always in the same order. then it applies bias
// and activation, and stores the tile.
//
// what it gains: small images with many channels and taps fill the device.
//
// what limits it: the sums go through the L2, and the last block adds them up alone.

#include "epilogue/staging.cuh"
#include "pipeline/load_compute_epilogue.cuh"
#include "ptx/tma_im2col.cuh"
#include "ptx/tma_ranks.cuh"
#include "ptx/wgmma_all.cuh"
#include "shared_tiles.cuh"
#include "tile/k_tile.cuh"

constexpr int CONSUMERS = 2;
constexpr int BANDS = BLOCK_M / CONSUMERS / WGMMA_M;  // of 64 windows that a consumer multiplies
constexpr int WARP_ROWS = 16;                         // of a band that a warp holds
constexpr int WIDTH = BLOCK_N % 64 == 0 ? 64 : 32;    // filters that a warp stores at once
constexpr int BUFFERS = 2;                            // of a warp, in turn
using Columns = Staging<IN, WIDTH>;

static_assert(BLOCK_M % (CONSUMERS * WGMMA_M) == 0,
              "two consumers multiply 64 rows at a time: take 128 or 256");
static_assert(BLOCK_N % WIDTH == 0 && BLOCK_N <= 256,
              "filters are stored 32 at a time: take a multiple, up to 256");
static_assert(BANDS * BLOCK_N <= 384,
              "a thread has registers for 192 sums: take 128 x 256 or 256 x 192 at most");

struct SplitK {
  using roles = Roles<CONSUMERS>;
  using globals = Operands;
  struct input_block {
    IN windows[BLOCK_M * BLOCK_K];
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
    return tile.take(g, number);
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    const Convolution& c = g.c;
    const int k_tile = tile.first + iteration, tap = k_tile / tile.channel_tiles;
    const int channel = (k_tile - tap * tile.channel_tiles) * BLOCK_K;
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

    __device__ __forceinline__ void begin(const work_tile&, accumulators&) {}

    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Consumed<ring>& consumed, int iteration) {
      const int first = uniform(roles::consumer()) * BANDS * WGMMA_M;
      KTile<IN>::multiply_bands<true>(sums.sum, &input.windows[first * BLOCK_K], input.filters,
                                      iteration > 0);
      consumed.release_previous();
    }

    // a warp, 16 rows of each band
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Consumed<ring>& consumed) {
      wgmma_wait<0>();
      consumed.release_last();
      if (g.splits > 1 && !add_up<roles::CONSUMER_THREADS>(g, tile, sums.sum, shared.last)) return;
      auto& buffers = shared.y[roles::warp_of_all()];
      const int pixel = tile.at.pixel + roles::consumer() * BANDS * WGMMA_M + roles::warp() * WARP_ROWS;
      const int filter = tile.at.group * g.c.group_filters + tile.at.filter;
#pragma unroll
      for (int band = 0; band < BANDS; ++band)
#pragma unroll
        for (int n = 0; n < BLOCK_N; n += WIDTH) {
          if (tile.at.filter + n >= g.c.group_filters) break;  // of another group
          complete<WIDTH>(g, &sums.sum[band][n / 2], filter + n);
          Columns::store<BUFFERS>(g.rows, buffers[turn], &sums.sum[band][n / 2], pixel + band * WGMMA_M,
                                  filter + n);
          turn ^= 1;
        }
    }

    __device__ __forceinline__ void finish() {}
  };
};

extern "C" __global__ void __launch_bounds__(SplitK::roles::THREADS, 1)
    conv2d_split_k(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap f,
                   const __grid_constant__ TensorMap y_boxes, const IN* bias, IN* y,
                   const __grid_constant__ Convolution c, float* partial, unsigned* counters, int splits) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  const Rows<IN> rows{y_boxes, y, c.pixels, c.filters, c.filters};
  LoadComputeEpilogue<SplitK>::run({x, f, rows, bias, c, partial, counters, splits}, memory);
}
