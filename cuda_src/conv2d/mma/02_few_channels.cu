// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group), of which there may be any
// number; y: (images, rows, columns, filters). bf16 and fp16.
//
// stage 2 of mma, few channels: k runs through taps and channels together, in the order (r, s, c), in which a
// filter lies in memory. so only the last k-tile is partly empty, however few channels there are. a thread
// gathers the window of one pixel, element by element. neighbouring threads have neighbouring pixels. with
// few channels these pixels share cache lines. the distance of an element from the beginning of its window
// depends only on k. so these distances are computed once for each k-tile, and kept in shared memory. filters
// are gathered along k.
//
// what it gains: 3 channels and 7 x 7 taps make three k-tiles. if each tap had a k-tile of its own, there
// would be 49.
//
// what limits it: elements are loaded one by one, and only other blocks of the multiprocessor hide the
// latency. with many channels each pixel lies in a cache line of its own.

#include "tiles.cuh"

static_assert(THREADS == BLOCK_M, "a thread gathers one window: take as many pixels as threads");
static_assert(THREADS % BLOCK_K == 0,
              "a thread gathers one column of the filters: take a multiple of two warps");
constexpr int ROW_STEP = THREADS / BLOCK_K;
static_assert(BLOCK_N % ROW_STEP == 0, "threads have to gather whole columns of the filters");
constexpr int AT_ONCE = 16;  // loads of a thread that are in flight

// how far an element lies from the beginning of its window
struct Distance {
  long long elements;
  int down, right;
};

struct Shared {
  KTile buffer;
  Distance distances[BLOCK_K];
};

// by a thread: fills column `k` of the rows of a tile from where its element of row 0 is, `apart` from one
// row to the next, of the first `valid` rows
template <int ROWS>
__device__ __forceinline__ void gather(Tile<ROWS>& to, int k, const IN* from, long long apart, int valid) {
  constexpr int COUNT = ROWS / ROW_STEP, BATCH = COUNT < AT_ONCE ? COUNT : AT_ONCE;
  from += threadIdx.x / BLOCK_K * apart;
#pragma unroll 1
  for (int first = threadIdx.x / BLOCK_K; first < ROWS; first += BATCH * ROW_STEP) {
    IN held[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i, from += ROW_STEP * apart)
      held[i] = first + i * ROW_STEP < valid ? *from : from_float<IN>(0.f);
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
  const Origin origin = Origin::of(c, tile.pixel + threadIdx.x);

  const int column = threadIdx.x % BLOCK_K;
  const int taps = c.taps_y * c.taps_x, filters = c.group_filters - tile.filter;
  const IN* channels = x + tile.group * c.group_channels;
  const long long depth = static_cast<long long>(taps) * c.group_channels;  // elements of a filter
  const IN* weights = f + (static_cast<long long>(tile.group) * c.group_filters + tile.filter) * depth;
  const int k_tiles = (depth + BLOCK_K - 1) / BLOCK_K;

  // of a k-tile what is multiplied, whole pieces: the last one is partly empty
  const auto end = [&](int kt) {
    return static_cast<int>(
        min(static_cast<long long>(BLOCK_K), (depth - kt * BLOCK_K + MMA_K - 1) / MMA_K * MMA_K));
  };
  const auto load = [&](int kt) {
    KTile& to = shared.buffer;
    const int k = kt * BLOCK_K + column;
    const bool there = k < depth;
    if (threadIdx.x < BLOCK_K) {
      const int tap = k / c.group_channels, channel = k % c.group_channels;
      const int down = tap / c.taps_x * c.dilation_y, right = tap % c.taps_x * c.dilation_x;
      const long long away = (static_cast<long long>(down) * c.width + right) * c.channels + channel;
      shared.distances[k % BLOCK_K] =
          there ? Distance{away, down, right} : Distance{0, Convolution::NOWHERE, 0};
    }
    __syncthreads();  // the distances have come for everyone
#pragma unroll 2
    for (int chunk = 0; chunk < end(kt) / CHUNK; ++chunk) {
      Vector<IN, CHUNK> held;
#pragma unroll
      for (int e = 0; e < CHUNK; ++e) {
        const Distance d = shared.distances[chunk * CHUNK + e];
        const bool valid = c.inside(origin.top + d.down, origin.left + d.right);
        held.x[e] = valid ? channels[origin.element + d.elements] : from_float<IN>(0.f);
      }
      store_vector(to.windows.chunk(threadIdx.x, chunk), held);
    }
    if (column < end(kt)) gather(to.filters, column, weights + k, depth, there ? filters : 0);
  };

  Sums sums;
  for (int kt = 0; kt < k_tiles; ++kt) {
    load(kt);
    __syncthreads();  // this k-tile has come for everyone
    sums.add(shared.buffer, end(kt));
    __syncthreads();  // everyone is done with it
  }
  sums.store(c, tile, bias, y);
}
