// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group), of which there may be any
// number; y: (images, rows, columns, filters). bf16 and fp16.
//
// stage 2 of mma, few channels: k runs through taps and channels together, (r, s, c) as a filter lies in
// memory, so that no k-tile but the last is partly empty, however few channels there are. a thread gathers
// the same k of every window of the tile, element by element: neighbouring threads have neighbouring k, which
// are mostly neighbours in memory.
//
// what it gains: of 3 channels and 7 x 7 taps, 147 products of 192 are multiplied in vain no more; with a
// k-tile a tap 3 of 64 would be.
//
// what limits it: elements are loaded one by one, and several blocks on a multiprocessor have to hide each
// other's latency.

#include "tiles.cuh"

static_assert(THREADS % BLOCK_K == 0,
              "a thread gathers one column of a k-tile: take a multiple of two warps");
constexpr int ROW_STEP = THREADS / BLOCK_K;
static_assert(BLOCK_M % ROW_STEP == 0 && BLOCK_N % ROW_STEP == 0,
              "threads have to gather whole columns of a k-tile");
constexpr int AT_ONCE = 16;  // loads of a thread that are in flight

struct Shared {
  KTile buffer;
  Origin origins[BLOCK_M];
};

// fills column `k` of the rows of a tile; `element` loads that of a row
template <int ROWS, class Load>
__device__ __forceinline__ void gather(Tile<ROWS>& to, int k, const Load& element) {
  constexpr int COUNT = ROWS / ROW_STEP, BATCH = COUNT < AT_ONCE ? COUNT : AT_ONCE;
#pragma unroll 1
  for (int first = threadIdx.x / BLOCK_K; first < ROWS; first += BATCH * ROW_STEP) {
    IN held[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) held[i] = element(first + i * ROW_STEP);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) to.chunk(first + i * ROW_STEP, k / CHUNK)[k % CHUNK] = held[i];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    conv2d_few_channels(const IN* __restrict__ x, const IN* __restrict__ f, const IN* __restrict__ bias,
                        IN* __restrict__ y, const __grid_constant__ Convolution c) {
  extern __shared__ __align__(SWIZZLE * VECTOR_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const OutputTile tile = OutputTile::numbered(c, blockIdx.x, BLOCK_M, BLOCK_N);
  for (int i = threadIdx.x; i < BLOCK_M; i += THREADS) shared.origins[i] = Origin::of(c, tile.pixel + i);
  __syncthreads();

  const int column = threadIdx.x % BLOCK_K;
  const int taps = c.taps_y * c.taps_x, filters = c.group_filters - tile.filter;
  const IN* channels = x + tile.group * c.group_channels;
  const long long depth = static_cast<long long>(taps) * c.group_channels;  // elements of a filter
  const IN* weights = f + (static_cast<long long>(tile.group) * c.group_filters + tile.filter) * depth;
  const int k_tiles = (depth + BLOCK_K - 1) / BLOCK_K;
  const IN zero = from_float<IN>(0.f);

  const auto load = [&](int kt) {
    KTile& to = shared.buffer;
    const int k = kt * BLOCK_K + column, tap = k / c.group_channels, channel = k % c.group_channels;
    const int down = tap / c.taps_x * c.dilation_y, right = tap % c.taps_x * c.dilation_x;
    const long long away = (static_cast<long long>(down) * c.width + right) * c.channels + channel;
    const bool there = k < depth;
    gather(to.windows, column, [&](int i) {
      const Origin origin = shared.origins[i];
      const bool valid = there && c.inside(origin.top + down, origin.left + right);
      return valid ? channels[origin.element + away] : zero;
    });
    gather(to.filters, column, [&](int i) {
      const bool valid = there && i < filters;
      return valid ? weights[i * depth + k] : zero;
    });
  };

  Sums sums;
  for (int kt = 0; kt < k_tiles; ++kt) {
    load(kt);
    __syncthreads();  // this k-tile has come for everyone
    sums.add(shared.buffer);
    __syncthreads();  // everyone is done with it
  }
  sums.store(c, tile, bias, y);
}
