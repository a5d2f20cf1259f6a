// The types of CUDA's runtime and driver that the functions here take: layouts are those of CUDA 12 and 13.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory.hpp"

namespace workbench::capture {

using Error = int;  // cudaError_t or CUresult: they share their numbers
enum : Error {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kInvalidSymbol = 13,
  kInvalidDevicePointer = 17,
  kInvalidDeviceFunction = 98,
  kInvalidDevice = 101,
  kInvalidKernelImage = 200,
  kPeerAccessUnsupported = 217,
  kFileNotFound = 301,
  kInvalidHandle = 400,
  kSymbolNotFound = 500,
  kHostMemoryNotRegistered = 713,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureUnmatched = 903,
};

struct dim3 {
  unsigned x, y, z;
};
struct Extent {
  size_t width, height, depth;
};
struct Position {
  size_t x, y, z;
};
struct PitchedPointer {
  void* pointer;
  size_t pitch, xsize, ysize;
};
struct Memcpy3D {
  void* from_array;
  Position from_position;
  PitchedPointer from;
  void* to_array;
  Position to_position;
  PitchedPointer to;
  Extent extent;
  int kind;
  Box slice(const PitchedPointer& at, const Position& position, size_t z) const {
    const auto first = reinterpret_cast<uint64_t>(at.pointer) + position.x;
    return {first + at.pitch * (position.y + at.ysize * (position.z + z)), at.pitch, extent.width,
            extent.height};
  }
};
struct FunctionAttributes {
  size_t shared, constant, local;
  int max_threads, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared, carveout,
      cluster_must_be_set;
  int cluster[3], scheduling, non_portable;
  int reserved[16];
};
struct PointerAttributes {
  int type;  // 0 unregistered, 1 host, 2 device, 3 managed
  int device;
  void *device_pointer, *host_pointer;
  long reserved[8];
};
struct alignas(8) LaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    dim3 cluster;
    int number;
    struct {
      void* event;
      int flags, at_block_start;
    } recorded;
  };
};
enum {
  kCooperative = 2,
  kClusterDimension = 4,
  kProgrammatic = 6,
  kProgrammaticEvent = 7,
  kLaunchCompletionEvent = 12
};
struct EdgeData {
  uint8_t port, to_port, type, reserved[5];
};
constexpr size_t kLeastAddress = 1 << 16;
struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
struct KernelNodeParameters {
  void* function;
  dim3 grid, block;
  unsigned shared;
  void **arguments, **extra;
};
struct FillParameters {
  void* to;
  size_t pitch;
  unsigned value, element_bytes;
  size_t width, height;
};
struct HostNodeParameters {
  void (*function)(void*);
  void* data;
};
struct FatBinary {
  int magic, version;
  const void* data;
  const void* const*
      linked;  // of version 2: what the data was linked from, which has the PTX; null at its end
};

}  // namespace workbench::capture
