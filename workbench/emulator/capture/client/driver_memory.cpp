// The driver's functions of memory that differ from the runtime's.
#include <cstring>

#include "copies.hpp"
#include "runtime.hpp"
#include "textures.hpp"

using namespace workbench::capture;

namespace {

constexpr unsigned kHost = 1, kArray = 3;  // a CUmemorytype

struct Side {
  size_t x, y;
  unsigned type;
  void* host;
  uint64_t device;
  void* array;
  size_t pitch;
  uint64_t start() const { return type == kHost ? address_of(host) : device; }
  Box rows(size_t width, size_t height) const {
    PitchedPointer of_array;
    if (type != kArray || !rows_of(array, &of_array)) return {start() + x + y * pitch, pitch, width, height};
    return {address_of(of_array.pointer) + x + y * of_array.pitch, of_array.pitch, width, height};
  }
};
struct Copy2D {
  Side from, to;
  size_t width, height;
};
struct Side3D {
  size_t x, y, z, level;
  unsigned type;
  void* host;
  uint64_t device;
  void *array, *reserved;
  size_t pitch, height;
  PitchedPointer pitched() const {
    PitchedPointer of_array;
    if (type == kArray && rows_of(array, &of_array)) return of_array;
    return {type == kHost ? host : reinterpret_cast<void*>(device), pitch, pitch, height};
  }
};
struct Copy3D {
  Side3D from, to;
  size_t width, height, depth;
};

Error copy_run(uint64_t to, uint64_t from, size_t bytes, Direction direction, const void* stream, bool waits,
               const char* function) {
  Stream* where = stream_of(stream);
  if (where == nullptr) return kInvalidHandle;
  return copy(*where, {{to, bytes, bytes, 1}, {from, bytes, bytes, 1}, direction, function, waits});
}

Error copy_2d(const Copy2D& wanted, const void* stream, bool waits) {
  Stream* where = stream_of(stream);
  if (where == nullptr) return kInvalidHandle;
  return copy(*where,
              {wanted.to.rows(wanted.width, wanted.height), wanted.from.rows(wanted.width, wanted.height),
               Direction::by_address, "cuMemcpy2D", waits});
}

Error as_runtime(const Copy3D& wanted, Memcpy3D* found) {
  const Side3D &from = wanted.from, &to = wanted.to;
  *found = {nullptr,
            {from.x, from.y, from.z},
            from.pitched(),
            nullptr,
            {to.x, to.y, to.z},
            to.pitched(),
            {wanted.width, wanted.height, wanted.depth},
            4};
  return kSuccess;
}

Error fill_rows(uint64_t to, size_t pitch, uint32_t value, unsigned element, size_t width, size_t height,
                const void* stream) {
  Stream* where = stream_of(stream);
  if (where == nullptr) return kInvalidHandle;
  return fill(*where, {to, pitch, width * element, height}, value, element, "cuMemset");
}

Error attribute_of(void* data, int which, uint64_t address) {
  const Allocation* found = is_device_address(address) ? find(address) : nullptr;
  const auto put = [&](auto value) { return std::memcpy(data, &value, sizeof value), Error{kSuccess}; };
  if (found == nullptr) return kInvalidValue;
  switch (which) {
    case 2:
      return put(found->space == Space::pinned ? 1U : 2U);
    case 3:
    case 4:
      return which == 4 && !found->on_host() ? Error{kInvalidValue} : put(address);
    case 7:
    case 11:
      return put(found->address);
    case 8:
      return put(static_cast<int>(found->space == Space::managed));
    case 9:
      return put(0);
    case 12:
      return put(found->bytes);
    case 13:
      return put(1);
    default:
      return refuse("cuPointerGetAttribute of this attribute");
  }
}

}  // namespace

extern "C" Error cudaMemcpy3D(const Memcpy3D*);
extern "C" Error cudaMemcpy3DAsync(const Memcpy3D*, void*);
extern "C" Error cudaGraphAddMemcpyNode(void**, void*, void* const*, size_t, const Memcpy3D*);

#define COPY(name, direction)                                                             \
  CUDA_API Error name##_v2(uint64_t to, uint64_t from, size_t bytes) {                    \
    return copy_run(to, from, bytes, Direction::direction, nullptr, true, #name);         \
  }                                                                                       \
  CUDA_API Error name##Async_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) { \
    return copy_run(to, from, bytes, Direction::direction, stream, false, #name "Async"); \
  }
COPY(cuMemcpyHtoD, host_to_device)
COPY(cuMemcpyDtoH, device_to_host)
COPY(cuMemcpyDtoD, device_to_device)

CUDA_API Error cuMemcpy(uint64_t to, uint64_t from, size_t bytes) {
  return copy_run(to, from, bytes, Direction::by_address, nullptr, true, "cuMemcpy");
}
CUDA_API Error cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return copy_run(to, from, bytes, Direction::by_address, stream, false, "cuMemcpyAsync");
}
CUDA_API Error cuMemcpyPeer(uint64_t to, void*, uint64_t from, void*, size_t bytes) {
  return cuMemcpy(to, from, bytes);
}
CUDA_API Error cuMemcpyPeerAsync(uint64_t to, void*, uint64_t from, void*, size_t bytes, void* stream) {
  return cuMemcpyAsync(to, from, bytes, stream);
}
CUDA_API Error cuMemcpy2D_v2(const Copy2D* wanted) { return copy_2d(*wanted, nullptr, true); }
CUDA_API Error cuMemcpy2DUnaligned_v2(const Copy2D* wanted) { return copy_2d(*wanted, nullptr, true); }
CUDA_API Error cuMemcpy2DAsync_v2(const Copy2D* wanted, void* stream) {
  return copy_2d(*wanted, stream, false);
}
CUDA_API Error cuMemcpy3D_v2(const Copy3D* wanted) {
  Memcpy3D found;
  const Error error = as_runtime(*wanted, &found);
  return error ? error : cudaMemcpy3D(&found);
}
CUDA_API Error cuMemcpy3DAsync_v2(const Copy3D* wanted, void* stream) {
  Memcpy3D found;
  const Error error = as_runtime(*wanted, &found);
  return error ? error : cudaMemcpy3DAsync(&found, stream);
}
CUDA_API Error cuGraphAddMemcpyNode(void** node, void* graph, void* const* after, size_t count,
                                    const Copy3D* wanted, void*) {
  Memcpy3D found;
  const Error error = as_runtime(*wanted, &found);
  return error ? error : cudaGraphAddMemcpyNode(node, graph, after, count, &found);
}

#define FILL(bits, type)                                                                       \
  CUDA_API Error cuMemsetD##bits##Async(uint64_t to, type value, size_t count, void* stream) { \
    return fill_rows(to, count * (bits / 8), value, bits / 8, count, 1, stream);               \
  }                                                                                            \
  CUDA_API Error cuMemsetD##bits##_v2(uint64_t to, type value, size_t count) {                 \
    return cuMemsetD##bits##Async(to, value, count, nullptr);                                  \
  }                                                                                            \
  CUDA_API Error cuMemsetD2D##bits##Async(uint64_t to, size_t pitch, type value, size_t width, \
                                          size_t height, void* stream) {                       \
    return fill_rows(to, pitch, value, bits / 8, width, height, stream);                       \
  }                                                                                            \
  CUDA_API Error cuMemsetD2D##bits##_v2(uint64_t to, size_t pitch, type value, size_t width,   \
                                        size_t height) {                                       \
    return cuMemsetD2D##bits##Async(to, pitch, value, width, height, nullptr);                 \
  }
FILL(8, uint8_t)
FILL(16, uint16_t)
FILL(32, uint32_t)

CUDA_API Error cuMemGetAddressRange_v2(uint64_t* start, size_t* bytes, uint64_t address) {
  const Allocation* found = is_device_address(address) ? find(address) : nullptr;
  if (found == nullptr) return kInvalidValue;
  if (start != nullptr) *start = found->address;
  if (bytes != nullptr) *bytes = found->bytes;
  return kSuccess;
}
CUDA_API Error cuPointerGetAttribute(void* data, int which, uint64_t address) {
  return attribute_of(data, which, address);
}
CUDA_API Error cuPointerGetAttributes(unsigned count, const int* which, void** data, uint64_t address) {
  for (unsigned i = 0; i < count; i++)
    if (attribute_of(data[i], which[i], address) != 0) std::memset(data[i], 0, 4);
  return kSuccess;
}
