// y[n, p, q, k] = sum_rsc x[n, i, j, c] f[k, r, s, c] with i = p * stride - pad + r * dilation and
// j = q * stride - pad + s * dilation; elements of x outside of the image count as zero. x: (images, height,
// width, channels); f: (filters, taps_y, taps_x, channels); y: (images, rows, columns, filters).
//
// stage 1, im2col: a product of matrices whose left one is never stored. its rows are the pixels of the
// output, its columns the taps and channels that each of them sums up. a tile of it, PIXELS pixels by
// CHANNELS channels of one tap, is what TMA's im2col mode copies at once: it walks through the pixels by
// itself, row by row and image by image, in steps of the stride, and fills in zeros around the image. a block
// makes PIXELS x FILTERS outputs of such tiles and tiles of the filters with mma.sync; TMA fills one pipeline
// stage while the other is multiplied.
//
// what it gains: no thread computes an address of the input, nor asks whether it lies in the image, and the
// input is read in whole rows of 128 bytes.
//
// what limits it: two pipeline stages hide little of the latency, each warp loads all filters of the tile
// anew from shared memory, and where a pixel has few channels most of a tile is zeros.

#include "ptx/mbarrier.cuh"
#include "ptx/mma.cuh"
#include "ptx/tma_im2col.cuh"
#include "ptx/tma_ranks.cuh"

constexpr int STAGES = 2, CHANNELS = 64;  // a row of a tile is the 128 bytes of a swizzled row
static_assert(PIXELS % 16 == 0 && PIXELS <= 256,
              "a warp takes 16 pixels: make PIXELS a multiple of 16, at most 256");
static_assert(FILTERS % 16 == 0 && FILTERS <= 256,
              "filters are loaded 16 at a time: make FILTERS a multiple of 16");

struct Shape {                // of one convolution
  int pixels, rows, columns;  // of the output: all pixels, and those of one image
  int filters, channels, taps_y, taps_x;
  int stride, pad, dilation;
};

// where TMA's 128-byte swizzle puts 8 elements of a row
__device__ __forceinline__ const IN* swizzled(const IN (*tile)[CHANNELS], int row, int eight) {
  return &tile[row][(eight ^ row % 8) * 8];
}

extern "C" __global__ void __launch_bounds__(2 * PIXELS)
    conv2d_im2col(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap f, IN* y,
                  const __grid_constant__ Shape shape) {
  __shared__ __align__(1024) IN a[STAGES][PIXELS][CHANNELS];
  __shared__ __align__(1024) IN b[STAGES][FILTERS][CHANNELS];
  __shared__ Barrier full[STAGES];
  const int first_pixel = blockIdx.x * PIXELS, first_filter = blockIdx.y * FILTERS;
  const int channel_tiles = (shape.channels + CHANNELS - 1) / CHANNELS;
  const int tiles = shape.taps_y * shape.taps_x * channel_tiles;

  const int image = first_pixel / (shape.rows * shape.columns);
  const int row = first_pixel / shape.columns % shape.rows, column = first_pixel % shape.columns;
  const auto load = [&](int tile) {
    const int stage = tile % STAGES, tap = tile / channel_tiles, channel = tile % channel_tiles * CHANNELS;
    mbarrier_arrive_expect(full[stage], sizeof(a[stage]) + sizeof(b[stage]));
    tma_load_im2col(a[stage], x, full[stage], image, row * shape.stride - shape.pad,
                    column * shape.stride - shape.pad, channel, tap / shape.taps_x * shape.dilation,
                    tap % shape.taps_x * shape.dilation);
    tma_load(b[stage], f, full[stage], first_filter, tap, channel);
  };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) mbarrier_init(barrier, 1);
    mbarrier_init_fence();
    for (int tile = 0; tile < STAGES && tile < tiles; ++tile) load(tile);
  }
  __syncthreads();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float sums[FILTERS / 8][4] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % STAGES;
    mbarrier_wait(full[stage], tile / STAGES % 2);
#pragma unroll
    for (int k = 0; k < CHANNELS; k += 16) {
      u32 pixels[4];
      ldmatrix_x4(pixels, swizzled(a[stage], warp * 16 + lane % 16, k / 8 + lane / 16));
#pragma unroll
      for (int n = 0; n < FILTERS; n += 16) {
        u32 filters[4];
        ldmatrix_x4(filters, swizzled(b[stage], n + lane / 16 * 8 + lane % 8, k / 8 + lane / 8 % 2));
        mma(sums[n / 8], pixels, filters[0], filters[1], IN());
        mma(sums[n / 8 + 1], pixels, filters[2], filters[3], IN());
      }
    }
    __syncthreads();  // all warps have read the stage
    if (threadIdx.x == 0 && tile + STAGES < tiles) load(tile + STAGES);
  }

#pragma unroll
  for (int n = 0; n < FILTERS / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int pixel = first_pixel + warp * 16 + lane / 4 + i / 2 * 8;
      const int filter = first_filter + n * 8 + lane % 4 * 2 + i % 2;
      if (pixel < shape.pixels && filter < shape.filters)
        y[static_cast<long long>(pixel) * shape.filters + filter] = static_cast<IN>(sums[n][i]);
    }
}
