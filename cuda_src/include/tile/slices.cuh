// slices of k of A and B in 16 bits, as tensor maps bring them to shared memory: rows of 128 bytes, as wide
// as the swizzle, along k. of B, unless it has ROWS_OF_K too, panels of 128 bytes along n. sm_90a.
#pragma once
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

constexpr int WGMMA_M = 64, WGMMA_K = 16;
constexpr int ROW_BYTES = 128;
constexpr int ATOM_BYTES = 8 * ROW_BYTES;  // the swizzle repeats every 8 rows

// which slice of k a step takes
struct SliceOrder {
  int first, by;

  __device__ __forceinline__ int slice(int step) const { return first + step * by; }
};

// of the `steps` of a block's tile number `item`: every other tile goes back from the last slice to the
// first. those of the rows or columns that it shares with the tile before are then the last that were read,
// and still in the L2
__device__ __forceinline__ SliceOrder there_and_back(int item, int steps) {
  return item % 2 ? SliceOrder{steps - 1, -1} : SliceOrder{0, 1};
}

template <class In>
struct Slice {
  static_assert(sizeof(In) == 2, "wgmma takes bf16 and fp16 here");
  static constexpr int DEPTH = ROW_BYTES / sizeof(In);  // along k, and of a panel along n

  // by a warpgroup: has the product of 64 rows of A and the columns of B put into `sum`, what it holds of C,
  // or added to it where `add`, and returns when only that is in flight
  template <bool ROWS_OF_K, int SUMS>
  static __device__ __forceinline__ void multiply(float (&sum)[SUMS], const In* a, const In* b,
                                                  bool add = true) {
    constexpr int A_STEP = WGMMA_K * sizeof(In);  // bytes to the next 16 of k
    constexpr int B_STEP = ROWS_OF_K ? A_STEP : WGMMA_K * ROW_BYTES;
    constexpr bool PANELS = !ROWS_OF_K && SUMS * 2 > DEPTH;  // more than one
    const u64 rows = swizzled_operand(shared_address(a), 0, ATOM_BYTES);
    const u64 columns = swizzled_operand(shared_address(b), PANELS ? DEPTH * ROW_BYTES : 0, ATOM_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEPTH / WGMMA_K; ++k)
      wgmma<!ROWS_OF_K>(sum, operand_at(rows, k * A_STEP), operand_at(columns, k * B_STEP), In(),
                        k > 0 || add);
    wgmma_commit();
    wgmma_wait<1>();
  }
};
