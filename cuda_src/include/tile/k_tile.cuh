// k-tiles of operands a and b of 16 bits, as tensor maps bring them to shared memory: rows of 128 bytes, as
// wide as the swizzle, along k. of b, unless it has ROWS_OF_K too, panels of 128 bytes along its columns.
// sm_90a.
#pragma once
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

constexpr int WGMMA_M = 64, WGMMA_K = 16;
constexpr int ROW_BYTES = 128;
constexpr int ATOM_BYTES = 8 * ROW_BYTES;  // the swizzle repeats every 8 rows

template <class In>
struct KTile {
  static_assert(sizeof(In) == 2, "wgmma takes bf16 and fp16 here");
  static constexpr int DEPTH = ROW_BYTES / sizeof(In);  // along k, and of a panel along columns

  // by a warpgroup: has the product of 64 rows of a and the columns of b put into `sum`, or added to it where
  // `add`, and returns when only that is in flight
  template <bool ROWS_OF_K, int SUMS>
  static __device__ __forceinline__ void multiply(float (&sum)[SUMS], const In* a, const In* b,
                                                  bool add = true) {
    multiply_bands<ROWS_OF_K>(reinterpret_cast<float (&)[1][SUMS]>(sum), a, b, add);
  }

  // the same of BANDS times 64 rows of a
  template <bool ROWS_OF_K, int BANDS, int SUMS>
  static __device__ __forceinline__ void multiply_bands(float (&sum)[BANDS][SUMS], const In* a, const In* b,
                                                        bool add) {
    constexpr int A_STEP = WGMMA_K * sizeof(In);  // bytes to the next 16 of k
    constexpr int B_STEP = ROWS_OF_K ? A_STEP : WGMMA_K * ROW_BYTES;
    constexpr bool PANELS = !ROWS_OF_K && SUMS * 2 > DEPTH;  // more than one
    const u64 rows = swizzled_operand(shared_address(a), 0, ATOM_BYTES);
    const u64 columns = swizzled_operand(shared_address(b), PANELS ? DEPTH * ROW_BYTES : 0, ATOM_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEPTH / WGMMA_K; ++k)
#pragma unroll
      for (int band = 0; band < BANDS; ++band)
        wgmma<!ROWS_OF_K>(sum[band], operand_at(rows, band * WGMMA_M * ROW_BYTES + k * A_STEP),
                          operand_at(columns, k * B_STEP), In(), k > 0 || add);
    wgmma_commit();
    wgmma_wait<1>();
  }
};
