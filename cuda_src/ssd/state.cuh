// what the stages on tensor cores have in common: see scan.cuh. a block has 64 columns of a head, takes CHUNK places at a
// time, and keeps the state of those columns in its registers.
//
// a warp has 16 places of a chunk, as rows of y, and of the state 16 rows of every 64.
#pragma once
#include "ptx/ex2.cuh"
#include "ptx/mma.cuh"
#include "scan.cuh"
#include "tile/async_tile.cuh"
#include "tile/fragment.cuh"
#include "tile/row_scan.cuh"

constexpr int CHUNK = 64, COLUMNS = 64, WARPS = CHUNK / 16, THREADS = WARPS * WARP;
constexpr int STATE_TILES = DSTATE / CHUNK;  // of the state, 16 rows of each are a warp's
constexpr int EACH = VECTOR_BYTES / sizeof(IN);

static_assert(DSTATE % CHUNK == 0, "every warp has as many rows of the state: DSTATE has to be a multiple of 64");

// columns of a head, and whether arrays lie at multiples of 16 bytes
struct Columns {
  int first, count;
  bool x_aligned, bc_aligned, y_aligned;

  __device__ __forceinline__ Columns(const Operands& g, int number, int aligned)
      : first(number * COLUMNS), count(min(COLUMNS, g.headdim - number * COLUMNS)), x_aligned(aligned & 1),
        bc_aligned(aligned & 2), y_aligned(g.headdim % EACH == 0) {}
};

// by a warp: logarithms of decays become sums from the beginning of the chunk to every place, of which a lane has two
__device__ __forceinline__ void sum_decays(float (&sums)[CHUNK], float first, float second) {
  static_assert(CHUNK == 2 * WARP, "a lane has two places");
  const int at = threadIdx.x % WARP * 2;
  first = log2_decay(first);
  const float upto = warp_scan(first + log2_decay(second)), before = __shfl_up_sync(ALL_LANES, upto, 1);
  sums[at] = (at > 0 ? before : 0.f) + first;
  sums[at + 1] = upto;
}

// which 16 of 64 rows a warp has: its number among the warps that share them
__device__ __forceinline__ int warp_of_rows() { return threadIdx.x / WARP % WARPS; }

// what a warp has of TILES tiles of the state: of each tile 16 rows
template <int TILES>
struct StatePart {
  float value[TILES][COLUMNS / 8][4] = {};

  // where the elements of a lane are: `row` and 8 further down, `column` and the next, of its first tile and of columns
  // 0 to 7
  int row, column;

  __device__ __forceinline__ StatePart(int tile = 0)
      : row(tile * CHUNK + warp_of_rows() * 16 + threadIdx.x % WARP / 4), column(threadIdx.x % 4 * 2) {}

  // calls `work` with the row and the column of each element, and the element
  template <class Work>
  __device__ __forceinline__ void every(const Work& work) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) work(tile * CHUNK + row + j / 2 * 8, i * 8 + column + j % 2, value[tile][i][j]);
  }

  // from and to (dstate, headdim) of a head
  __device__ __forceinline__ void load(const float* from, const Operands& g, const Columns& columns) {
    every([&](int n, int p, float& element) {
      element = n < g.dstate && p < columns.count ? from[n * g.headdim + columns.first + p] : 0.f;
    });
  }
  __device__ __forceinline__ void store(float* to, const Operands& g, const Columns& columns) {
    every([&](int n, int p, float& element) {
      if (n < g.dstate && p < columns.count) to[n * g.headdim + columns.first + p] = element;
    });
  }

  // rounded, to where all warps read it
  template <class Tile>
  __device__ __forceinline__ void share(Tile& to) const {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float* const pair = &value[tile][i][half * 2];
          IN* const place = to.chunk(tile * CHUNK + row + half * 8, i) + column;
          *reinterpret_cast<u32*>(place) = pair_from_float<IN>(pair[0], pair[1]);
        }
  }
};

using State = StatePart<STATE_TILES>;

// b^T of a warp's rows of a tile and of 16 places, each times the decays from there to the end of the chunk, as a left
// operand
template <class Tile>
__device__ __forceinline__ void decayed_operand(u32 (&a)[4], Tile& b, const float (&sums)[CHUNK], float last, int tile,
                                                int place) {
  const int lane = threadIdx.x % WARP, first = (tile * CHUNK + warp_of_rows() * 16) / EACH;
  ldmatrix_x4_trans(a, b.chunk(place + lane / 16 * 8 + lane % 8, first + lane / 8 % 2));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = place + half * 8 + lane % 4 * 2;
    const float decays[2] = {ex2(last - sums[at]), ex2(last - sums[at + 1])};
#pragma unroll
    for (int i = half * 2; i < half * 2 + 2; ++i) {
      const IN* const pair = reinterpret_cast<const IN*>(&a[i]);
      a[i] = pair_from_float<IN>(to_float(pair[0]) * decays[0], to_float(pair[1]) * decays[1]);
    }
  }
}

// products of c and b of two places in a warp's accumulators become weights: times the decays from one to the other, and
// 0 where the second is later. `row` is the first row of the lane
__device__ __forceinline__ void weigh(float (&weight)[CHUNK / 2], const float (&sums)[CHUNK], int row) {
  const float upto[2] = {sums[row], sums[row + 8]};
#pragma unroll
  for (int i = 0; i < CHUNK / 2; ++i) {
    const int place = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    weight[i] = place <= row + i / 2 % 2 * 8 ? weight[i] * ex2(upto[i / 2 % 2] - sums[place]) : 0.f;
  }
}

// what comes from before the chunk is times the decays from there
__device__ __forceinline__ void decay_rows(float (&y)[COLUMNS / 2], const float (&sums)[CHUNK], int row) {
  const float decays[2] = {ex2(sums[row]), ex2(sums[row + 8])};
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) y[i] *= decays[i / 2 % 2];
}

// y of a warp's rows of the chunk whose places begin at `first`
__device__ __forceinline__ void store_places(const Operands& g, const Columns& columns, const float (&y)[COLUMNS / 2],
                                             int first, int row, int end) {
  IN* const to = g.y + (first + row) * g.y_place() + columns.first;
  const bool inside[2] = {first + row < end, first + row + 8 < end};
  store_rows({to, to + 8 * g.y_place()}, inside, y, columns.count, columns.y_aligned);
}
