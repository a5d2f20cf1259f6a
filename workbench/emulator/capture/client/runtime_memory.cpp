// The runtime's functions of memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "connection.hpp"
#include "copies.hpp"
#include "runtime.hpp"
#include "textures.hpp"

using namespace workbench::capture;

namespace {

constexpr size_t kPitch = 512;

Error allocate_at(void** pointer, size_t bytes, Space space) {
  if (pointer == nullptr) return done(kInvalidValue);
  if (bytes == 0) return *pointer = nullptr, kSuccess;
  *pointer = reinterpret_cast<void*>(allocate(bytes, space, call_site()));
  return done(*pointer == nullptr ? kOutOfMemory : kSuccess);
}

// `moment`: in the order of a stream, where others may still use the memory; else all work has ended then.
Error release_at(void* pointer, bool pinned, const char* function, const Moment* moment = nullptr) {
  if (pointer == nullptr) return kSuccess;
  const Allocation* found = is_device_address(address_of(pointer)) ? find(address_of(pointer)) : nullptr;
  if (found != nullptr && found->address == address_of(pointer) &&
      (found->space == Space::pinned) == pinned && found->space != Space::variable) {
    const std::string site = moment ? call_site() : "";
    if (moment)
      stored({found->address, found->bytes, found->bytes, 1}, {function, site, *moment});
    else if (!pinned)
      synchronize_device();
    release(address_of(pointer));
    return kSuccess;
  }
  report("invalid_free",
         std::string(function) + " is given a pointer that no allocation begins at, or that has been freed",
         call_site());
  return done(kInvalidValue);
}

Box run_of(const void* pointer, size_t bytes) { return {address_of(pointer), bytes, bytes, 1}; }

Error copy_box(const Box& to, const Box& from, int kind, const void* stream, bool waits,
               const char* function) {
  Stream* where = stream_of(stream);
  if (where == nullptr) return done(kInvalidHandle);
  return done(copy(*where, {to, from, static_cast<Direction>(kind), function, waits}));
}

Error copy_symbol(const void* symbol, const void* pointer, size_t bytes, size_t offset, int kind,
                  const void* stream, bool waits, bool to_symbol, const char* function) {
  const Variable found = variable_of_symbol(symbol);
  if (found.address == 0) return done(kInvalidSymbol);
  const Box variable{found.address + offset, bytes, bytes, 1}, other = run_of(pointer, bytes);
  return copy_box(to_symbol ? variable : other, to_symbol ? other : variable, kind, stream, waits, function);
}

Error fill_box(const Box& to, int value, const void* stream, const char* function) {
  Stream* where = stream_of(stream);
  return done(where == nullptr ? kInvalidHandle
                               : fill(*where, to, static_cast<uint32_t>(value) & 0xFF, 1, function));
}

Error copy_3d(const Memcpy3D& given, const void* stream, bool waits) {
  Memcpy3D wanted;
  if (!without_arrays(given, &wanted)) return done(kInvalidValue);
  for (size_t z = 0; z < wanted.extent.depth; z++)
    if (const Error error = copy_box(wanted.slice(wanted.to, wanted.to_position, z),
                                     wanted.slice(wanted.from, wanted.from_position, z), wanted.kind, stream,
                                     waits, "cudaMemcpy3D"))
      return error;
  return kSuccess;
}

// Memory of the host that was registered: its pages are the device's from then on.
struct RegisteredPages {
  uint64_t first, bytes, device;
};
std::mutex registered_mutex;
std::map<uint64_t, RegisteredPages>& registered() {
  static auto* all = new std::map<uint64_t, RegisteredPages>;
  return *all;
}

}  // namespace

CUDA_API Error cudaMalloc(void** pointer, size_t bytes) { return allocate_at(pointer, bytes, Space::device); }
CUDA_API Error cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
  return allocate_at(pointer, bytes, Space::managed);
}
CUDA_API Error cudaMallocHost(void** pointer, size_t bytes) {
  return allocate_at(pointer, bytes, Space::pinned);
}
CUDA_API Error cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return allocate_at(pointer, bytes, Space::pinned);
}
CUDA_API Error cudaMallocAsync(void** pointer, size_t bytes, void*) {
  return allocate_at(pointer, bytes, Space::device);
}
CUDA_API Error cudaMallocFromPoolAsync(void** pointer, size_t bytes, void*, void*) {
  return allocate_at(pointer, bytes, Space::device);
}
CUDA_API Error cudaFree(void* pointer) { return release_at(pointer, false, "cudaFree"); }
CUDA_API Error cudaFreeHost(void* pointer) { return release_at(pointer, true, "cudaFreeHost"); }
CUDA_API Error cudaFreeAsync(void* pointer, void* handle) {
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return done(kInvalidHandle);
  Error error = kSuccess;
  submit(*stream, NodeType::release,
         [&](const Moment& moment) { error = release_at(pointer, false, "cudaFreeAsync", &moment); });
  return error;
}

CUDA_API Error cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  return allocate_at(pointer, *pitch * height, Space::device);
}

CUDA_API Error cudaMalloc3D(PitchedPointer* pitched, Extent extent) {
  *pitched = {nullptr, 0, extent.width, extent.height};
  return cudaMallocPitch(&pitched->pointer, &pitched->pitch, extent.width, extent.height * extent.depth);
}

CUDA_API Error cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  const Allocation* found = is_device_address(address_of(host)) ? find(address_of(host)) : nullptr;
  if (found != nullptr && found->on_host()) return *device = host, kSuccess;
  const std::lock_guard<std::mutex> lock(registered_mutex);
  auto next = registered().upper_bound(address_of(host));
  if (next == registered().begin()) return done(kInvalidValue);
  const RegisteredPages& pages = std::prev(next)->second;
  if (address_of(host) >= pages.first + pages.bytes) return done(kInvalidValue);
  *device = reinterpret_cast<void*>(pages.device + (address_of(host) - pages.first));
  return kSuccess;
}

CUDA_API Error cudaHostGetFlags(unsigned* flags, void*) { return *flags = 2, kSuccess; }

CUDA_API Error cudaHostRegister(void* host, size_t bytes, unsigned) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t first = address_of(host) / page * page;
  const uint64_t size = (address_of(host) + bytes + page - 1) / page * page - first;
  const uint64_t device = allocate(size, Space::pinned, call_site());
  if (device == 0) return done(kOutOfMemory);
  std::memcpy(alias(device), reinterpret_cast<void*>(first), size);
  // the same pages under both addresses: a second view of the pinned memory replaces the host's own
  if (mremap(reinterpret_cast<void*>(device), 0, size, MREMAP_MAYMOVE | MREMAP_FIXED,
             reinterpret_cast<void*>(first)) == MAP_FAILED)
    return release(device), done(kOutOfMemory);
  const std::lock_guard<std::mutex> lock(registered_mutex);
  registered()[first] = {first, size, device};
  return kSuccess;
}

CUDA_API Error cudaHostUnregister(void* host) {
  const std::lock_guard<std::mutex> lock(registered_mutex);
  const uint64_t first = address_of(host) / static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) *
                         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto found = registered().find(first);
  if (found == registered().end()) return done(kHostMemoryNotRegistered);
  const RegisteredPages pages = found->second;
  registered().erase(found);
  mmap(reinterpret_cast<void*>(pages.first), pages.bytes, PROT_READ | PROT_WRITE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  std::memcpy(reinterpret_cast<void*>(pages.first), alias(pages.device), pages.bytes);
  release(pages.device);
  return kSuccess;
}

CUDA_API Error cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
  device();
  const Allocation* found = is_device_address(address_of(pointer)) ? find(address_of(pointer)) : nullptr;
  *attributes = {};
  attributes->host_pointer = const_cast<void*>(pointer);
  if (found == nullptr) return attributes->device = -2, kSuccess;
  attributes->type = found->space == Space::pinned ? 1 : found->space == Space::managed ? 3 : 2;
  attributes->device_pointer = const_cast<void*>(pointer);
  if (!found->on_host()) attributes->host_pointer = nullptr;
  return kSuccess;
}

CUDA_API Error cudaMemGetInfo(size_t* left, size_t* total) {
  *total = device().total_memory;
  *left = *total;
  for (const Allocation& one : allocations()) *left -= one.space == Space::device ? one.bytes : 0;
  return kSuccess;
}

CUDA_API Error cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  return copy_box(run_of(to, bytes), run_of(from, bytes), kind, nullptr, true, "cudaMemcpy");
}
CUDA_API Error cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  return copy_box(run_of(to, bytes), run_of(from, bytes), kind, stream, false, "cudaMemcpyAsync");
}
CUDA_API Error cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return copy_box(run_of(to, bytes), run_of(from, bytes), 4, nullptr, true, "cudaMemcpyPeer");
}
CUDA_API Error cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, void* stream) {
  return copy_box(run_of(to, bytes), run_of(from, bytes), 4, stream, false, "cudaMemcpyPeerAsync");
}
CUDA_API Error cudaMemcpy2D(void* to, size_t pitch, const void* from, size_t from_pitch, size_t width,
                            size_t height, int kind) {
  return copy_box({address_of(to), pitch, width, height}, {address_of(from), from_pitch, width, height}, kind,
                  nullptr, true, "cudaMemcpy2D");
}
CUDA_API Error cudaMemcpy2DAsync(void* to, size_t pitch, const void* from, size_t from_pitch, size_t width,
                                 size_t height, int kind, void* stream) {
  return copy_box({address_of(to), pitch, width, height}, {address_of(from), from_pitch, width, height}, kind,
                  stream, false, "cudaMemcpy2DAsync");
}
CUDA_API Error cudaMemcpy3D(const Memcpy3D* wanted) { return copy_3d(*wanted, nullptr, true); }
CUDA_API Error cudaMemcpy3DAsync(const Memcpy3D* wanted, void* stream) {
  return copy_3d(*wanted, stream, false);
}

CUDA_API Error cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                                  int kind) {
  return copy_symbol(symbol, from, bytes, offset, kind, nullptr, true, true, "cudaMemcpyToSymbol");
}
CUDA_API Error cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                       int kind, void* stream) {
  return copy_symbol(symbol, from, bytes, offset, kind, stream, false, true, "cudaMemcpyToSymbolAsync");
}
CUDA_API Error cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, int kind) {
  return copy_symbol(symbol, to, bytes, offset, kind, nullptr, true, false, "cudaMemcpyFromSymbol");
}
CUDA_API Error cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, int kind,
                                         void* stream) {
  return copy_symbol(symbol, to, bytes, offset, kind, stream, false, false, "cudaMemcpyFromSymbolAsync");
}
CUDA_API Error cudaGetSymbolAddress(void** pointer, const void* symbol) {
  *pointer = reinterpret_cast<void*>(variable_of_symbol(symbol).address);
  return done(*pointer == nullptr ? kInvalidSymbol : kSuccess);
}
CUDA_API Error cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  *bytes = variable_of_symbol(symbol).bytes;
  return done(*bytes == 0 ? kInvalidSymbol : kSuccess);
}

CUDA_API Error cudaMemset(void* to, int value, size_t bytes) {
  return fill_box(run_of(to, bytes), value, nullptr, "cudaMemset");
}
CUDA_API Error cudaMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  return fill_box(run_of(to, bytes), value, stream, "cudaMemsetAsync");
}
CUDA_API Error cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return fill_box({address_of(to), pitch, width, height}, value, nullptr, "cudaMemset2D");
}
CUDA_API Error cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                                 void* stream) {
  return fill_box({address_of(to), pitch, width, height}, value, stream, "cudaMemset2DAsync");
}
CUDA_API Error cudaMemset3D(PitchedPointer to, int value, Extent extent) {
  for (size_t z = 0; z < extent.depth; z++)
    if (const Error error = fill_box(
            {address_of(to.pointer) + z * to.pitch * to.ysize, to.pitch, extent.width, extent.height}, value,
            nullptr, "cudaMemset3D"))
      return error;
  return kSuccess;
}

// Where memory lies changes nothing here.
CUDA_API Error cudaMemPrefetchAsync(const void*, size_t, uint64_t, unsigned, void*) { return kSuccess; }
CUDA_API Error cudaMemAdvise(const void*, size_t, int, uint64_t) { return kSuccess; }
CUDA_API Error cudaStreamAttachMemAsync(void*, void*, size_t, unsigned) { return kSuccess; }
CUDA_API Error cudaDeviceGetDefaultMemPool(void** pool, int) {
  return *pool = reinterpret_cast<void*>(1), kSuccess;
}
CUDA_API Error cudaDeviceGetMemPool(void** pool, int) { return *pool = reinterpret_cast<void*>(1), kSuccess; }
CUDA_API Error cudaDeviceSetMemPool(int, void*) { return kSuccess; }
CUDA_API Error cudaMemPoolCreate(void** pool, const void*) {
  return *pool = reinterpret_cast<void*>(1), kSuccess;
}
CUDA_API Error cudaMemPoolDestroy(void*) { return kSuccess; }
CUDA_API Error cudaMemPoolSetAttribute(void*, int, void*) { return kSuccess; }
CUDA_API Error cudaMemPoolGetAttribute(void*, int, uint64_t* value) { return *value = 0, kSuccess; }
CUDA_API Error cudaMemPoolTrimTo(void*, size_t) { return kSuccess; }
CUDA_API Error cudaMemPoolSetAccess(void*, const void*, size_t) { return kSuccess; }
