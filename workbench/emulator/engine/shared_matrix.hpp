// Matrices in shared memory as the descriptors of tensor cores lay them out: wgmma's, and those of tcgen05.
#pragma once

#include <vector>

#include "memory.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

struct SharedMatrix {
  uint32_t start = 0, leading = 0, stride = 0;  // bytes
  uint32_t swizzle = 0;                         // bytes: 0, 32, 64, 128
  bool transposed = false;                      // M or N runs fastest, not K
  uint32_t element = 1;                         // bytes
  bool wide_atom = false;  // the swizzle of 128 bytes exchanges pieces of 32 bytes, and repeats every 4 rows

  // Address of the 16 bytes that hold element (row, k), where row counts along M or N. Patterns repeat every
  // 8 rows (or, transposed, every 8 k); the swizzle acts on the bits of the shared address itself.
  uint32_t chunk(uint32_t row, uint32_t k) const {
    const uint32_t across = transposed ? k : row, along = (transposed ? row : k) * element;
    uint32_t address;
    if (swizzle == 0) {
      // core matrices of 8 x 16 bytes; which of the two offsets steps along K depends on the major dimension
      const uint32_t step_along = transposed ? stride : leading, step_across = transposed ? leading : stride;
      address = start + across % 8 * 16 + across / 8 * step_across + along / 16 * step_along;
    } else {
      const auto shift =
          static_cast<uint32_t>(__builtin_ctz(swizzle));  // a division would take most of the time
      const uint32_t rows = wide_atom ? 4 : 8;
      address = start + (across % rows << shift) + across / rows * stride + (along >> shift) * leading +
                (along & (swizzle - 1)) / 16 * 16;
      address ^= wide_atom ? (address >> 7 & 3) << 5 : (address >> 7 & (swizzle / 16 - 1)) << 4;
    }
    return address;
  }
};

// Calls f(row, k, address) for every 16 bytes of an operand of `rows` by `depth` elements.
template <class F>
void each_chunk(const SharedMatrix& layout, uint32_t first_row, uint32_t rows, uint32_t depth, F f) {
  const uint32_t per_chunk = 16 / layout.element;
  if (layout.transposed) {
    for (uint32_t k = 0; k < depth; ++k)
      for (uint32_t row = 0; row < rows; row += per_chunk) f(row, k, layout.chunk(first_row + row, k));
  } else {
    for (uint32_t row = 0; row < rows; ++row)
      for (uint32_t k = 0; k < depth; k += per_chunk) f(row, k, layout.chunk(first_row + row, k));
  }
}

// The bytes of an operand, as runs: of 16-byte pieces of the same 128 bytes that follow one another, those
// that touch. The same tiles are read again and again, by several warps and in each turn of a ring: they are
// kept, until other tiles take their place.
const std::vector<SharedRun>& runs_of(const SharedMatrix& layout, uint32_t first_row, uint32_t rows,
                                      uint32_t depth);

}  // namespace workbench::emulator::WORKBENCH_ISA
