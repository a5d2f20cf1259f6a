// Arrays, textures and surfaces. An array is memory of the device whose rows follow one another; an object is
// the address of a header that says how to read it (engine/texture.hpp).
#include "textures.hpp"

#include <cstring>
#include <mutex>
#include <set>

#include "../../engine/texture.hpp"
#include "connection.hpp"
#include "copies.hpp"
#include "runtime.hpp"

using namespace workbench::capture;
using workbench::emulator::AddressMode;
using workbench::emulator::TexelKind;
using workbench::emulator::TextureHeader;

namespace {

constexpr Error kInvalidChannels = 20;
constexpr unsigned kLayered = 1, kCubemap = 4;
enum ResourceType { kOfArray = 0, kOfMipmap = 1, kLinear = 2, kPitched = 3 };

struct Linear {
  void* pointer;
  ChannelFormat channels;
  size_t width, height, pitch;  // of linear memory the width is in bytes, and nothing follows
};
struct Resource {
  int type;
  union {
    void* array;
    Linear linear;
    int reserved[32];
  };
};
struct Texture {
  int mode[3], filter, read_mode, srgb;
  float border[4];
  int is_normalized;
};
struct DriverResource {
  int type;
  union {
    void* array;
    struct {
      uint64_t pointer;
      int format;
      unsigned channels;
      size_t width, height, pitch;
    } linear;
    int reserved[32];
  };
};
struct DriverTexture {
  int mode[3], filter;
  unsigned flags, anisotropy;
  int mipmap_filter;
  float bias, least, most, border[4];
};
struct DriverArray {
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
};
struct DriverFlatArray {
  size_t width, height;
  int format;
  unsigned channels;
};

std::mutex arrays_mutex;
std::set<const void*>& arrays() {
  static auto* all = new std::set<const void*>;
  return *all;
}

Array* array_of(const void* handle) {
  const std::lock_guard<std::mutex> lock(arrays_mutex);
  return arrays().count(handle) ? static_cast<Array*>(const_cast<void*>(handle)) : nullptr;
}

// Channels of 8, 16 or 32 bits, all of one size, and 1, 2 or 4 of them.
bool is_known(const ChannelFormat& format) {
  const int sizes[4] = {format.x, format.y, format.z, format.w};
  const int count = format.count();
  for (int k = 0; k < count; k++)
    if (sizes[k] != format.x) return false;
  const bool is_half = format.kind == ChannelFormat::floating && format.x == 16;
  return count != 3 && count > 0 &&
         (format.x == 32 || is_half || (format.kind < 2 && format.x % 8 == 0 && format.x <= 16));
}

// A CUarray_format.
ChannelFormat channels_of(int format, unsigned channels) {
  const int bits = format == 0x10 ? 16 : format == 0x20 ? 32 : format >= 8 ? 8 << (format - 8) : 4 << format;
  const int kind = format >= 0x10 ? ChannelFormat::floating : format >= 8 ? 0 : 1;
  const int sizes[2] = {bits, 0};
  return {bits, sizes[channels < 2], sizes[channels < 3], sizes[channels < 4], kind};
}

int format_of(const ChannelFormat& channels) {
  if (channels.kind == ChannelFormat::floating) return channels.x == 16 ? 0x10 : 0x20;
  return (channels.kind == 0 ? 8 : 0) +
         (channels.x == 8    ? 1
          : channels.x == 16 ? 2
                             : 3) -
         (channels.kind == 0);
}

Error make_array(void** handle, const ChannelFormat& channels, Extent extent, unsigned flags) {
  *handle = nullptr;
  if (!is_known(channels)) return done(kInvalidChannels);
  auto* array = new Array{0, channels, extent, flags};
  array->address = allocate(array->slice() * std::max<size_t>(extent.depth, 1), Space::device, call_site());
  if (array->address == 0) return delete array, done(kOutOfMemory);
  const std::lock_guard<std::mutex> lock(arrays_mutex);
  arrays().insert(array);
  return *handle = array, kSuccess;
}

TextureHeader header_of(uint64_t address, const ChannelFormat& channels) {
  TextureHeader header{};
  header.magic = workbench::emulator::kTextureMagic;
  header.address = address;
  for (uint32_t& extent : header.extent) extent = 1;
  header.kind = channels.kind == ChannelFormat::floating ? TexelKind::floating
                : channels.kind == 0                     ? TexelKind::whole_signed
                                                         : TexelKind::whole_unsigned;
  header.channels = static_cast<uint8_t>(channels.count());
  header.bits = static_cast<uint8_t>(channels.x);
  for (AddressMode& mode : header.mode) mode = AddressMode::clamp;
  return header;
}

TextureHeader header_of(const Array& array) {
  TextureHeader header = header_of(array.address, array.channels);
  const bool is_layered = (array.flags & (kLayered | kCubemap)) != 0;
  header.pitch = array.pitch();
  header.slice = array.slice();
  header.extent[0] = static_cast<uint32_t>(array.extent.width);
  header.extent[1] = static_cast<uint32_t>(std::max<size_t>(array.extent.height, 1));
  if (is_layered)
    header.layers = static_cast<uint32_t>(array.extent.depth);
  else
    header.extent[2] = static_cast<uint32_t>(std::max<size_t>(array.extent.depth, 1));
  return header;
}

Error make_object(uint64_t* object, const TextureHeader& header) {
  *object = allocate(sizeof header, Space::header, call_site());
  if (*object == 0) return done(kOutOfMemory);
  std::memcpy(alias(*object), &header, sizeof header);
  return kSuccess;
}

Error forget_object(uint64_t object) {
  const Allocation* found = is_device_address(object) ? find(object) : nullptr;
  if (found == nullptr || found->space != Space::header || found->address != object)
    return done(kInvalidValue);
  release(object);
  return kSuccess;
}

// What an object is of, and how it is read. An error, or 0.
Error describe(const Resource& resource, TextureHeader* header) {
  if (resource.type == kOfMipmap) return refuse("a texture of a mipmapped array");
  if (resource.type == kOfArray) {
    const Array* array = array_of(resource.array);
    if (array == nullptr) return done(kInvalidValue);
    return *header = header_of(*array), kSuccess;
  }
  const Linear& linear = resource.linear;
  if (!is_known(linear.channels)) return done(kInvalidChannels);
  *header = header_of(address_of(linear.pointer), linear.channels);
  const size_t texel = linear.channels.bytes();
  header->extent[0] = static_cast<uint32_t>(resource.type == kLinear ? linear.width / texel : linear.width);
  if (resource.type == kLinear) {
    for (AddressMode& mode : header->mode) mode = AddressMode::border;  // texels outside are zeros
    return kSuccess;
  }
  header->extent[1] = static_cast<uint32_t>(linear.height);
  header->pitch = linear.pitch;
  return linear.pitch < linear.width * texel ? done(kInvalidValue) : kSuccess;
}

Error make_texture(uint64_t* object, const Resource& resource, const Texture& texture, const void* view) {
  if (view != nullptr && *static_cast<const int*>(view) != 0) return refuse("a texture with a resource view");
  if (texture.srgb != 0) return refuse("a texture of sRGB");
  TextureHeader header;
  if (const Error error = describe(resource, &header)) return error;
  for (int k = 0; k < 3 && resource.type != kLinear; k++)
    header.mode[k] = static_cast<AddressMode>(texture.mode[k]);
  header.is_filtered = texture.filter == 1;
  header.is_normalized = texture.is_normalized != 0;
  header.reads_normalized = texture.read_mode == 1 && header.kind != TexelKind::floating;
  std::memcpy(header.border, texture.border, sizeof header.border);
  const bool gives_floats = header.kind == TexelKind::floating || header.reads_normalized;
  if ((header.is_filtered && !gives_floats) || (header.reads_normalized && header.bits == 32))
    return done(kInvalidValue);
  return make_object(object, header);
}

Error make_surface(uint64_t* object, const Resource& resource) {
  if (resource.type != kOfArray) return done(kInvalidValue);
  TextureHeader header;
  if (const Error error = describe(resource, &header)) return error;
  header.is_surface = 1;
  return make_object(object, header);
}

Resource resource_of(const DriverResource& given) {
  Resource resource{};
  resource.type = given.type;
  if (given.type == kOfArray || given.type == kOfMipmap) return resource.array = given.array, resource;
  const auto& linear = given.linear;
  resource.linear = {reinterpret_cast<void*>(linear.pointer), channels_of(linear.format, linear.channels),
                     linear.width, linear.height, linear.pitch};
  return resource;
}

// Copies between an array, from a column in bytes and a row on, and a pointer. Without a pitch the bytes lie
// together.
Error copy_array(const void* handle, size_t column, size_t row, Box other, bool to_array, int kind,
                 const void* stream, bool waits, const char* function) {
  const Array* array = array_of(handle);
  Stream* where = stream_of(stream);
  if (array == nullptr || where == nullptr) return done(array == nullptr ? kInvalidValue : kInvalidHandle);
  const bool together = other.rows == 1 && other.pitch == other.width;
  const Box part{array->address + row * array->pitch() + column, together ? other.width : array->pitch(),
                 other.width, other.rows};
  return done(copy(*where, {to_array ? part : other, to_array ? other : part, static_cast<Direction>(kind),
                            function, waits}));
}

}  // namespace

namespace workbench::capture {

bool rows_of(const void* handle, PitchedPointer* rows) {
  const Array* array = array_of(handle);
  if (array == nullptr) return false;
  *rows = {reinterpret_cast<void*>(array->address), array->pitch(), array->pitch(),
           array->slice() / array->pitch()};
  return true;
}

bool without_arrays(const Memcpy3D& wanted, Memcpy3D* plain) {
  *plain = wanted;
  size_t texel = 0;
  const auto place = [&](void* handle, Position& position, PitchedPointer& at) {
    if (!rows_of(handle, &at)) return false;
    texel = array_of(handle)->channels.bytes();
    position.x *= texel;
    return true;
  };
  if (wanted.from_array != nullptr && !place(wanted.from_array, plain->from_position, plain->from))
    return false;
  if (wanted.to_array != nullptr && !place(wanted.to_array, plain->to_position, plain->to)) return false;
  plain->from_array = plain->to_array = nullptr;
  if (texel == 0) return true;
  plain->extent.width *= texel;
  plain->extent.height = std::max<size_t>(plain->extent.height, 1);
  plain->extent.depth = std::max<size_t>(plain->extent.depth, 1);
  return true;
}

}  // namespace workbench::capture

CUDA_API ChannelFormat cudaCreateChannelDesc(int x, int y, int z, int w, int kind) {
  return {x, y, z, w, kind};
}

CUDA_API Error cudaMallocArray(void** array, const ChannelFormat* channels, size_t width, size_t height,
                               unsigned flags) {
  return make_array(array, *channels, {width, height, 0}, flags);
}
CUDA_API Error cudaMalloc3DArray(void** array, const ChannelFormat* channels, Extent extent, unsigned flags) {
  return make_array(array, *channels, extent, flags);
}
CUDA_API Error cudaFreeArray(void* handle) {
  if (handle == nullptr) return kSuccess;
  Array* array = array_of(handle);
  if (array == nullptr) {
    report("invalid_free", "cudaFreeArray is given what is no array, or one that has been freed",
           call_site());
    return done(kInvalidValue);
  }
  synchronize_device();
  release(array->address);
  const std::lock_guard<std::mutex> lock(arrays_mutex);
  arrays().erase(array);
  delete array;
  return kSuccess;
}
CUDA_API Error cudaArrayGetInfo(ChannelFormat* channels, Extent* extent, unsigned* flags, void* handle) {
  const Array* array = array_of(handle);
  if (array == nullptr) return done(kInvalidValue);
  if (channels != nullptr) *channels = array->channels;
  if (extent != nullptr) *extent = array->extent;
  if (flags != nullptr) *flags = array->flags;
  return kSuccess;
}
CUDA_API Error cudaGetChannelDesc(ChannelFormat* channels, void* array) {
  return cudaArrayGetInfo(channels, nullptr, nullptr, array);
}

CUDA_API Error cudaCreateTextureObject(uint64_t* object, const Resource* resource, const Texture* texture,
                                       const void* view) {
  return make_texture(object, *resource, *texture, view);
}
CUDA_API Error cudaDestroyTextureObject(uint64_t object) { return forget_object(object); }
CUDA_API Error cudaCreateSurfaceObject(uint64_t* object, const Resource* resource) {
  return make_surface(object, *resource);
}
CUDA_API Error cudaDestroySurfaceObject(uint64_t object) { return forget_object(object); }

CUDA_API Error cudaMemcpyToArray(void* array, size_t column, size_t row, const void* from, size_t bytes,
                                 int kind) {
  return copy_array(array, column, row, {address_of(from), bytes, bytes, 1}, true, kind, nullptr, true,
                    "cudaMemcpyToArray");
}
CUDA_API Error cudaMemcpyToArrayAsync(void* array, size_t column, size_t row, const void* from, size_t bytes,
                                      int kind, void* stream) {
  return copy_array(array, column, row, {address_of(from), bytes, bytes, 1}, true, kind, stream, false,
                    "cudaMemcpyToArrayAsync");
}
CUDA_API Error cudaMemcpyFromArray(void* to, const void* array, size_t column, size_t row, size_t bytes,
                                   int kind) {
  return copy_array(array, column, row, {address_of(to), bytes, bytes, 1}, false, kind, nullptr, true,
                    "cudaMemcpyFromArray");
}
CUDA_API Error cudaMemcpyFromArrayAsync(void* to, const void* array, size_t column, size_t row, size_t bytes,
                                        int kind, void* stream) {
  return copy_array(array, column, row, {address_of(to), bytes, bytes, 1}, false, kind, stream, false,
                    "cudaMemcpyFromArrayAsync");
}
CUDA_API Error cudaMemcpy2DToArray(void* array, size_t column, size_t row, const void* from, size_t pitch,
                                   size_t width, size_t height, int kind) {
  return copy_array(array, column, row, {address_of(from), pitch, width, height}, true, kind, nullptr, true,
                    "cudaMemcpy2DToArray");
}
CUDA_API Error cudaMemcpy2DToArrayAsync(void* array, size_t column, size_t row, const void* from,
                                        size_t pitch, size_t width, size_t height, int kind, void* stream) {
  return copy_array(array, column, row, {address_of(from), pitch, width, height}, true, kind, stream, false,
                    "cudaMemcpy2DToArrayAsync");
}
CUDA_API Error cudaMemcpy2DFromArray(void* to, size_t pitch, const void* array, size_t column, size_t row,
                                     size_t width, size_t height, int kind) {
  return copy_array(array, column, row, {address_of(to), pitch, width, height}, false, kind, nullptr, true,
                    "cudaMemcpy2DFromArray");
}
CUDA_API Error cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, const void* array, size_t column,
                                          size_t row, size_t width, size_t height, int kind, void* stream) {
  return copy_array(array, column, row, {address_of(to), pitch, width, height}, false, kind, stream, false,
                    "cudaMemcpy2DFromArrayAsync");
}

CUDA_API Error cuArray3DCreate_v2(void** array, const DriverArray* wanted) {
  return make_array(array, channels_of(wanted->format, wanted->channels),
                    {wanted->width, wanted->height, wanted->depth}, wanted->flags);
}
CUDA_API Error cuArrayCreate_v2(void** array, const DriverFlatArray* wanted) {
  return make_array(array, channels_of(wanted->format, wanted->channels), {wanted->width, wanted->height, 0},
                    0);
}
CUDA_API Error cuArray3DGetDescriptor_v2(DriverArray* found, void* handle) {
  const Array* array = array_of(handle);
  if (array == nullptr) return kInvalidValue;
  *found = {array->extent.width,
            array->extent.height,
            array->extent.depth,
            format_of(array->channels),
            static_cast<unsigned>(array->channels.count()),
            array->flags};
  return kSuccess;
}
CUDA_API Error cuArrayGetDescriptor_v2(DriverFlatArray* found, void* handle) {
  DriverArray whole{};
  const Error error = cuArray3DGetDescriptor_v2(&whole, handle);
  return *found = {whole.width, whole.height, whole.format, whole.channels}, error;
}
CUDA_API Error cuTexObjectCreate(uint64_t* object, const DriverResource* resource, const DriverTexture* given,
                                 const void* view) {
  constexpr unsigned kAsInteger = 1, kNormalized = 2, kSrgb = 0x10;
  const Resource of = resource_of(*resource);
  const Array* array = of.type == kOfArray ? array_of(of.array) : nullptr;
  const int bits = array != nullptr ? array->channels.x : of.type == kOfArray ? 0 : of.linear.channels.x;
  Texture texture{{given->mode[0], given->mode[1], given->mode[2]},
                  given->filter,
                  (given->flags & kAsInteger) == 0 && bits < 32,
                  (given->flags & kSrgb) != 0,
                  {},
                  (given->flags & kNormalized) != 0};
  std::memcpy(texture.border, given->border, sizeof texture.border);
  return make_texture(object, of, texture, view);
}
CUDA_API Error cuSurfObjectCreate(uint64_t* object, const DriverResource* resource) {
  return make_surface(object, resource_of(*resource));
}
