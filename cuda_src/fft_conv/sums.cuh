// complex numbers as accumulators and as left operands of tensor cores: of mma.sync, and of wgmma, where they
// are the same for each warp.
#pragma once
#include "tile/fragment.cuh"

// what a warp accumulates of complex numbers: of its 16 rows COLUMNS columns
template <int COLUMNS>
struct Sums {
  float re[COLUMNS / 2], im[COLUMNS / 2];

  // `work` gets row 0 or 1 of the lane, the column, and both parts of each element
  template <class Work>
  __device__ __forceinline__ void every(const Work& work) {
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) work(j / 2, i * 8 + column + j % 2, re[i * 4 + j], im[i * 4 + j]);
  }
};

// rows of a warp as left operands, 16 of WIDTH columns each
template <int WIDTH>
struct Operand {
  u32 re[WIDTH / 16][4], im[WIDTH / 16][4];

  // columns from `column` on
  template <int COLUMNS>
  __device__ __forceinline__ void set(const Sums<COLUMNS>& sums, int column) {
    auto& to_re = reinterpret_cast<u32(&)[COLUMNS / 16][4]>(re[column / 16]);
    auto& to_im = reinterpret_cast<u32(&)[COLUMNS / 16][4]>(im[column / 16]);
    to_left_operand<IN>(to_re, sums.re);
    to_left_operand<IN>(to_im, sums.im);
  }
};
