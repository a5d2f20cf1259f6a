// tiles in shared memory as tensor maps write them with a swizzle: 16-byte chunks of a row are permuted, so that the
// same columns of neighbouring rows are in other banks.
#pragma once
#include "tile/vector.cuh"

// rows of ROW_BYTES, which are the bytes of the swizzle: 32, 64 or 128. a tile begins at a multiple of 8 ROW_BYTES
template <class Element, int ROW_BYTES>
struct Swizzled {
  static_assert(ROW_BYTES == 32 || ROW_BYTES == 64 || ROW_BYTES == 128, "a swizzle is of 32, 64 or 128 bytes");
  static constexpr int COLUMNS = ROW_BYTES / sizeof(Element), CHUNK = VECTOR_BYTES / sizeof(Element);
  static constexpr int CHUNKS = COLUMNS / CHUNK, REPEATED = 8 / CHUNKS;  // rows that are permuted alike

  // where a chunk of a row is, and an element
  static __device__ __forceinline__ Element* chunk(Element* tile, int row, int number) {
    return tile + row * COLUMNS + (number ^ row / REPEATED % CHUNKS) * CHUNK;
  }
  static __device__ __forceinline__ Element* at(Element* tile, int row, int column) {
    return chunk(tile, row, column / CHUNK) + column % CHUNK;
  }
};
