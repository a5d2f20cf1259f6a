// tiles in shared memory that cp.async fills and ldmatrix reads: 16-byte chunks of rows are permuted, so that those of a
// column of eight rows are in all banks.
#pragma once
#include "ptx/cp_async.cuh"
#include "tile/vector.cuh"

// ROWS rows of COLUMNS elements, of 32, 64 or whole 128 bytes; THREADS neighbouring threads load it, a power of two
// where they are not the whole block. it begins at a multiple of 128 bytes
template <class Element, int ROWS, int COLUMNS, int THREADS>
struct AsyncTile {
  static constexpr int CHUNK = VECTOR_BYTES / sizeof(Element);  // elements that move together
  static constexpr int ROW_CHUNKS = COLUMNS / CHUNK, BANKS = 8;  // of all chunks at once
  static constexpr int SWIZZLE = ROW_CHUNKS < BANKS ? ROW_CHUNKS : BANKS;
  static_assert(SWIZZLE >= 2 && BANKS % SWIZZLE == 0 && ROW_CHUNKS % SWIZZLE == 0, "rows are of 32, 64 or 128 bytes");

  alignas(BANKS * VECTOR_BYTES) Element data[ROWS * COLUMNS];

  __device__ __forceinline__ Element* chunk(int row, int number) {
    return data + row * COLUMNS + (number ^ row * SWIZZLE / BANKS % SWIZZLE) * CHUNK;
  }

  // starts to copy rows from `first` on, of `rows` that there are, and of each the first `columns`; what lies outside
  // becomes zero. cp.async moves whole chunks; where they are not `aligned`, at multiples of 16 bytes, all go through
  // registers, as do parts of chunks
  __device__ __forceinline__ void load(const Element* from, long long stride, int first, int rows, int columns,
                                       bool aligned) {
#pragma unroll 4
    for (int i = threadIdx.x % THREADS; i < ROWS * ROW_CHUNKS; i += THREADS) {
      const int row = i / ROW_CHUNKS, column = i % ROW_CHUNKS * CHUNK;
      const int valid = first + row < rows ? columns - column : 0;
      const Element* const source = from + (first + row) * stride + column;
      Element* const to = chunk(row, i % ROW_CHUNKS);
      if (aligned && valid >= CHUNK)
        cp_async_16(to, source);
      else if (valid > 0)
        store_vector(to, load_tail<CHUNK>(source, valid, false));
      else
        store_vector(to, Vector<Element, CHUNK>{});
    }
  }
};
