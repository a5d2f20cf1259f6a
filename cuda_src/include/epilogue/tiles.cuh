// tiles of a matrix C of which the warps of a wgmma hold 16 rows each: in which order blocks take them, and
// how they leave. sm_90a.
#pragma once
#include "tile/convert.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"
#include "tile/vector.cuh"

struct Tile {
  int row, column;
};

// tile `number` of so many rows and columns of tiles. GROUP rows are walked together, column by column, so
// that blocks that work at the same time find each other's A and B in the L2
template <int GROUP>
__device__ __forceinline__ Tile grouped_tile(int number, int rows, int columns) {
  const int whole = GROUP * columns;
  const int group = number < whole ? 0 : number / whole;  // the first tile of a block is waited for
  const int within = number - group * whole, height = min(GROUP, rows - group * GROUP);
  // of a whole group without a division at run time: unsigned, or compilers make it one with that below
  const unsigned in_all = number;
  if (height == GROUP)
    return {group * GROUP + static_cast<int>(in_all % GROUP),
            static_cast<int>(in_all / GROUP) - group * columns};
  return {group * GROUP + within % height, within / height};
}

// the same, in groups of about GROUP rows, as equal as can be: of a low one blocks have little in common.
// every other group is walked from right to left: it begins with the columns of B that the group before ended
// with, and has left in the L2
template <int GROUP>
__device__ __forceinline__ Tile winding_tile(int number, int rows, int columns) {
  const int groups = max(1, (rows + GROUP / 2) / GROUP), most = (rows + groups - 1) / groups;
  const int whole = most * columns, group = number < whole ? 0 : number / whole;
  const int within = number - group * whole;
  const int height = min(most, rows - group * most), column = within / height;
  return {group * most + within % height, group % 2 ? columns - 1 - column : column};
}

// columns of C in shared memory, on the way from the registers of a warp to memory: 16 rows of 128 bytes,
// swizzled as a tensor map's. who stores them without one may have fewer columns, in whole pairs of chunks
template <class Out, int WIDTH = 128 / sizeof(Out)>
struct Staged {
  static constexpr int ROWS = 16, COLUMNS = WIDTH, ELEMENTS = ROWS * COLUMNS;
  static constexpr int CHUNK = VECTOR_BYTES / sizeof(Out), CHUNKS = COLUMNS / CHUNK, WARP = 32;

  static constexpr int PAIRS = COLUMNS / 4;  // a thread's part

  // by a warp: `sum` is what it holds of a wgmma in COLUMNS columns, and goes to C from row m and column n
  // on. the copy engine stores it while the warp writes the next of its SLOTS buffers. `g` names C, its
  // extents M and N, ldc, and C_boxes, a tensor map with boxes of this size, wherever C can have one
  template <int SLOTS, class Globals, class Held>
  static __device__ __forceinline__ void store(const Globals& g, Out* staged, const Held* sum, int m, int n) {
    tma_store_wait_read<SLOTS - 1>();
    __syncwarp();
    put(staged, sum);
    send(g, staged, m, n);
  }

  // by a warp: writes sums to shared memory, and those that are rounded already, two in a register
  static __device__ __forceinline__ void put(Out* staged, const float* sum) {
    if constexpr (sizeof(Out) == 2) {
      u32 pairs[PAIRS];
#pragma unroll
      for (int i = 0; i < PAIRS; ++i) pairs[i] = pair_from_float<Out>(sum[2 * i], sum[2 * i + 1]);
      put(staged, pairs);
    } else {
      const int lane = threadIdx.x % WARP;
#pragma unroll
      for (int i = 0; i < PAIRS; ++i) {  // 8 columns, in rows lane / 4 and lane / 4 + 8
        const int row = lane / 4 + i % 2 * 8, column = i / 2 * 8 + lane % 4 * 2;
        const Vector<Out, 2> v = {sum[i * 2], sum[i * 2 + 1]};
        store_vector(chunk(staged, row, column / CHUNK) + column % CHUNK, v);
      }
    }
  }

  static __device__ __forceinline__ void put(Out* staged, const u32* pairs) {
    static_assert(sizeof(Out) == 2, "a register holds two of 16 bits");
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < CHUNKS; i += 2) {  // two chunks, the upper and the lower 8 rows of each
      const u32 four[4] = {pairs[2 * i], pairs[2 * i + 1], pairs[2 * i + 2], pairs[2 * i + 3]};
      stmatrix_x4(chunk(staged, lane % 16, i + lane / 16), four);
    }
  }

  // by a warp, which has met since it wrote them: stores them without a tensor map. in WHOLE chunks, where
  // those begin at multiples of 16 bytes and none reaches beyond N
  template <bool WHOLE, class Globals>
  static __device__ __forceinline__ void by_threads(const Globals& g, Out* staged, int m, int n) {
    constexpr int ROUNDS = ROWS * CHUNKS / WARP;
#pragma unroll(WHOLE ? ROUNDS : 1)
    for (int round = 0; round < ROUNDS; ++round) {
      const int i = round * WARP + threadIdx.x % WARP, row = i / CHUNKS, column = n + i % CHUNKS * CHUNK;
      if (m + row >= g.M || (WHOLE && column >= g.N)) continue;
      Out* const to = g.C + static_cast<long long>(m + row) * g.ldc + column;
      const auto v = load_vector<CHUNK>(chunk(staged, row, i % CHUNKS));
      if constexpr (WHOLE)
        store_vector(to, v);
      else
        store_tail(to, v, g.N - column, g.ldc % CHUNK == 0);
    }
  }

  // where they are
  static __device__ __forceinline__ Out* chunk(Out* staged, int row, int chunk) {
    return staged + row * COLUMNS + (chunk ^ row % CHUNKS) * CHUNK;
  }

 private:
  // what the warp has written goes to C
  template <class Globals>
  static __device__ __forceinline__ void send(const Globals& g, Out* staged, int m, int n) {
    const int lane = threadIdx.x % WARP;
    async_fence();
    __syncwarp();
    if (g.ldc % CHUNK == 0 && g.N % CHUNK == 0) {
      if (lane == 0) {
        tma_store(g.C_boxes, staged, m, n);
        tma_store_commit();
      }
    } else {  // no tensor map has such rows, or the engine would store 16 bytes beyond N
      by_threads<false>(g, staged, m, n);
    }
  }
};

// a finished tile in registers: what a warp holds of COLUMNS columns of sums, rounded, until it is stored
template <class Out, int COLUMNS>
struct Kept {
  static constexpr int PARTS = sizeof(Out) == 2 ? COLUMNS / Staged<Out>::COLUMNS : 0;  // 32 bits do not fit
  u32 pairs[COLUMNS / 4];
  int m, n;  // where they belong

  __device__ __forceinline__ void keep(const float* sum, int row, int column) {
    if constexpr (PARTS > 0) {
#pragma unroll
      for (int i = 0; i < COLUMNS / 4; ++i) pairs[i] = pair_from_float<Out>(sum[2 * i], sum[2 * i + 1]);
    }
    m = row, n = column;
  }

  // has one part stored, as Staged does
  template <int PART, int SLOTS, class Globals>
  __device__ __forceinline__ void store(const Globals& g,
                                        Out (&buffers)[SLOTS][Staged<Out>::ELEMENTS]) const {
    if constexpr (PARTS > 0)
      Staged<Out>::template store<SLOTS>(g, buffers[PART % SLOTS], &pairs[PART * Staged<Out>::PAIRS], m,
                                         n + PART * Staged<Out>::COLUMNS);
  }
};
