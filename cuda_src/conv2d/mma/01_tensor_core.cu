// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group), both of which are multiples of
// 8; y: (images, rows, columns, filters). bf16 and fp16.
//
// stage 1 of mma, tensor cores: the convolution is computed as an implicit product of matrices with mma.sync.
// a k-tile is 64 channels of one tap. a block computes once where the windows of its tile begin, and keeps
// these places in shared memory. for each k-tile a thread adds the offset of the tap, and checks whether the
// pixel lies in the image. then cp.async copies 16 bytes into a circular buffer of STAGES k-tiles. for a
// pixel outside of the image it writes zeros.
//
// what it gains: tensor cores multiply. several k-tiles are in flight, and they occupy no registers.
//
// what limits it: threads compute an address for every 16 bytes. every operand passes through registers on
// its way to mma.sync, which cannot fill the tensor cores of Hopper.

#include "ptx/cp_async.cuh"
#include "tiles.cuh"

static_assert(STAGES >= 2, "one k-tile is multiplied while at least one is loaded");
constexpr int ROW_STEP = THREADS / SWIZZLE;  // a thread copies the same chunk of every so many-th row
static_assert(BLOCK_M % ROW_STEP == 0 && BLOCK_N % ROW_STEP == 0,
              "threads have to copy whole rows of a k-tile");

struct Shared {
  KTile buffer[STAGES];
  Origin origins[BLOCK_M];
};

extern "C" __global__ void __launch_bounds__(THREADS)
    conv2d_tensor_core(const IN* __restrict__ x, const IN* __restrict__ f, const IN* __restrict__ bias,
                       IN* __restrict__ y, const __grid_constant__ Convolution c) {
  extern __shared__ __align__(SWIZZLE * VECTOR_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const OutputTile tile = OutputTile::numbered(c, blockIdx.x, BLOCK_M, BLOCK_N);
  for (int i = threadIdx.x; i < BLOCK_M; i += THREADS) shared.origins[i] = Origin::of(c, tile.pixel + i);
  __syncthreads();

  const int row = threadIdx.x / SWIZZLE, chunk = threadIdx.x % SWIZZLE;
  const int taps = c.taps_y * c.taps_x, filters = c.group_filters - tile.filter;
  const int channel_tiles = (c.group_channels + BLOCK_K - 1) / BLOCK_K, k_tiles = taps * channel_tiles;
  const IN* channels = x + tile.group * c.group_channels;
  const long long depth = static_cast<long long>(taps) * c.group_channels;  // elements of a filter
  const IN* weights = f + (static_cast<long long>(tile.group) * c.group_filters + tile.filter) * depth;

  // one group of copies a k-tile, empty ones at the end: so the number of groups in flight is always the same
  const auto load = [&](int kt) {
    if (kt < k_tiles) {
      KTile& to = shared.buffer[kt % STAGES];
      const int tap = kt / channel_tiles, channel = kt % channel_tiles * BLOCK_K + chunk * CHUNK;
      const int down = tap / c.taps_x * c.dilation_y, right = tap % c.taps_x * c.dilation_x;
      const long long away = (static_cast<long long>(down) * c.width + right) * c.channels + channel;
      const bool there = channel < c.group_channels;
#pragma unroll
      for (int i = row; i < BLOCK_M; i += ROW_STEP) {
        const Origin origin = shared.origins[i];
        const bool valid = there && c.inside(origin.top + down, origin.left + right);
        cp_async<VECTOR_BYTES>(to.windows.chunk(i, chunk), valid ? channels + origin.element + away : x,
                               valid ? VECTOR_BYTES : 0);
      }
      const long long k = static_cast<long long>(tap) * c.group_channels + channel;
#pragma unroll
      for (int i = row; i < BLOCK_N; i += ROW_STEP) {
        const bool valid = there && i < filters;
        cp_async<VECTOR_BYTES>(to.filters.chunk(i, chunk), valid ? weights + i * depth + k : f,
                               valid ? VECTOR_BYTES : 0);
      }
    }
    cp_async_commit();
  };
  for (int kt = 0; kt < STAGES - 1; ++kt) load(kt);

  Sums sums;
  for (int kt = 0; kt < k_tiles; ++kt) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this k-tile has come for everyone, and everyone is done with the one before
    load(kt + STAGES - 1);
    sums.add(shared.buffer[kt % STAGES]);
  }
  sums.store(c, tile, bias, y);
}
