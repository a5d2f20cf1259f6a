// tiles of a matrix C of which the warps of a wgmma hold 16 rows each: in which order blocks take them, and
// how they leave. sm_90a.
#pragma once
#include "convert.cuh"
#include "mma.cuh"
#include "shared.cuh"
#include "tma.cuh"
#include "vector.cuh"

struct Tile {
  int row, column;
};

// tile `number` of so many rows and columns of tiles. GROUP rows are walked together, column by column, so
// that blocks that work at the same time find each other's A and B in the L2
template <int GROUP>
__device__ __forceinline__ Tile grouped_tile(int number, int rows, int columns) {
  const int group = number / (GROUP * columns), within = number % (GROUP * columns);
  const int height = min(GROUP, rows - group * GROUP);
  return {group * GROUP + within % height, within / height};
}

// the same, every other group from right to left: it begins with the columns of B that the group before ended
// with, and has left in the L2
template <int GROUP>
__device__ __forceinline__ Tile winding_tile(int number, int rows, int columns) {
  const Tile place = grouped_tile<GROUP>(number, rows, columns);
  return {place.row, place.row / GROUP % 2 ? columns - 1 - place.column : place.column};
}

// columns of C in shared memory, on the way from the registers of a warp to memory: 16 rows of 128 bytes,
// swizzled as a tensor map's
template <class Out>
struct Staged {
  static constexpr int ROWS = 16, COLUMNS = 128 / sizeof(Out), ELEMENTS = ROWS * COLUMNS;
  static constexpr int CHUNK = VECTOR_BYTES / sizeof(Out), CHUNKS = COLUMNS / CHUNK, WARP = 32;

  // by a warp: `sum` is what it holds of a wgmma in COLUMNS columns, and goes to C from row m and column n
  // on. the copy engine stores it while the warp writes the next of its SLOTS buffers. `g` names C, its
  // extents M and N, ldc, and C_boxes, a tensor map with boxes of this size, wherever C can have one
  template <int SLOTS, class Globals>
  static __device__ __forceinline__ void store(const Globals& g, Out* staged, const float* sum, int m,
                                               int n) {
    const int lane = threadIdx.x % WARP;
    const auto chunk = [&](int row, int chunk) { return staged + row * COLUMNS + (chunk ^ row % 8) * CHUNK; };
    tma_store_wait_read<SLOTS - 1>();
    __syncwarp();
    if constexpr (sizeof(Out) == 2) {
#pragma unroll
      for (int i = 0; i < CHUNKS; i += 2) {  // two chunks, the upper and the lower 8 rows of each
        const float* s = sum + i * 4;
        const u32 pairs[4] = {pair_from_float<Out>(s[0], s[1]), pair_from_float<Out>(s[2], s[3]),
                              pair_from_float<Out>(s[4], s[5]), pair_from_float<Out>(s[6], s[7])};
        stmatrix_x4(chunk(lane % 16, i + lane / 16), pairs);
      }
    } else {
#pragma unroll
      for (int i = 0; i < COLUMNS / 4; ++i) {  // pairs: 8 columns, in rows lane / 4 and lane / 4 + 8
        const int row = lane / 4 + i % 2 * 8, column = i / 2 * 8 + lane % 4 * 2;
        const Vector<Out, 2> v = {sum[i * 2], sum[i * 2 + 1]};
        store_vector(chunk(row, column / CHUNK) + column % CHUNK, v);
      }
    }
    async_fence();
    __syncwarp();
    if (g.ldc % CHUNK == 0 && g.N % CHUNK == 0) {
      if (lane == 0) {
        tma_store(g.C_boxes, staged, m, n);
        tma_store_commit();
      }
    } else {  // no tensor map has such rows, or the engine would store 16 bytes beyond N
#pragma unroll 1
      for (int i = lane; i < ROWS * CHUNKS; i += WARP) {
        const int row = i / CHUNKS, column = n + i % CHUNKS * CHUNK;
        const auto v = load_vector<CHUNK>(chunk(row, i % CHUNKS));
        if (m + row < g.M)
          store_tail(g.C + static_cast<long long>(m + row) * g.ldc + column, v, g.N - column,
                     g.ldc % CHUNK == 0);
      }
    }
  }
};
