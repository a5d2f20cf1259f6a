// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group), the latter a multiple of 8; y:
// (images, rows, columns, filters). partial: (tiles, splits, BLOCK_M BLOCK_N) and counters: (tiles), scratch,
// the counters zero. bf16 and fp16.
//
// stage 6, halo: a block computes a rectangle of outputs of one image. the rectangle has BLOCK_M / TILE_X
// rows of TILE_X outputs, and their windows overlap. the block copies the pixels of these windows to shared
// memory once for all taps, BLOCK_K channels at a time. it multiplies them one tap after the other: for each
// tap, ldmatrix reads the rows of a fragment from other places of the same pixels. the filters come through a
// circular buffer, TOGETHER taps at a time. with each of these copies comes a part of the pixels' next
// channels. where tiles are few, `splits` blocks share the channels of a tile.
//
// what it gains: only filters are copied for each k-tile. windows are read again from shared memory, not from
// the L2. few copies cross a line of 128 bytes or end with the channels.
//
// what limits it: mma.sync. with few filters, ldmatrix.

#include "../mma/outputs.cuh"
#include "ptx/cp_async.cuh"

static_assert(TILE_X == 8 || TILE_X == 16, "the 16 rows of a fragment are one row of pixels, or two");
static_assert(STAGES >= 2, "filters are multiplied while others are copied");
constexpr int ROWS = TOGETHER * BLOCK_N, ROW_STEP = THREADS / SWIZZLE;  // of filters
constexpr int STEPS = BLOCK_K / MMA_K;                                  // of a tap: an even number
using Filters = Tile<ROWS>;                                             // of one tap after the other

// the pixels that the windows of a block see, and where they are
struct Halo {
  int width, pieces;                  // pixels of a row; pieces of 16 bytes of a k-tile of all of them
  int image, top, left, row, column;  // in x; of the first output in y

  __device__ __forceinline__ Halo(const Convolution& c, int number) {
    constexpr int TILE_Y = BLOCK_M / TILE_X;
    const int across = (c.columns + TILE_X - 1) / TILE_X, down = (c.rows + TILE_Y - 1) / TILE_Y;
    column = number % across * TILE_X, row = number / across % down * TILE_Y, image = number / across / down;
    top = row * c.stride_y - c.pad_y, left = column * c.stride_x - c.pad_x;
    width = (TILE_X - 1) * c.stride_x + (c.taps_x - 1) * c.dilation_x + 1;
    pieces = ((TILE_Y - 1) * c.stride_y + (c.taps_y - 1) * c.dilation_y + 1) * width * SWIZZLE;
  }
  // of an output of the tile
  __device__ __forceinline__ int pixel(const Convolution& c, int output) const {
    return output / TILE_X * c.stride_y * width + output % TILE_X * c.stride_x;
  }
};

__device__ __forceinline__ IN* piece(IN* tile, unsigned pixel, unsigned chunk) {
  return tile + (pixel * SWIZZLE + (chunk ^ pixel % SWIZZLE)) * CHUNK;
}

// completes and stores the sums of a block
__device__ __forceinline__ void store_rectangle(const Sums& sums, const Convolution& c, const Halo& halo,
                                                int filter, int end, const IN* bias, IN* y) {
  const int lane = threadIdx.x % WARP;
  const bool pairs = c.filters % 2 == 0 && c.group_filters % 2 == 0;  // two elements move at once
#pragma unroll
  for (int i = 0; i < TILES_M * 2; ++i) {  // 8 outputs at a time
    const int output = Sums::first_row() + i * 8 + lane / 4;
    const int row = halo.row + output / TILE_X, column = halo.column + output % TILE_X;
    if (row >= c.rows || column >= c.columns) continue;
    IN* const to = y + ((static_cast<long long>(halo.image) * c.rows + row) * c.columns + column) * c.filters;
#pragma unroll
    for (int j = 0; j < TILES_N; ++j) {
      const int at = filter + Sums::first_column() + j * MMA_N + lane % 4 * 2;
      const float* s = &sums.sum[i / 2][j][i % 2 * 2];
      if (at >= end) continue;
      if (pairs) {
        store_vector(to + at, Vector<IN, 2>{from_float<IN>(completed(s[0], bias, at)),
                                            from_float<IN>(completed(s[1], bias, at + 1))});
      } else {
        to[at] = from_float<IN>(completed(s[0], bias, at));
        if (at + 1 < end) to[at + 1] = from_float<IN>(completed(s[1], bias, at + 1));
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
    conv2d_halo(const IN* __restrict__ x, const IN* __restrict__ f, const IN* __restrict__ bias,
                IN* __restrict__ y, const __grid_constant__ Convolution c, float* partial, unsigned* counters,
                int part) {
  extern __shared__ __align__(SWIZZLE * VECTOR_BYTES) unsigned char memory[];
  Filters* const filters = reinterpret_cast<Filters*>(memory);
  IN* const pixels = reinterpret_cast<IN*>(filters + STAGES);  // of two k-tiles

  // tiles of the same pixels follow each other
  const int across = (c.group_filters + BLOCK_N - 1) / BLOCK_N, columns = across * c.groups();
  const int group = blockIdx.x % columns / across, first_filter = blockIdx.x % across * BLOCK_N;
  const Halo halo(c, blockIdx.x / columns);

  const int taps = c.taps_y * c.taps_x, chunk = threadIdx.x % SWIZZLE, first_row = threadIdx.x / SWIZZLE;
  const int all = (c.group_channels + BLOCK_K - 1) / BLOCK_K, begin = blockIdx.y * part;
  const int end = min(begin + part, all);  // of the k-tiles of this block's channels

  // pieces from `next` on, by all threads one each
  const auto load_pixels = [&](int k_tile, int next) {
    const int number = next + threadIdx.x;
    if (k_tile >= end || number >= halo.pieces) return;
    const int pixel = number / SWIZZLE, channel = k_tile * BLOCK_K + chunk * CHUNK;
    const int down = halo.top + pixel / halo.width, right = halo.left + pixel % halo.width;
    const bool valid = channel < c.group_channels && c.inside(down, right);
    const long long at = (static_cast<long long>(halo.image) * c.height + down) * c.width + right;
    cp_async_past_l1<VECTOR_BYTES>(piece(pixels + (k_tile - begin) % 2 * halo.pieces * CHUNK, pixel, chunk),
                                   valid ? x + at * c.channels + group * c.group_channels + channel : x,
                                   valid ? VECTOR_BYTES : 0);
  };
  // of the next taps
  int to = 0, loaded_tap = 0, loaded_k_tile = begin;
  const auto load_filters = [&] {
    if (loaded_k_tile < end) {
      const int channel = loaded_k_tile * BLOCK_K + chunk * CHUNK;
#pragma unroll
      for (int i = 0; i < ROWS; i += ROW_STEP) {
        const int row = first_row + i, tap = loaded_tap + row / BLOCK_N;
        const int filter = first_filter + row % BLOCK_N;
        if (ROWS % ROW_STEP && row >= ROWS) break;
        const bool valid = channel < c.group_channels && tap < taps && filter < c.group_filters;
        const long long from = (static_cast<long long>(group) * c.group_filters + filter) * taps + tap;
        cp_async<VECTOR_BYTES>(filters[to].chunk(row, chunk),
                               valid ? f + from * c.group_channels + channel : f, valid ? VECTOR_BYTES : 0);
      }
      loaded_tap += TOGETHER;
      if (loaded_tap >= taps) loaded_tap = 0, ++loaded_k_tile;
    }
    if (++to == STAGES) to = 0;
  };

  for (int next = 0; next < halo.pieces; next += THREADS) load_pixels(begin, next);
  for (int i = 0; i < STAGES - 1; ++i) {
    load_filters();
    cp_async_commit();
  }

  // each time so many pieces of the next k-tile that all have come when it begins
  const int times = (taps + TOGETHER - 1) / TOGETHER, spread = max(1, times - STAGES + 2) * THREADS;
  const int rounds = (halo.pieces + spread - 1) / spread;
  const int lane = threadIdx.x % WARP;
  int seen[TILES_M];
#pragma unroll
  for (int i = 0; i < TILES_M; ++i) seen[i] = halo.pixel(c, Sums::first_row() + i * MMA_M + lane % 16);

  Sums sums;
  int from = 0;
  for (int k_tile = begin; k_tile < end; ++k_tile) {
    IN* const present = pixels + (k_tile - begin) % 2 * halo.pieces * CHUNK;
    int next = 0, tap_row = 0, s = 0, away = 0;
    for (int tap = 0; tap < taps;) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // these filters have come for everyone, and everyone is done with those before
      load_filters();
      for (int i = 0; i < rounds && next < halo.pieces; ++i, next += THREADS) load_pixels(k_tile + 1, next);
      cp_async_commit();

      // fragments are loaded a step ahead of their products
      Filters& weights = filters[from];
      const int here = min(TOGETHER, taps - tap) * STEPS;
      u32 a[2][TILES_M][4], b[2][TILES_N / 2][4];
      const auto fetch = [&](int step, u32(&a)[TILES_M][4], u32(&b)[TILES_N / 2][4]) {
        const int k = step % STEPS * MMA_K / CHUNK;
        if (step % STEPS == 0) {
          away = tap_row + s * c.dilation_x;
          if (++s == c.taps_x) s = 0, tap_row += c.dilation_y * halo.width;
        }
#pragma unroll
        for (int i = 0; i < TILES_M; ++i) ldmatrix_x4(a[i], piece(present, seen[i] + away, k + lane / 16));
#pragma unroll
        for (int j = 0; j < TILES_N / 2; ++j) {
          const int row = Sums::first_column() + j * 2 * MMA_N + lane / 16 * 8 + lane % 8;
          ldmatrix_x4(b[j], weights.chunk(step / STEPS * BLOCK_N + row, k + lane / 8 % 2));
        }
      };
      const auto multiply = [&](const u32(&a)[TILES_M][4], const u32(&b)[TILES_N / 2][4]) {
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
          for (int j = 0; j < TILES_N; ++j)
            mma(sums.sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], IN());
      };
      fetch(0, a[0], b[0]);
#pragma unroll 1
      for (int step = 0; step < here; step += 2) {
        fetch(step + 1, a[1], b[1]);
        multiply(a[0], b[0]);
        if (step + 2 < here) fetch(step + 2, a[0], b[0]);
        multiply(a[1], b[1]);
      }
      tap += TOGETHER;
      if (++from == STAGES) from = 0;
    }
  }
  if (gridDim.y > 1 && !add_up(sums, partial, counters, blockIdx.x, blockIdx.y, gridDim.y)) return;
  store_rectangle(sums, c, halo, group * c.group_filters + first_filter, (group + 1) * c.group_filters, bias,
                  y);
}
