// y[n, p, q, k] = act(bias[k] + sum_c x[n, p stride_y, q stride_x, c] f[k, c]): filters of one tap, no
// padding, one group. x: (images, height, width, CHANNELS); f: (FILTERS, CHANNELS); y: (images, rows,
// columns, FILTERS). bf16 and fp16.
//
// stage 5, pointwise: with few channels and few filters, a pixel has so few products that memory limits the
// speed. a warp keeps all filters in registers, as the fragments of mma.sync. it loads PIXELS pixels from
// global memory directly into fragments, multiplies them, and stores the sums from registers. it needs no
// shared memory and no barrier. a sum does not depend on the order of k. so a thread takes, as its part of a
// fragment, channels that lie side by side in memory: 16 bytes. the filters are loaded in the same order.
//
// what it gains: every warp has loads in flight all the time. an input is loaded once.
//
// what limits it: device memory. the filters have to fit into registers.

#include "../convolution.cuh"
#include "ptx/mma.cuh"
#include "tile/vector.cuh"

constexpr int LANES = 32, WARPS = THREADS / LANES;
constexpr int MMA_M = 16, MMA_N = 8, CHUNK = VECTOR_BYTES / sizeof(IN);
constexpr int DEEP = 4 * CHUNK;  // channels that the four threads of a row load at once: two mma deep
constexpr int CHUNKS = (CHANNELS + DEEP - 1) / DEEP, TILES = (FILTERS + MMA_N - 1) / MMA_N,
              ROWS = PIXELS / MMA_M;
static_assert(CHANNELS % CHUNK == 0, "a thread loads 16 bytes of channels");
static_assert(PIXELS % MMA_M == 0, "a warp has whole fragments of 16 pixels");

using Words = Vector<unsigned, 4>;  // 16 bytes of channels

// neighbouring tiles of 8 filters are stored together: 4, or of those that are left 2 or 1
__host__ __device__ constexpr int together(int tile) {
  return tile + 4 <= TILES / 4 * 4 ? 4 : TILES - tile >= 2 ? 2 : 1;
}

// filters that lie side by side in y, 2 in each of COUNT words, of which there are `left`
template <int COUNT>
__device__ __forceinline__ void store(IN* to, const unsigned (&words)[4], int left) {
  if constexpr (FILTERS % MMA_N == 0) {
    Vector<unsigned, COUNT> all;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) all.x[i] = words[i];
    store_vector(reinterpret_cast<unsigned*>(to), all);
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const auto& pair = reinterpret_cast<const Vector<IN, 2>&>(words[i]);
      if (FILTERS % 2 == 0) {
        if (2 * i < left) store_vector(to + 2 * i, pair);
      } else {
        if (2 * i < left) to[2 * i] = pair.x[0];
        if (2 * i + 1 < left) to[2 * i + 1] = pair.x[1];
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    conv2d_pointwise(const IN* __restrict__ x, const IN* __restrict__ f, const IN* __restrict__ bias,
                     IN* __restrict__ y, const __grid_constant__ Convolution c) {
  const int lane = threadIdx.x % LANES, row = lane / 4, part = lane % 4;

  // of the tiles that are stored together a thread gets 2 neighbouring columns each, which are the filters
  // that lie side by side in y
  Words weight[TILES][CHUNKS];
#pragma unroll
  for (int first = 0; first < TILES; first += together(first))
#pragma unroll
    for (int i = 0; i < together(first); ++i) {
      const int filter = first * MMA_N + row / 2 * 2 * together(first) + 2 * i + row % 2;
#pragma unroll
      for (int j = 0; j < CHUNKS; ++j) {
        const int channel = j * DEEP + part * CHUNK;
        weight[first + i][j] =
            channel < CHANNELS && filter < FILTERS
                ? load_vector<4>(reinterpret_cast<const unsigned*>(f + filter * CHANNELS + channel))
                : Words{};
      }
    }

  const bool dense = c.stride_y == 1 && c.stride_x == 1;  // pixels of x are those of y
  const int warps = (c.pixels + PIXELS - 1) / PIXELS;
  for (int number = blockIdx.x * WARPS + threadIdx.x / LANES; number < warps; number += gridDim.x * WARPS) {
    Words window[ROWS][2][CHUNKS];
#pragma unroll
    for (int m = 0; m < ROWS; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pixel = number * PIXELS + m * MMA_M + half * 8 + row;
        long long at = pixel;
        if (!dense) {
          const auto window = c.window(min(pixel, c.pixels - 1));
          at = (static_cast<long long>(window.image) * c.height + window.top) * c.width + window.left;
        }
#pragma unroll
        for (int j = 0; j < CHUNKS; ++j) {
          const int channel = j * DEEP + part * CHUNK;
          window[m][half][j] =
              pixel < c.pixels && channel < CHANNELS
                  ? load_vector<4>(reinterpret_cast<const unsigned*>(x + at * CHANNELS + channel))
                  : Words{};
        }
      }

#pragma unroll
    for (int m = 0; m < ROWS; ++m)
#pragma unroll
      for (int first = 0; first < TILES; first += together(first)) {
        float sum[4][4] = {};
#pragma unroll
        for (int j = 0; j < CHUNKS; ++j)
#pragma unroll
          for (int deep = 0; deep < 4; deep += 2) {
            const Words &upper = window[m][0][j], &lower = window[m][1][j];
            const unsigned a[4] = {upper.x[deep], lower.x[deep], upper.x[deep + 1], lower.x[deep + 1]};
#pragma unroll
            for (int i = 0; i < together(first); ++i)
              mma(sum[i], a, weight[first + i][j].x[deep], weight[first + i][j].x[deep + 1], IN{});
          }
        const int filter = first * MMA_N + part * 2 * together(first);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int pixel = number * PIXELS + m * MMA_M + half * 8 + row;
          if (pixel >= c.pixels) continue;
          IN* const to = y + static_cast<long long>(pixel) * FILTERS + filter;
          unsigned out[4];
#pragma unroll
          for (int i = 0; i < together(first); ++i) {
            float both[2];
#pragma unroll
            for (int e = 0; e < 2; ++e)
              both[e] = completed(sum[i][2 * half + e], bias, min(filter + 2 * i + e, FILTERS - 1));
            out[i] = pair_from_float<IN>(both[0], both[1]);
          }
          if (together(first) == 4)
            store<4>(to, out, FILTERS - filter);
          else if (together(first) == 2)
            store<2>(to, out, FILTERS - filter);
          else
            store<1>(to, out, FILTERS - filter);
        }
      }
  }
}
