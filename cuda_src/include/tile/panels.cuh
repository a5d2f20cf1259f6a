// vectors of heads, as tensor maps of (batch, head, row, element) bring them to shared memory: panels of 128 bytes of
// all rows, swizzled; and their products by wgmma, each of which returns when it is in flight. sm_90a.
#pragma once
#include "ptx/tma_ranks.cuh"
#include "tile/k_tile.cuh"

template <class Element, int ROWS_, int COLUMNS_>
struct alignas(ATOM_BYTES) Panels {
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, WIDTH = KTile<Element>::DEPTH, PANELS = COLUMNS / WIDTH;
  static_assert(COLUMNS % WIDTH == 0, "vectors are loaded 64 elements at a time: take a multiple of 64 columns");
  Element panel[PANELS][ROWS * WIDTH];

  // by one thread: rows from `row` on of a head
  __device__ __forceinline__ void load(const TensorMap& map, Barrier& full, int batch, int head, int row) {
#pragma unroll
    for (int i = 0; i < PANELS; ++i) tma_load(panel[i], map, full, batch, head, row, i * WIDTH);
  }
};

// by a warpgroup: products of 64 rows of a, from `first` on, with all rows of b
template <class Element, int A_ROWS, int B_ROWS, int COLUMNS>
__device__ __forceinline__ void multiply_vectors(float (&sum)[B_ROWS / 2], const Panels<Element, A_ROWS, COLUMNS>& a,
                                                 int first, const Panels<Element, B_ROWS, COLUMNS>& b) {
  static_assert(B_ROWS % 8 == 0 && B_ROWS <= 256, "a product has 8 to 256 columns");
  constexpr int WIDTH = KTile<Element>::DEPTH;
  const u64 rows = swizzled_operand(shared_address(a.panel) + first * ROW_BYTES, 0, ATOM_BYTES);
  const u64 columns = swizzled_operand(shared_address(b.panel), 0, ATOM_BYTES);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < COLUMNS / WIDTH; ++i)
#pragma unroll
    for (int j = 0; j < WIDTH / WGMMA_K; ++j) {
      const int along = j * WGMMA_K * sizeof(Element);
      wgmma<0>(sum, operand_at(rows, i * A_ROWS * ROW_BYTES + along),
               operand_at(columns, i * B_ROWS * ROW_BYTES + along), Element(), i + j > 0);
    }
  wgmma_commit();
}

// by a warpgroup: adds to each of its 64 sums the rows of b, weighted. weights are left operands (see fragment.cuh)
template <class Element, int ROWS, int COLUMNS>
__device__ __forceinline__ void add_weighted(float (&sum)[COLUMNS / 2], const u32 (&weights)[ROWS / WGMMA_K][4],
                                             const Panels<Element, ROWS, COLUMNS>& b) {
  static_assert(ROWS % WGMMA_K == 0, "a product takes 16 rows at a time");
  constexpr bool SEVERAL = Panels<Element, ROWS, COLUMNS>::PANELS > 1;
  const u64 vectors = swizzled_operand(shared_address(b.panel), SEVERAL ? ROWS * ROW_BYTES : 0, ATOM_BYTES);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < ROWS / WGMMA_K; ++i)
    wgmma<1>(sum, weights[i], operand_at(vectors, i * WGMMA_K * ROW_BYTES), Element());
  wgmma_commit();
}
