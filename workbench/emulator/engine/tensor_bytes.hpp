// The 128 bytes of a tensor map, which a kernel may copy and edit. `tensor_bytes.py` writes them and says
// where the fields lie.
#pragma once

#include <cstring>

#include "engine.hpp"
#include "isa.hpp"
#include "tensor_walk.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

template <class T>
T field(const uint8_t* bytes, int offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

// False where they are no tensor map that a copy could use.
inline bool decode_map(const uint8_t* bytes, TensorMap& map) {
  // by PTX's number of an element type: CUtensorMapDataType and bytes
  constexpr int kTypes[][2] = {{0, 1},  {1, 2}, {2, 4}, {3, 4},  {4, 8},  {5, 8},  {6, 2},  {7, 4},
                               {10, 4}, {8, 8}, {9, 2}, {11, 4}, {12, 4}, {13, 1}, {14, 1}, {15, 1}};
  const unsigned type = field<uint8_t>(bytes, 4), swizzle = field<uint8_t>(bytes, 6),
                 atomicity = field<uint8_t>(bytes, 87);
  map.rank = field<uint8_t>(bytes, 5);
  if (map.rank < 1 || map.rank > 5 || type >= std::size(kTypes) || swizzle > 3 ||
      atomicity > (swizzle == 3 ? 3 : 0) || field<uint8_t>(bytes, 36))
    return false;
  map.element_type = kTypes[type][0];
  map.strides[0] = static_cast<uint64_t>(kTypes[type][1]);
  map.swizzle = swizzle ? (16 << swizzle) + static_cast<int>(32 * atomicity) : 0;
  map.nan_fill = field<uint8_t>(bytes, 7) != 0;
  map.address = field<uint64_t>(bytes, 8);
  map.pixels = field<uint16_t>(bytes, 38);
  map.im2col = map.pixels != 0;
  map.wide = field<uint8_t>(bytes, 37) != 0;
  if (map.address % 16 || (map.im2col && map.rank < 3)) return false;
  for (int d = 0; d < map.rank; ++d) {
    map.sizes[d] = uint64_t{field<uint32_t>(bytes, 16 + 4 * d)} + 1;
    if (d) map.strides[d] = field<uint64_t>(bytes, 40 + 8 * (d - 1));
    map.box[d] = field<uint16_t>(bytes, 72 + 2 * d);
    map.element_strides[d] = field<uint8_t>(bytes, 82 + d);
    if ((d && map.strides[d] % 16) || map.box[d] < 1 || map.box[d] > 256 || map.element_strides[d] < 1 ||
        map.element_strides[d] > 8)
      return false;
  }
  for (int d = 0; d < 3; ++d) {
    map.lower[d] = field<int16_t>(bytes, 88 + 2 * d);
    map.upper[d] = field<int16_t>(bytes, 94 + 2 * d);
  }
  if (map.element_type > kPacked && (map.box[0] != 128 || map.sizes[0] % 128)) return false;
  count_units(map);
  return row_in_shared(map) % 16 == 0;
}

}  // namespace workbench::emulator::WORKBENCH_ISA
