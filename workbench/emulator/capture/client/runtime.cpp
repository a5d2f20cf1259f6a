// The runtime's functions of devices, streams, events and kernels.
#include "runtime.hpp"

#include <cstdio>
#include <cstring>
#include <set>

#include "connection.hpp"

using namespace workbench::capture;

int workbench::capture::attribute(int which) {
  const auto found = device().attributes.find(which);
  return found == device().attributes.end() ? 0 : found->second;
}

namespace {

constexpr int kVersion = 13000;
constexpr int kMaxDynamicShared = 8, kNonPortableCluster = 14;  // of cudaFuncAttribute

// cudaDeviceProp, which CUDA 13 has changed: fields are appended in its order.
class Properties {
 public:
  explicit Properties(void* to) : next_(static_cast<uint8_t*>(to)), first_(next_) {}
  template <class T>
  Properties& put(T value, int times = 1) {
    next_ = first_ + (static_cast<size_t>(next_ - first_) + alignof(T) - 1) / alignof(T) * alignof(T);
    for (; times > 0; times--, next_ += sizeof value) std::memcpy(next_, &value, sizeof value);
    return *this;
  }
  Properties& numbers(std::initializer_list<int> values) {
    for (const int value : values) put(value);
    return *this;
  }
  Properties& name(const std::string& text) {
    std::memset(next_, 0, 256);
    std::memcpy(next_, text.data(), std::min<size_t>(text.size(), 255));
    next_ += 256;
    return *this;
  }

 private:
  uint8_t *next_, *first_;
};

void put_properties(void* to, bool of_cuda_12) {
  Properties all(to);
  const auto bytes = [](int which) { return static_cast<size_t>(attribute(which)); };
  all.name(device().name)
      .put<uint8_t>(0, 16 + 8)
      .put<unsigned>(0)
      .put<size_t>(device().total_memory)
      .put(bytes(kSharedPerBlock));
  all.numbers({attribute(kRegistersPerBlock), attribute(kWarp)})
      .put(bytes(kMaxPitch))
      .numbers({attribute(kMaxThreads)});
  for (int which = kMaxBlock; which < kMaxBlock + 3; which++) all.put(attribute(which));
  for (int which = kMaxGrid; which < kMaxGrid + 3; which++) all.put(attribute(which));
  if (of_cuda_12) all.put(attribute(kClock));
  all.put(bytes(kConstant))
      .numbers({attribute(kMajor), attribute(kMinor)})
      .put(bytes(kTextureAlignment))
      .put<size_t>(32);
  if (of_cuda_12) all.put(1);
  all.numbers({attribute(kMultiprocessors)});
  if (of_cuda_12) all.put(0);
  all.numbers({attribute(kIntegrated), attribute(kMapHost)});
  if (of_cuda_12) all.put(0);
  all.numbers({131072, 32768});
  if (of_cuda_12) all.put(268435456);
  all.numbers({131072, 65536, 32768, 32768, 131072, 65000, 2097120, 32768, 32768, 16384, 16384, 16384,
               8192,   8192,  32768, 32768, 32768,  2048,  32768,   32768, 2048,  32768, 2046});
  all.numbers(
         {32768, 131072, 65536, 16384, 16384, 16384, 32768, 2048, 32768, 32768, 2048, 32768, 32768, 2046})
      .put<size_t>(512);
  all.numbers({attribute(kConcurrentKernels), 0, 0, 0, 0, 0, attribute(kEngines), attribute(kUnified)});
  if (of_cuda_12) all.put(attribute(kMemoryClock));
  all.numbers({attribute(kBusWidth), attribute(kL2), 0, attribute(kThreadsPerMultiprocessor),
               attribute(kPriorities), 1, 1});
  all.put(bytes(kSharedPerMultiprocessor))
      .numbers({attribute(kRegistersPerMultiprocessor), attribute(kManaged), 0, 0, 0});
  if (of_cuda_12) all.put(2);
  all.numbers({0, attribute(kConcurrentManaged), 0, 0, attribute(kCooperativeLaunch)});
  if (of_cuda_12) all.put(0);
  all.put(bytes(kSharedOptIn))
      .numbers({0, 0, attribute(kBlocksPerMultiprocessor), 0})
      .put(bytes(kReservedShared));
  all.numbers({1, 0, 0, 0, attribute(kPools), 0})
      .put<unsigned>(0)
      .numbers({0})
      .put<unsigned>(0)
      .numbers({0, 0, attribute(kClusterLaunch), 0});
}

Stream* stream_or_null(const void* handle) { return stream_of(handle); }

Error with_stream(const void* handle, Error (*use)(Stream&)) {
  Stream* stream = stream_or_null(handle);
  return done(stream == nullptr ? kInvalidHandle : use(*stream));
}

std::set<const Event*>& events() {
  static auto* all = new std::set<const Event*>;
  return *all;
}

}  // namespace

Event* workbench::capture::event_of(void* handle) {
  auto* event = static_cast<Event*>(handle);
  return events().count(event) > 0 ? event : nullptr;
}

// ---- devices

CUDA_API Error cudaGetDeviceCount(int* count) { return device(), *count = 1, kSuccess; }
CUDA_API Error cudaGetDevice(int* number) { return *number = 0, kSuccess; }
CUDA_API Error cudaSetDevice(int number) { return done(number == 0 ? kSuccess : kInvalidDevice); }
CUDA_API Error cudaInitDevice(int number, unsigned, unsigned) { return cudaSetDevice(number); }
CUDA_API Error cudaSetValidDevices(const int*, int) { return kSuccess; }
CUDA_API Error cudaChooseDevice(int* number, const void*) { return *number = 0, kSuccess; }
CUDA_API Error cudaSetDeviceFlags(unsigned) { return kSuccess; }
CUDA_API Error cudaGetDeviceFlags(unsigned* flags) { return *flags = 8, kSuccess; }
CUDA_API Error cudaDeviceReset() { return synchronize_device(), kSuccess; }
CUDA_API Error cudaThreadExit() { return cudaDeviceReset(); }
CUDA_API Error cudaDeviceSynchronize() { return synchronize_device(), done(device_error()); }
CUDA_API Error cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
CUDA_API Error cudaGetDeviceProperties(void* to, int number) {
  if (number != 0) return done(kInvalidDevice);
  return put_properties(to, false), kSuccess;
}
CUDA_API Error cudaGetDeviceProperties_v2(void* to, int number) {
  if (number != 0) return done(kInvalidDevice);
  return put_properties(to, true), kSuccess;
}
CUDA_API Error cudaDeviceGetAttribute(int* value, int which, int number) {
  if (number != 0) return done(kInvalidDevice);
  return *value = attribute(which), kSuccess;
}
CUDA_API Error cudaDeviceGetPCIBusId(char* text, int size, int) {
  return std::snprintf(text, static_cast<size_t>(size), "0000:00:00.0"), kSuccess;
}
CUDA_API Error cudaDeviceGetByPCIBusId(int* number, const char*) { return *number = 0, kSuccess; }
CUDA_API Error cudaDeviceSetLimit(int, size_t) { return kSuccess; }
CUDA_API Error cudaDeviceGetLimit(size_t* value, int which) {
  return *value = which == 0 ? 1024 : which == 1 ? 1 << 20 : 8 << 20, kSuccess;
}
CUDA_API Error cudaDeviceSetCacheConfig(int) { return kSuccess; }
CUDA_API Error cudaDeviceGetCacheConfig(int* value) { return *value = 0, kSuccess; }
CUDA_API Error cudaDeviceSetSharedMemConfig(int) { return kSuccess; }
CUDA_API Error cudaDeviceGetSharedMemConfig(int* value) { return *value = 1, kSuccess; }
CUDA_API Error cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, kSuccess; }
CUDA_API Error cudaDeviceEnablePeerAccess(int, unsigned) { return done(kPeerAccessUnsupported); }
CUDA_API Error cudaDeviceDisablePeerAccess(int) { return done(kPeerAccessUnsupported); }
CUDA_API Error cudaDeviceGetP2PAttribute(int* value, int, int, int) { return *value = 0, kSuccess; }
CUDA_API Error cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, kSuccess;
}
CUDA_API Error cudaCtxResetPersistingL2Cache() { return kSuccess; }
CUDA_API Error cudaDriverGetVersion(int* version) { return *version = kVersion, kSuccess; }
CUDA_API Error cudaRuntimeGetVersion(int* version) { return *version = kVersion, kSuccess; }
CUDA_API Error cudaProfilerStart() { return kSuccess; }
CUDA_API Error cudaProfilerStop() { return kSuccess; }

// ---- streams and events

CUDA_API Error cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return *stream = create_stream(flags, priority), kSuccess;
}
CUDA_API Error cudaStreamCreate(void** stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
CUDA_API Error cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
CUDA_API Error cudaStreamDestroy(void* stream) {
  return done(destroy_stream(static_cast<Stream*>(stream)) ? kSuccess : kInvalidHandle);
}
CUDA_API Error cudaStreamSynchronize(void* stream) {
  return with_stream(stream, [](Stream& one) {
    return one.capturing ? Error{kCaptureUnsupported} : (synchronize(one), device_error());
  });
}
CUDA_API Error cudaStreamQuery(void* stream) { return cudaStreamSynchronize(stream); }
CUDA_API Error cudaStreamGetPriority(void* handle, int* priority) {
  Stream* stream = stream_of(handle);
  return stream == nullptr ? done(kInvalidHandle) : (*priority = stream->priority, kSuccess);
}
CUDA_API Error cudaStreamGetFlags(void* handle, unsigned* flags) {
  Stream* stream = stream_of(handle);
  return stream == nullptr ? done(kInvalidHandle) : (*flags = stream->flags, kSuccess);
}
CUDA_API Error cudaStreamGetId(void* handle, unsigned long long* id) {
  Stream* stream = stream_of(handle);
  return stream == nullptr ? done(kInvalidHandle) : (*id = stream->id, kSuccess);
}
CUDA_API Error cudaStreamGetDevice(void*, int* number) { return *number = 0, kSuccess; }
CUDA_API Error cudaStreamSetAttribute(void*, int, const void*) { return kSuccess; }
CUDA_API Error cudaStreamGetAttribute(void*, int, void* value) { return std::memset(value, 0, 64), kSuccess; }
CUDA_API Error cudaStreamCopyAttributes(void*, void*) { return kSuccess; }

CUDA_API Error cudaStreamWaitEvent(void* handle, void* event, unsigned) {
  Stream* stream = stream_of(handle);
  if (stream == nullptr || event_of(event) == nullptr) return done(kInvalidHandle);
  return wait(*stream, *event_of(event)), kSuccess;
}
CUDA_API Error cudaEventCreateWithFlags(void** event, unsigned flags) {
  auto* created = new Event;
  created->timed = (flags & 2) == 0;
  events().insert(created);
  return *event = created, kSuccess;
}
CUDA_API Error cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }
CUDA_API Error cudaEventDestroy(void* event) {
  if (event_of(event) == nullptr) return done(kInvalidHandle);
  events().erase(event_of(event));
  return delete static_cast<Event*>(event), kSuccess;
}
CUDA_API Error cudaEventRecordWithFlags(void* event, void* handle, unsigned) {
  Stream* stream = stream_of(handle);
  if (stream == nullptr || event_of(event) == nullptr) return done(kInvalidHandle);
  return record(*stream, *event_of(event)), kSuccess;
}
CUDA_API Error cudaEventRecord(void* event, void* stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}
CUDA_API Error cudaEventSynchronize(void* event) {
  if (event_of(event) == nullptr) return done(kInvalidHandle);
  return synchronize(*event_of(event)), done(device_error());
}
CUDA_API Error cudaEventQuery(void* event) { return cudaEventSynchronize(event); }
CUDA_API Error cudaEventElapsedTime(float* milliseconds, void* start, void* end) {
  const Event *first = event_of(start), *last = event_of(end);
  if (first == nullptr || last == nullptr || !first->recorded || !last->recorded || !first->timed ||
      !last->timed)
    return done(kInvalidHandle);
  return *milliseconds = static_cast<float>(last->milliseconds - first->milliseconds), kSuccess;
}
CUDA_API Error cudaEventElapsedTime_v2(float* milliseconds, void* start, void* end) {
  return cudaEventElapsedTime(milliseconds, start, end);
}

CUDA_API Error cudaLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return done(kInvalidHandle);
  const Clock known = stream->known;  // what comes before has ended when the function runs
  submit(*stream, NodeType::host, [=](const Moment&) { waited(known), function(data); });
  return kSuccess;
}
CUDA_API Error cudaStreamAddCallback(void* handle, void (*function)(void*, Error, void*), void* data,
                                     unsigned) {
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return done(kInvalidHandle);
  const Clock known = stream->known;
  submit(*stream, NodeType::host,
         [=](const Moment&) { waited(known), function(handle, device_error(), data); });
  return kSuccess;
}

// ---- kernels

CUDA_API Error cudaFuncGetAttributes(FunctionAttributes* attributes, const void* function) {
  Error error = kInvalidDeviceFunction;
  const Kernel* kernel = kernel_of_function(function, &error);
  if (kernel == nullptr) return done(error ? error : kInvalidDeviceFunction);
  *attributes = {};
  attributes->shared = static_cast<size_t>(kernel->static_shared);
  attributes->local = static_cast<size_t>(kernel->local_bytes);
  attributes->max_threads = kernel->max_threads;
  attributes->registers = kernel->registers;
  attributes->ptx_version = kernel->version;
  attributes->binary_version = kernel->architecture;
  attributes->max_dynamic_shared = kernel->max_dynamic_shared;
  attributes->non_portable = kernel->non_portable;
  for (int i = 0; i < 3; i++)
    attributes->cluster[i] = static_cast<int>(kernel->cluster[static_cast<size_t>(i)]);
  return kSuccess;
}
CUDA_API Error cudaFuncSetAttribute(const void* function, int which, int value) {
  Error error = kInvalidDeviceFunction;
  Kernel* kernel = kernel_of_function(function, &error);
  if (kernel == nullptr) return done(error ? error : kInvalidDeviceFunction);
  if (which == kNonPortableCluster) kernel->non_portable = value != 0;
  if (which != kMaxDynamicShared) return kSuccess;
  if (value < 0 || value + kernel->static_shared > attribute(kSharedOptIn)) return done(kInvalidValue);
  return kernel->max_dynamic_shared = value, kSuccess;
}
CUDA_API Error cudaFuncSetCacheConfig(const void*, int) { return kSuccess; }
CUDA_API Error cudaFuncSetSharedMemConfig(const void*, int) { return kSuccess; }
CUDA_API Error cudaFuncGetName(const char** name, const void* function) {
  const Kernel* kernel = kernel_of_function(function);
  return kernel == nullptr ? done(kInvalidDeviceFunction) : (*name = kernel->name.c_str(), kSuccess);
}
CUDA_API Error cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                      int threads, size_t shared, unsigned) {
  Error error = kInvalidDeviceFunction;
  const Kernel* kernel = kernel_of_function(function, &error);
  if (kernel == nullptr) return done(error ? error : kInvalidDeviceFunction);
  return *blocks = occupancy(*kernel, threads, shared), kSuccess;
}
CUDA_API Error cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                             size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}
CUDA_API Error cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int blocks,
                                                         int) {
  const Kernel* kernel = kernel_of_function(function);
  if (kernel == nullptr || blocks < 1) return done(kInvalidValue);
  const int left =
      attribute(kSharedPerMultiprocessor) / blocks - attribute(kReservedShared) - kernel->static_shared;
  return *bytes = static_cast<size_t>(std::max(0, std::min(left, attribute(kSharedOptIn)))), kSuccess;
}
