// epilogue staging: what the warps of a wgmma hold of a tile, 16 rows each, goes through shared memory to
// global memory. sm_90a.
#pragma once
#include "epilogue/rows.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"
#include "tile/convert.cuh"
#include "tile/vector.cuh"

// columns of a tile in shared memory, on the way from the registers of a warp: 16 rows of 128 bytes, or of
// 64, swizzled as a tensor map's. who stores them without one may have others, in whole pairs of chunks
template <class Out, int WIDTH = 128 / sizeof(Out)>
struct Staging {
  static constexpr int ROWS = 16, COLUMNS = WIDTH, ELEMENTS = ROWS * COLUMNS;
  static constexpr int CHUNK = VECTOR_BYTES / sizeof(Out), CHUNKS = COLUMNS / CHUNK, LANES = 32;
  static constexpr int REPEATED = CHUNKS < 8 ? 8 / CHUNKS : 1;  // rows that are permuted alike: 128 bytes

  static constexpr int PAIRS = COLUMNS / 4;                    // a thread's part
  static constexpr bool BY_TMA = COLUMNS * sizeof(Out) >= 64;  // rows of less have no swizzle here

  // by a warp: `sum` is what it holds of a wgmma in COLUMNS columns, and is stored from (row, column) on. TMA
  // stores it while the warp writes the next of its SLOTS buffers
  template <int SLOTS, class Held>
  static __device__ __forceinline__ void store(const Rows<Out>& to, Out* staged, const Held* sum, int row,
                                               int column) {
    tma_store_wait_read<SLOTS - 1>();
    __syncwarp();
    put(staged, sum);
    send(to, staged, row, column);
  }

  // by a warp: writes sums to shared memory, and those that are rounded already, two in a register
  static __device__ __forceinline__ void put(Out* staged, const float* sum) {
    if constexpr (sizeof(Out) == 2) {
      u32 pairs[PAIRS];
#pragma unroll
      for (int i = 0; i < PAIRS; ++i) pairs[i] = pair_from_float<Out>(sum[2 * i], sum[2 * i + 1]);
      put(staged, pairs);
    } else {
      const int lane = threadIdx.x % LANES;
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
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int i = 0; i < CHUNKS; i += 2) {  // two chunks, the upper and the lower 8 rows of each
      const u32 four[4] = {pairs[2 * i], pairs[2 * i + 1], pairs[2 * i + 2], pairs[2 * i + 3]};
      stmatrix_x4(chunk(staged, lane % 16, i + lane / 16), four);
    }
  }

  // by a warp, which has met since it wrote them: stores them without a tensor map. in WHOLE chunks, where
  // those begin at multiples of 16 bytes and none reaches beyond a row
  template <bool WHOLE>
  static __device__ __forceinline__ void by_threads(const Rows<Out>& to, Out* staged, int row, int column) {
    if (!WHOLE && to.leading % CHUNK != 0) {
      if (to.leading % 2 == 0 && to.columns % 2 == 0)
        side_by_side<2>(to, staged, row, column);
      else
        side_by_side<1>(to, staged, row, column);
      return;
    }
    constexpr int ROUNDS = ROWS * CHUNKS / LANES;
#pragma unroll(WHOLE ? ROUNDS : 1)
    for (int round = 0; round < ROUNDS; ++round) {
      const int i = round * LANES + threadIdx.x % LANES, r = i / CHUNKS, c = column + i % CHUNKS * CHUNK;
      if (!to.template has<WHOLE>(row + r, c)) continue;
      to.template store<WHOLE>(row + r, c, load_vector<CHUNK>(chunk(staged, r, i % CHUNKS)));
    }
  }

  // where they are
  static __device__ __forceinline__ Out* chunk(Out* staged, int row, int chunk) {
    return staged + row * COLUMNS + (chunk ^ row / REPEATED % CHUNKS) * CHUNK;
  }

 private:
  // rows whose chunks begin anywhere: COUNT elements at once, side by side with those of the next lane, so
  // that a warp stores few sectors at a time. rows and columns begin at multiples of COUNT, and so do columns
  // end
  template <int COUNT>
  static __device__ __forceinline__ void side_by_side(const Rows<Out>& to, Out* staged, int row, int column) {
    constexpr int ACROSS = COLUMNS / COUNT;
#pragma unroll 2
    for (int i = threadIdx.x % LANES; i < ROWS * ACROSS; i += LANES) {
      const int r = i / ACROSS, c = i % ACROSS * COUNT;
      if (row + r < to.rows && column + c < to.columns)
        store_vector(to.data + static_cast<long long>(row + r) * to.leading + column + c,
                     load_vector<COUNT>(chunk(staged, r, c / CHUNK) + c % CHUNK));
    }
  }

  // what the warp has written is stored
  static __device__ __forceinline__ void send(const Rows<Out>& to, Out* staged, int row, int column) {
    async_fence();
    __syncwarp();
    if (BY_TMA && to.mapped()) {
      if (threadIdx.x % LANES == 0) {
        tma_store(to.boxes, staged, row, column);
        tma_store_commit();
      }
    } else {
      by_threads<false>(to, staged, row, column);
    }
  }
};
