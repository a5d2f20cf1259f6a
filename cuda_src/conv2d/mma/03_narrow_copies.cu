// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group), of which there may be any
// number; y: (images, rows, columns, filters). partial: (tiles, splits, BLOCK_M BLOCK_N) and counters:
// (tiles), scratch, the counters zero. bf16 and fp16.
//
// stage 3 of mma, narrow copies: k runs through taps and channels together, as in few_channels. neighbouring
// threads copy neighbouring pieces of a window. a piece has VECTOR elements, and VECTOR divides the number of
// channels. cp.async copies a piece to a circular buffer. if the number of channels is odd, pieces pass
// through registers, two elements at a time. a thread loads them before it multiplies a k-tile, and stores
// them to the other of two buffers after it. a thread keeps its place in the filter, (r, s, c), and moves it
// on by a k-tile without a division. where tiles are few, `splits` blocks share the k-tiles of one tile. the
// last of these blocks to finish adds up all partial sums, always in the same order.
//
// what it gains: loads overlap with products. small images with long filters fill the device.
//
// what limits it: mma.sync. a thread computes an address for every piece. if the number of channels is odd,
// elements are loaded one by one.

#include "copies.cuh"
#include "outputs.cuh"

static_assert(STAGES >= 2, "one k-tile is multiplied while at least one is loaded");
constexpr int BUFFERS = HELD ? 2 : STAGES, BYTES = PIECE * sizeof(IN);

struct Shared {
  KTile buffer[BUFFERS];
  Origin origins[BLOCK_M];
};
static_assert(sizeof(IN) * BLOCK_M * STAGED <= sizeof(Shared), "a tile is staged where k-tiles have been");

extern "C" __global__ void __launch_bounds__(THREADS)
    conv2d_narrow_copies(const IN* __restrict__ x, const IN* __restrict__ f, const IN* __restrict__ bias,
                         IN* __restrict__ y, const __grid_constant__ Convolution c, float* partial,
                         unsigned* counters, int part) {
  extern __shared__ __align__(SWIZZLE * VECTOR_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const OutputTile tile = OutputTile::numbered(c, blockIdx.x, BLOCK_M, BLOCK_N);
  for (int i = threadIdx.x; i < BLOCK_M; i += THREADS) shared.origins[i] = Origin::of(c, tile.pixel + i);
  __syncthreads();

  const int first = blockIdx.y * part;
  const int row = threadIdx.x / ACROSS, piece = threadIdx.x % ACROSS * PIECE;
  const int taps = c.taps_y * c.taps_x, filters = c.group_filters - tile.filter - row;
  const IN* channels = x + tile.group * c.group_channels;
  const long long depth = static_cast<long long>(taps) * c.group_channels;  // elements of a filter
  const IN* weights = f + (static_cast<long long>(tile.group) * c.group_filters + tile.filter + row) * depth +
                      first * BLOCK_K + piece;
  const int all = (depth + BLOCK_K - 1) / BLOCK_K;
  const int k_tiles = min(part, all - first);  // of this block
  const Place step = Place::of(c, BLOCK_K);
  Place place = Place::of(c, first * BLOCK_K + piece);  // of the thread's next element
  int left = depth - first * BLOCK_K - piece;           // of its elements of a filter
  Held held;

  // one group of copies a k-tile, empty ones at the end: so the number of groups in flight is always the same
  const auto load = [&](int kt) {
    if (kt < k_tiles) {
      KTile& to = shared.buffer[kt % BUFFERS];
      const IN* from = weights;
      if constexpr (HELD) {
        held.fetch(c, channels, place, shared.origins + row, from, depth, left, filters);
      } else {
        const Tap tap(c, channels, place);
        const Pieces windows(to.windows, row, piece), weighted(to.filters, row, piece);
#pragma unroll
        for (int i = 0; i < WINDOWS; ++i) {
          const Origin origin = shared.origins[row + i * ROW_STEP];
          cp_async<BYTES>(windows.of(i), tap.in(origin), tap.inside(c, origin) ? BYTES : 0);
        }
#pragma unroll
        for (int i = 0; i < FILTERS; ++i, from += ROW_STEP * depth)
          cp_async<BYTES>(weighted.of(i), from, left > 0 && i * ROW_STEP < filters ? BYTES : 0);
      }
      place = place.plus(step, c), weights += BLOCK_K, left -= BLOCK_K;
    }
    cp_async_commit();
  };
  const auto put = [&](int kt) {
    if constexpr (HELD) held.put(shared.buffer[kt % BUFFERS], row, piece);
  };
  for (int kt = 0; kt < BUFFERS - 1; ++kt) load(kt);
  put(0);

  Sums sums;
  for (int kt = 0; kt < k_tiles; ++kt) {
    cp_async_wait<BUFFERS - 2>();
    __syncthreads();  // this k-tile has come for everyone, and everyone is done with the one before
    load(kt + BUFFERS - 1);
    if (first + kt + 1 < all)
      sums.add(shared.buffer[kt % BUFFERS]);
    else  // of the last one what is multiplied, whole pieces
      sums.add(shared.buffer[kt % BUFFERS], depth - (all - 1) * BLOCK_K);
    if (kt + 1 < k_tiles) put(kt + 1);
  }
  if (gridDim.y > 1 && !add_up(sums, partial, counters, blockIdx.x, blockIdx.y, gridDim.y)) return;
  __syncthreads();  // everyone is done with the k-tiles
  store(reinterpret_cast<IN*>(memory), sums, c, tile, bias, y);
}
