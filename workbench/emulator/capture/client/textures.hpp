// Arrays of CUDA.
#pragma once

#include <algorithm>

#include "cuda_types.hpp"

namespace workbench::capture {

struct ChannelFormat {  // cudaChannelFormatDesc
  enum { floating = 2 };
  int x, y, z, w, kind;  // bits of each channel; 0 signed, 1 unsigned, 2 floating point
  int count() const { return (x > 0) + (y > 0) + (z > 0) + (w > 0); }
  size_t bytes() const { return static_cast<size_t>(count() * x / 8); }
};

struct Array {
  uint64_t address;
  ChannelFormat channels;
  Extent extent;  // as it was asked for: zeros in dimensions that it does not have; layers are the depth
  unsigned flags;
  size_t pitch() const { return extent.width * channels.bytes(); }
  size_t slice() const { return pitch() * std::max<size_t>(extent.height, 1); }
};

// The memory of an array; false where the handle is none.
bool rows_of(const void* handle, PitchedPointer* rows);
// The same copy between pointers; false where what should be an array is none.
bool without_arrays(const Memcpy3D& wanted, Memcpy3D* plain);

}  // namespace workbench::capture
