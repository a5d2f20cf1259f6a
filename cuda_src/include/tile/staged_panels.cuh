// panels of vectors (see panels.cuh) that are the stages of a circular buffer, as operands of wgmma. sm_90a.
#pragma once
#include "tile/panels.cuh"

// the operand that begins with a stage. of a power of two of bytes its address takes a shift. of others
// compilers would multiply for each product, and it is so much further on than that of the first stage
template <class Element, int ROWS, int COLUMNS, int STAGES>
__device__ __forceinline__ u64 operand_of(const Panels<Element, ROWS, COLUMNS> (&stages)[STAGES], int stage,
                                          int leading) {
  constexpr u32 BYTES = sizeof(stages[0]), OF_DESCRIPTOR = 16;
  if constexpr ((BYTES & (BYTES - 1)) == 0)
    return swizzled_operand(shared_address(stages[stage].panel), leading, ATOM_BYTES);
  const u64 first = swizzled_operand(shared_address(stages[0].panel), leading, ATOM_BYTES);
  return first >> 32 << 32 | (static_cast<u32>(first) + stage * (BYTES / OF_DESCRIPTOR));
}

// as multiply_vectors, with all rows of a stage
template <class Element, int A_ROWS, int B_ROWS, int COLUMNS, int STAGES>
__device__ __forceinline__ void multiply_stage(float (&sum)[B_ROWS / 2],
                                               const Panels<Element, A_ROWS, COLUMNS>& a, int first,
                                               const Panels<Element, B_ROWS, COLUMNS> (&b)[STAGES],
                                               int stage) {
  constexpr int WIDTH = KTile<Element>::DEPTH;
  const u64 rows = swizzled_operand(shared_address(a.panel) + first * ROW_BYTES, 0, ATOM_BYTES);
  const u64 columns = operand_of(b, stage, 0);
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

// as add_weighted, of the rows of a stage
template <class Element, int ROWS, int COLUMNS, int STAGES>
__device__ __forceinline__ void add_stage(float (&sum)[COLUMNS / 2], const u32 (&weights)[ROWS / WGMMA_K][4],
                                          const Panels<Element, ROWS, COLUMNS> (&b)[STAGES], int stage) {
  constexpr bool SEVERAL = Panels<Element, ROWS, COLUMNS>::PANELS > 1;
  const u64 vectors = operand_of(b, stage, SEVERAL ? ROWS * ROW_BYTES : 0);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < ROWS / WGMMA_K; ++i)
    wgmma<1>(sum, weights[i], operand_at(vectors, i * WGMMA_K * ROW_BYTES), Element());
  wgmma_commit();
}
