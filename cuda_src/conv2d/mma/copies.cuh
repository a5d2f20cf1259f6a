// k-tiles that threads copy piece by piece, where k runs through taps and channels together.
#pragma once
#include "ptx/cp_async.cuh"
#include "tiles.cuh"

static_assert(VECTOR == 1 || VECTOR == 2 || VECTOR == 4 || VECTOR == CHUNK,
              "a copy has 1, 2, 4 or 8 elements");
constexpr bool HELD = VECTOR == 1;          // in registers on the way: cp.async has 4 bytes at least
constexpr int PIECE = HELD ? 2 : VECTOR;    // what a thread puts into shared memory at once
constexpr int ACROSS = BLOCK_K / PIECE;     // pieces of a row of a k-tile
constexpr int ROW_STEP = THREADS / ACROSS;  // a thread has the same piece of every so many-th row
static_assert(BLOCK_M % ROW_STEP == 0 && BLOCK_N % ROW_STEP == 0,
              "threads have to copy whole rows of a k-tile");
constexpr int PERMUTATIONS = ROW_STEP < SWIZZLE ? SWIZZLE / ROW_STEP : 1;  // of chunks, in a thread's rows
constexpr int WINDOWS = BLOCK_M / ROW_STEP, FILTERS = BLOCK_N / ROW_STEP;  // rows of a thread

// where an element of a filter is. behind the last one r is not below taps_y
struct Place {
  int r, s, channel;

  static __device__ __forceinline__ Place of(const Convolution& c, int k) {
    const int tap = k / c.group_channels;
    return {tap / c.taps_x, tap % c.taps_x, k % c.group_channels};
  }
  // both are digits of a number: a digit carries at most one
  __device__ __forceinline__ Place plus(const Place& step, const Convolution& c) const {
    Place sum = {r + step.r, s + step.s, channel + step.channel};
    if (sum.channel >= c.group_channels) sum.channel -= c.group_channels, ++sum.s;
    if (sum.s >= c.taps_x) sum.s -= c.taps_x, ++sum.r;
    return sum;
  }
};

// where the element of a place is in every window
struct Tap {
  const IN* from;  // of the window that begins at element 0
  int down, right;

  __device__ __forceinline__ Tap(const Convolution& c, const IN* channels, const Place& at) {
    down = at.r < c.taps_y ? at.r * c.dilation_y : Convolution::NOWHERE;
    right = at.s * c.dilation_x;
    from =
        channels + (static_cast<long long>(at.r * c.dilation_y) * c.width + right) * c.channels + at.channel;
    asm("" : "+l"(from));  // added up once: the compiler would do it again for every window
  }
  // of a window; an address that is of use only where it is inside
  __device__ __forceinline__ const IN* in(const Origin& origin) const { return from + origin.element; }
  __device__ __forceinline__ bool inside(const Convolution& c, const Origin& origin) const {
    return c.inside(origin.top + down, origin.left + right);
  }
};

// where a thread's piece of its rows of a tile is: those that are permuted alike are a constant apart
struct Pieces {
  IN* first[PERMUTATIONS];

  template <int ROWS>
  __device__ __forceinline__ Pieces(Tile<ROWS>& tile, int row, int piece) {
#pragma unroll
    for (int i = 0; i < PERMUTATIONS; ++i)
      first[i] = tile.chunk(row + i * ROW_STEP, piece / CHUNK) + piece % CHUNK;
  }
  __device__ __forceinline__ IN* of(int i) const {
    return first[i % PERMUTATIONS] + i / PERMUTATIONS * PERMUTATIONS * ROW_STEP * BLOCK_K;
  }
};

// a thread's pieces of a k-tile, in registers
struct Held {
  IN x[HELD ? WINDOWS + FILTERS : 1][PIECE];

  // from global memory: of the windows that begin at `origins`, and of filters, `depth` elements each, of the
  // first `filters` rows. of a piece `left` elements are there
  __device__ __forceinline__ void fetch(const Convolution& c, const IN* channels, const Place& place,
                                        const Origin* origins, const IN* weights, long long depth, int left,
                                        int filters) {
#pragma unroll
    for (int e = 0; e < PIECE; ++e) {
      const Tap tap(c, channels, e ? place.plus({0, 0, 1}, c) : place);
#pragma unroll
      for (int i = 0; i < WINDOWS; ++i) {
        const Origin origin = origins[i * ROW_STEP];
        x[i][e] = tap.inside(c, origin) ? *tap.in(origin) : from_float<IN>(0.f);
      }
      const IN* from = weights + e;
#pragma unroll
      for (int i = 0; i < FILTERS; ++i, from += ROW_STEP * depth)
        x[WINDOWS + i][e] = e < left && i * ROW_STEP < filters ? *from : from_float<IN>(0.f);
    }
  }

  // to shared memory
  __device__ __forceinline__ void put(KTile& to, int row, int piece) const {
    const Pieces windows(to.windows, row, piece), weighted(to.filters, row, piece);
#pragma unroll
    for (int i = 0; i < WINDOWS + FILTERS; ++i)
      store_vector(i < WINDOWS ? windows.of(i) : weighted.of(i - WINDOWS),
                   Vector<IN, PIECE>{x[i][0], x[i][1]});
  }
};
