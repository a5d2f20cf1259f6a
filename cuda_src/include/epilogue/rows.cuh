// where an epilogue stores: rows of an array in global memory, and the boxes that a tensor map makes of them.
#pragma once
#include "ptx/tma.cuh"
#include "tile/vector.cuh"

// `rows` rows of `columns` elements, `leading` elements apart. `boxes` is a tensor map of them wherever they
// can have one
template <class Out>
struct Rows {
  static constexpr int CHUNK = VECTOR_BYTES / sizeof(Out);
  const TensorMap& boxes;
  Out* data;
  int rows, columns, leading;

  // whether boxes can be stored: no tensor map has other rows, or TMA would store 16 bytes beyond their end
  __device__ __forceinline__ bool mapped() const { return leading % CHUNK == 0 && columns % CHUNK == 0; }

  // whether something of a chunk at this place is to be stored, of a WHOLE one all of it
  template <bool WHOLE>
  __device__ __forceinline__ bool has(int row, int column) const {
    return row < rows && !(WHOLE && column >= columns);
  }

  // stores it, of one that is not WHOLE what lies in the row
  template <bool WHOLE>
  __device__ __forceinline__ void store(int row, int column, const Vector<Out, CHUNK>& v) const {
    Out* const to = data + static_cast<long long>(row) * leading + column;
    if constexpr (WHOLE)
      store_vector(to, v);
    else
      store_tail(to, v, columns - column, leading % CHUNK == 0);
  }
};
