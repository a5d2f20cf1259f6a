// what the stages of this track have in common: see scan.cuh. a block has 64 columns of a head, takes CHUNK places at a
// time, and keeps the state of those columns in its registers.
//
// a warp has 16 places of a chunk, as rows of y, and of the state 16 rows of every 64.
#pragma once
#include "../scan.cuh"
#include "ptx/ex2.cuh"
#include "ptx/mma.cuh"
#include "tile/async_tile.cuh"
#include "tile/fragment.cuh"
#include "tile/row_scan.cuh"

constexpr int CHUNK = 64, COLUMNS = 64, WARPS = CHUNK / 16, THREADS = WARPS * WARP;
constexpr int STATE_TILES = DSTATE / CHUNK;  // of the state, 16 rows of each are a warp's
constexpr int EACH = VECTOR_BYTES / sizeof(IN);

static_assert(DSTATE % CHUNK == 0, "every warp has as many rows of the state: DSTATE has to be a multiple of 64");

// what is loaded of a chunk
struct Chunk {
  AsyncTile<IN, CHUNK, DSTATE, THREADS> c, b;
  AsyncTile<IN, CHUNK, COLUMNS, THREADS> x;
  float log_a[CHUNK];
};

struct Shared {
  Chunk chunk[2];
  AsyncTile<IN, DSTATE, COLUMNS, THREADS> state;  // before a chunk, rounded
  float sums[WARPS][CHUNK];                       // of each warp the same
};

// columns of a head, and whether arrays lie at multiples of 16 bytes
struct Columns {
  int first, count;
  bool x_aligned, bc_aligned, y_aligned;

  __device__ __forceinline__ Columns(const Operands& g, int number, int aligned)
      : first(number * COLUMNS), count(min(COLUMNS, g.headdim - number * COLUMNS)), x_aligned(aligned & 1),
        bc_aligned(aligned & 2), y_aligned(g.headdim % EACH == 0) {}
};

// starts to load the chunk whose places begin at `first`, unless there is none; one group of copies either way. for the
// state alone c is not needed
template <bool OUTPUTS>
__device__ __forceinline__ void load_chunk(Chunk& chunk, const Operands& g, const Columns& columns, int first, int end) {
  if (first < end) {
    if (OUTPUTS) chunk.c.load(g.c, g.bc_place, first, end, g.dstate, columns.bc_aligned);
    chunk.b.load(g.b, g.bc_place, first, end, g.dstate, columns.bc_aligned);
    chunk.x.load(g.x + columns.first, g.x_place, first, end, columns.count, columns.x_aligned);
    for (int row = threadIdx.x; row < CHUNK; row += THREADS) {
      const bool inside = first + row < end;
      cp_async<4>(&chunk.log_a[row], g.log_a + static_cast<long long>(inside ? first + row : first) * g.heads,
                  inside ? 4 : 0);
    }
  }
  cp_async_commit();
}

// by a warp: the logarithms of decays from the beginning of the chunk to every place become sums; returns the last one
__device__ __forceinline__ float sum_decays(float (&sums)[CHUNK], const float (&log_a)[CHUNK]) {
  static_assert(CHUNK == 2 * WARP, "a lane has two places");
  const int at = threadIdx.x % WARP * 2;
  const float first = log2_decay(log_a[at]), second = log2_decay(log_a[at + 1]);
  const float upto = warp_scan(first + second);
  sums[at] = upto - second;
  sums[at + 1] = upto;
  __syncwarp();
  return sums[CHUNK - 1];
}

// what a warp has of the state: of each tile 16 rows
struct State {
  float value[STATE_TILES][COLUMNS / 8][4] = {};

  // where the elements of a lane are: `row` and 8 further down, `column` and the next, of tile 0 and of columns 0 to 7
  int row, column;

  __device__ __forceinline__ State()
      : row(threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4), column(threadIdx.x % 4 * 2) {}

  // calls `work` with the row and the column of each element, and the element
  template <class Work>
  __device__ __forceinline__ void every(const Work& work) {
#pragma unroll
    for (int tile = 0; tile < STATE_TILES; ++tile)
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
  __device__ __forceinline__ void share(Shared& shared) const {
#pragma unroll
    for (int tile = 0; tile < STATE_TILES; ++tile)
#pragma unroll
      for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float* const pair = &value[tile][i][half * 2];
          IN* const to = shared.state.chunk(tile * CHUNK + row + half * 8, i) + column;
          *reinterpret_cast<u32*>(to) = pair_from_float<IN>(pair[0], pair[1]);
        }
  }
};

// b^T of a warp's rows of a tile and of 16 places, each times the decays from there to the end of the chunk, as a left
// operand
__device__ __forceinline__ void decayed_operand(u32 (&a)[4], Chunk& chunk, const float (&sums)[CHUNK], float last,
                                                int tile, int place) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int first = (tile * CHUNK + warp * 16) / EACH;
  ldmatrix_x4_trans(a, chunk.b.chunk(place + lane / 16 * 8 + lane % 8, first + lane / 8 % 2));
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

// by a warp: x of the chunk from place `place` on, 16 of them, and columns of two chunks of 8, as right operands
__device__ __forceinline__ void load_values(u32 (&b)[4], Chunk& chunk, int place, int i) {
  const int lane = threadIdx.x % WARP;
  ldmatrix_x4_trans(b, chunk.x.chunk(place + lane % 16, i + lane / 16));
}

// the state after the chunk
__device__ __forceinline__ void advance(State& state, Chunk& chunk, const float (&sums)[CHUNK], float last) {
  const float kept = ex2(last);
  state.every([&](int, int, float& element) { element *= kept; });
#pragma unroll
  for (int place = 0; place < CHUNK; place += 16) {
    u32 a[STATE_TILES][4];
#pragma unroll
    for (int tile = 0; tile < STATE_TILES; ++tile) decayed_operand(a[tile], chunk, sums, last, tile, place);
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
      u32 b[4];
      load_values(b, chunk, place, i);
#pragma unroll
      for (int tile = 0; tile < STATE_TILES; ++tile) {
        mma(state.value[tile][i], a[tile], b[0], b[1], IN());
        mma(state.value[tile][i + 1], a[tile], b[2], b[3], IN());
      }
    }
  }
}

// y of the chunk whose places begin at `first`, from the state that is shared
__device__ __forceinline__ void store_outputs(const Operands& g, const Columns& columns, Shared& shared, Chunk& chunk,
                                              const float (&sums)[CHUNK], int first, int end) {
  const int lane = threadIdx.x % WARP, own = threadIdx.x / WARP * 16, row = own + lane / 4;
  float y[COLUMNS / 2] = {}, weight[CHUNK / 2] = {};
  auto& ys = reinterpret_cast<float(&)[COLUMNS / 8][4]>(y);
  auto& weights = reinterpret_cast<float(&)[CHUNK / 8][4]>(weight);
#pragma unroll
  for (int n = 0; n < DSTATE; n += 16) {
    u32 a[4], b[4];
    ldmatrix_x4(a, chunk.c.chunk(own + lane % 16, n / EACH + lane / 16));
#pragma unroll
    for (int place = 0; place < CHUNK; place += 16) {
      if (place > own) break;  // later than all rows of the warp
      ldmatrix_x4(b, chunk.b.chunk(place + lane / 16 * 8 + lane % 8, n / EACH + lane / 8 % 2));
      mma(weights[place / 8], a, b[0], b[1], IN());
      mma(weights[place / 8 + 1], a, b[2], b[3], IN());
    }
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
      ldmatrix_x4_trans(b, shared.state.chunk(n + lane % 16, i + lane / 16));
      mma(ys[i], a, b[0], b[1], IN());
      mma(ys[i + 1], a, b[2], b[3], IN());
    }
  }

  const float upto[2] = {sums[row], sums[row + 8]};
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) y[i] *= ex2(upto[i / 2 % 2]);
#pragma unroll
  for (int i = 0; i < CHUNK / 2; ++i) {
    const int place = i / 4 * 8 + lane % 4 * 2 + i % 2;
    weight[i] = place <= row + i / 2 % 2 * 8 ? weight[i] * ex2(upto[i / 2 % 2] - sums[place]) : 0.f;
  }
  u32 a[CHUNK / 16][4];
  to_left_operand<IN>(a, weight);
#pragma unroll
  for (int place = 0; place < CHUNK; place += 16) {
    if (place > own) break;
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
      u32 b[4];
      load_values(b, chunk, place, i);
      mma(ys[i], a[place / 16], b[0], b[1], IN());
      mma(ys[i + 1], a[place / 16], b[2], b[3], IN());
    }
  }
  IN* const to = g.y + (first + row) * g.y_place() + columns.first;
  const bool inside[2] = {first + row < end, first + row + 8 < end};
  store_rows({to, to + 8 * g.y_place()}, inside, y, columns.count, columns.y_aligned);
}
