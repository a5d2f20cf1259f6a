// register fragments of wgmma: where what a thread holds of a product belongs, and how a product becomes the left
// operand of the next one.
#pragma once
#include "ptx/shared.cuh"
#include "tile/convert.cuh"
#include "tile/vector.cuh"

// of the 64 rows that a warpgroup multiplies
struct FragmentPlace {
  int row, column;
};

// where element i of a thread's accumulators belongs
__device__ __forceinline__ FragmentPlace fragment_place(int i) {
  const int t = threadIdx.x % 128;
  return {t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, i / 4 * 8 + t % 4 * 2 + i % 2};
}

// accumulators, rounded to 16 bits, as registers of the left operands of wgmmas of 16 of k each: columns of the
// product become k. nothing has to move between threads
template <class Element, int OPERANDS, int SUMS>
__device__ __forceinline__ void to_left_operand(unsigned (&a)[OPERANDS][4], const float (&sum)[SUMS]) {
  static_assert(OPERANDS * 8 == SUMS, "an operand has 16 columns of the product, 8 elements of a thread");
#pragma unroll
  for (int operand = 0; operand < OPERANDS; ++operand)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[operand][i] = pair_from_float<Element>(sum[operand * 8 + i * 2], sum[operand * 8 + i * 2 + 1]);
}

// the same back: rounded accumulators
template <class Element, int OPERANDS, int SUMS>
__device__ __forceinline__ void from_left_operand(float (&sum)[SUMS], const unsigned (&a)[OPERANDS][4]) {
  static_assert(OPERANDS * 8 == SUMS, "an operand has 16 columns of the product, 8 elements of a thread");
#pragma unroll
  for (int i = 0; i < SUMS; i += 2) {
    const auto& pair = reinterpret_cast<const Vector<Element, 2>&>(a[i / 8][i / 2 % 4]);
    sum[i] = to_float(pair.x[0]), sum[i + 1] = to_float(pair.x[1]);
  }
}

// of four lanes that share a row, each with a pair of every group of 8 columns: lane i % 4 gets the four pairs of
// group i. all lanes have to call
__device__ __forceinline__ void exchange_pairs(u32 (&pairs)[4]) {
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      const u32 got = __shfl_xor_sync(0xffffffffu, upper ? pairs[i] : pairs[i + distance], distance);
      (upper ? pairs[i] : pairs[i + distance]) = got;
    }
  }
}

// stores what a warp holds of a product, rounded to 16 bits, without shared memory: `to` are its two rows,
// `inside` whether they are to be stored, of each the first `columns`. `aligned`: rows begin at multiples of 16
// bytes. SUMS / 2 columns of the product, a multiple of 32. all lanes have to call
template <class Out, int SUMS>
__device__ __forceinline__ void store_rows(Out* const (&to)[2], const bool (&inside)[2], const float (&sum)[SUMS],
                                           int columns, bool aligned) {
  static_assert(sizeof(Out) == 2 && SUMS % 16 == 0, "32 columns of 16 bits are exchanged at once");
#pragma unroll
  for (int i = 0; i < SUMS; i += 16)
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      u32 pairs[4];
#pragma unroll
      for (int group = 0; group < 4; ++group) {
        const float* const pair = &sum[i + group * 4 + row * 2];
        pairs[group] = pair_from_float<Out>(pair[0], pair[1]);
      }
      exchange_pairs(pairs);
      const int column = i * 2 + threadIdx.x % 4 * 8;
      if (inside[row])
        store_tail(to[row] + column, reinterpret_cast<const Vector<Out, 8>&>(pairs), columns - column, aligned);
    }
}
