// numbers of 8 or 4 bits and the scales of their blocks, decoded by hand, for any device. two numbers of 4 bits (e2m1)
// share a byte, the first one in its lower half.
#pragma once
#include "tile/convert.cuh"

constexpr int SCALE_ROWS = 128, SCALE_BLOCKS = 4, SCALE_TILE = SCALE_ROWS * SCALE_BLOCKS;  // of a tile of scales

// the magnitude's bits, moved to where fp32 has them, are a number whose exponent is too small by a constant. so are
// those of subnormal numbers
__device__ __forceinline__ float e4m3(unsigned x) {
  const float magnitude = __uint_as_float((x & 0x7f) << 20) * 0x1p120f;
  const float number = (x & 0x7f) == 0x7f ? __uint_as_float(0x7fffffff) : magnitude;
  return x & 0x80 ? -number : number;
}
__device__ __forceinline__ float e2m1(unsigned x) {
  const float magnitude = __uint_as_float((x & 7) << 22) * 0x1p126f;
  return x & 8 ? -magnitude : magnitude;
}
__device__ __forceinline__ float e8m0(unsigned x) {
  return x == 255 ? __uint_as_float(0x7fffffff) : x ? __uint_as_float(x << 23) : 0x1p-127f;
}

// number k of a row
__device__ __forceinline__ float element(const IN* row, int k) {
  return PACKING == 1 ? e4m3(row[k]) : e2m1(row[k / 2] >> k % 2 * 4);
}

// the scale of a block of a row, of a matrix whose rows have so many blocks: tiles of 128 rows and 4 blocks, in which
// the rows are 32 apart that lie side by side
__device__ __forceinline__ float scale_of(const SCALE* scales, int row, int block, int blocks) {
  const int tile = row / SCALE_ROWS * ((blocks + SCALE_BLOCKS - 1) / SCALE_BLOCKS) + block / SCALE_BLOCKS;
  const unsigned x = scales[static_cast<long long>(tile) * SCALE_TILE + row % 32 * 16 + row % SCALE_ROWS / 32 * 4 +
                            block % SCALE_BLOCKS];
  return FINE ? e4m3(x & 0x7f) : e8m0(x);
}
