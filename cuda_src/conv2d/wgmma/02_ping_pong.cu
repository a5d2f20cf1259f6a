// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group); y: (images, rows, columns,
// filters). x comes as an im2col map, f and y as tensor maps; y has one where its filters are a multiple
// of 8. bf16 and fp16, sm_90a.
//
// stage 2 of wgmma, ping-pong: the two consumers take tiles in turn, and each computes a whole tile alone.
// while one finishes and stores its tile, the other multiplies.
//
// what it gains: tensor cores do not wait for an epilogue. this matters most if a tile has few k-tiles.
//
// what limits it: a tile has the registers of one consumer, so it is half as large, and more bytes are read
// for each product. if an epilogue takes longer than a mainloop, the other consumer waits for it.

#include "../convolution.cuh"
#include "epilogue/staging.cuh"
#include "pipeline/ping_pong.cuh"
#include "ptx/tma_im2col.cuh"
#include "ptx/tma_ranks.cuh"
#include "ptx/wgmma_all.cuh"
#include "tile/k_tile.cuh"

constexpr int BLOCK_K = KTile<IN>::DEPTH;
constexpr int CONSUMERS = 2;
constexpr int BANDS = BLOCK_M / WGMMA_M;            // of 64 windows
constexpr int WARP_ROWS = 16;                       // of a band that a warp holds
constexpr int WIDTH = BLOCK_N % 64 == 0 ? 64 : 32;  // filters that a warp stores at once
constexpr int BUFFERS = 2;                          // of a warp, in turn
using Columns = Staging<IN, WIDTH>;

static_assert(BLOCK_M % WGMMA_M == 0,
              "a consumer multiplies 64 rows at a time: make BLOCK_M a multiple of 64");
static_assert(BLOCK_N % WIDTH == 0 && BLOCK_N <= 256,
              "filters are stored 32 at a time: take a multiple, up to 256");
static_assert(BANDS * BLOCK_N <= 384,
              "a thread has registers for 192 sums: take 64 x 256 or 128 x 192 at most");

struct Operands {
  const TensorMap &x, &f;
  Rows<IN> rows;  // of y: a pixel each
  const IN* bias;
  const Convolution& c;
};

struct Conv2d {
  using roles = Roles<CONSUMERS>;
  using globals = Operands;
  struct input_block {
    IN windows[BLOCK_M * BLOCK_K];
    IN filters[BLOCK_N * BLOCK_K];
  };
  struct shared_block {
    alignas(1024) IN y[roles::CONSUMER_WARPS][BUFFERS][Columns::ELEMENTS];  // swizzled
  };
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block), sizeof(shared_block));
  using ring = Pipeline<PIPELINE_STAGES, roles::WARPS>;
  struct work_tile {
    int iterations, channel_tiles;
    OutputTile at;
    Convolution::Window window;  // of the first pixel
  };
  struct accumulators {
    float sum[BANDS][BLOCK_N / 2];
  };

  // every so many-th tile
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    const long long mine = blockIdx.x + static_cast<long long>(number) * gridDim.x;
    const int across = (g.c.group_filters + BLOCK_N - 1) / BLOCK_N;
    const int down = (g.c.pixels + BLOCK_M - 1) / BLOCK_M;
    if (mine >= static_cast<long long>(down) * across * g.c.groups()) return false;
    tile.channel_tiles = (g.c.group_channels + BLOCK_K - 1) / BLOCK_K;
    tile.iterations = g.c.taps_y * g.c.taps_x * tile.channel_tiles;
    tile.at = OutputTile::numbered(g.c, mine, BLOCK_M, BLOCK_N);
    tile.window = g.c.window(tile.at.pixel);
    return true;
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    const Convolution& c = g.c;
    const int tap = iteration / tile.channel_tiles,
              channel = (iteration - tap * tile.channel_tiles) * BLOCK_K;
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
                                            Turn<ring>& consumed, int iteration) {
      KTile<IN>::multiply_bands<true>(sums.sum, input.windows, input.filters, iteration > 0);
      consumed.release_previous();
    }

    // bias and activation of what a thread holds in WIDTH columns
    __device__ __forceinline__ void complete(float* sum, int filter) {
      if (ACTIVATION == IDENTITY && !g.bias) return;
      const int lane = threadIdx.x % roles::LANES;
#pragma unroll
      for (int i = 0; i < WIDTH / 2; i += 4)  // 8 columns, in rows lane / 4 and lane / 4 + 8
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = filter + i * 2 + lane % 4 * 2 + e;
          const float added = g.bias && at < g.c.filters ? to_float(g.bias[at]) : 0.f;
          sum[i + e] = activate<ACTIVATION>(sum[i + e] + added);
          sum[i + 2 + e] = activate<ACTIVATION>(sum[i + 2 + e] + added);
        }
    }

    // a warp, 16 rows of each band
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Turn<ring>& consumed) {
      consumed.pass();
      wgmma_wait<0>();
      consumed.release_last();
      auto& buffers = shared.y[roles::warp_of_all()];
      const int pixel = tile.at.pixel + roles::warp() * WARP_ROWS;
      const int filter = tile.at.group * g.c.group_filters + tile.at.filter;
#pragma unroll
      for (int band = 0; band < BANDS; ++band)
#pragma unroll
        for (int n = 0; n < BLOCK_N; n += WIDTH) {
          if (tile.at.filter + n >= g.c.group_filters) break;  // of another group
          complete(&sums.sum[band][n / 2], filter + n);
          Columns::store<BUFFERS>(g.rows, buffers[turn], &sums.sum[band][n / 2], pixel + band * WGMMA_M,
                                  filter + n);
          turn ^= 1;
        }
    }

    __device__ __forceinline__ void finish() {}
  };
};

extern "C" __global__ void __launch_bounds__(Conv2d::roles::THREADS, 1)
    conv2d_ping_pong(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap f,
                     const __grid_constant__ TensorMap y_boxes, const IN* bias, IN* y,
                     const __grid_constant__ Convolution c) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  PingPongFrame<Conv2d>::run({x, f, {y_boxes, y, c.pixels, c.filters, c.filters}, bias, c}, memory);
}
