// The elements that tensor cores multiply: how they are packed into 32 bits, and their value; and where those
// of an 8x8 tile are.
#pragma once

#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

struct F16Element {
  static constexpr int kPacked = 2;
  static float unpack(uint32_t cell, int i) { return half_to_float(cell >> (16 * i) & 0xffffu); }
};
struct Bf16Element {
  static constexpr int kPacked = 2;
  static float unpack(uint32_t cell, int i) { return bit_cast<float>(i ? cell & 0xffff0000u : cell << 16); }
};
struct Tf32Element {  // the low 13 bits of a float are not looked at
  static constexpr int kPacked = 1;
  static float unpack(uint32_t cell, int) { return bit_cast<float>(cell & 0xffffe000u); }
};

// All 256 values of an 8-bit float.
template <const Format& F>
const float* decoded() {
  static const auto values = [] {
    std::vector<float> all(256);
    for (uint32_t k = 0; k < 256; ++k) all[k] = decode(k, F);
    return all;
  }();
  return values.data();
}
struct E4m3Element {
  static constexpr int kPacked = 4;
  static float unpack(uint32_t cell, int i) { return decoded<kE4m3>()[cell >> (8 * i) & 255]; }
};
struct E5m2Element {
  static constexpr int kPacked = 4;
  static float unpack(uint32_t cell, int i) { return decoded<kE5m2>()[cell >> (8 * i) & 255]; }
};
// Integers of 8, 4 or 1 bits.
template <int Bits, bool Signed = false>
struct IntegerElement {
  static constexpr int kPacked = 32 / Bits;
  static int32_t unpack(uint32_t cell, int i) {
    const uint32_t top = cell << (32 - Bits - Bits * i);
    return Signed ? static_cast<int32_t>(top) >> (32 - Bits) : static_cast<int32_t>(top >> (32 - Bits));
  }
};

// Where the transposed 8x8 tile of 16 bits, of which lane l holds two columns of row l / 4, has its elements
// from.
struct TileHalf {
  int lane, half;
};
inline TileHalf transposed(int lane, int half) {
  const int row = lane % 4 * 2 + half, column = lane / 4;
  return {row * 4 + column / 2, column % 2};
}

}  // namespace workbench::emulator::WORKBENCH_ISA
