#include "modules.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>

#include "connection.hpp"
#include "memory.hpp"

namespace workbench::capture {
namespace {

constexpr uint32_t kFatBinary = 0xBA55ED50, kElf = 0x464C457F;
constexpr uint64_t kOrdinaryShared = 48 << 10;
constexpr int kInvalidValue = 1;
// what stands in `extra` of cuLaunchKernel
const void *const kBufferPointer = reinterpret_cast<void*>(1), *const kBufferSize =
                                                                   reinterpret_cast<void*>(2);

std::recursive_mutex mutex;
std::atomic<int> sticky{0};
thread_local std::string refusal;

// Bytes of an image, by its own header.
uint64_t size_of(const void* image) {
  uint32_t magic;
  std::memcpy(&magic, image, sizeof magic);
  const auto* bytes = static_cast<const uint8_t*>(image);
  if (magic == kFatBinary) {
    uint64_t size;
    std::memcpy(&size, bytes + 8, sizeof size);
    return size + 16;
  }
  if (magic == kElf) {  // the section headers lie at the end
    uint64_t sections;
    uint16_t entry, count;
    std::memcpy(&sections, bytes + 40, sizeof sections);
    std::memcpy(&entry, bytes + 58, sizeof entry);
    std::memcpy(&count, bytes + 60, sizeof count);
    return sections + static_cast<uint64_t>(entry) * count;
  }
  return std::strlen(static_cast<const char*>(image));
}

// Host memory that the device sees and that is one of its parameters, with what it holds before a launch.
struct Watched {
  Allocation allocation;
  std::vector<uint8_t> before;
};

constexpr uint64_t kMostWatched = 256 << 20;

std::vector<Watched> watched_of(const std::vector<uint8_t>& arguments) {
  std::vector<Watched> found;
  for (size_t at = 0; at + 8 <= arguments.size(); at += 8) {
    uint64_t value;
    std::memcpy(&value, arguments.data() + at, sizeof value);
    const Allocation* one = is_device_address(value) ? find(value) : nullptr;
    if (one == nullptr || !one->on_host() || one->bytes > kMostWatched) continue;
    found.push_back({*one, std::vector<uint8_t>(alias(one->address), alias(one->address) + one->bytes)});
  }
  return found;
}

void guard_written(const std::vector<Watched>& watched, const std::string& kernel, const Moment& moment) {
  for (const Watched& one : watched)
    if (std::memcmp(alias(one.allocation.address), one.before.data(), one.before.size()) != 0)
      guard(one.allocation.address, one.allocation.bytes, false, "the kernel " + kernel, moment.stream,
            moment.number);
}

int carry_out(const Launch& launch, const Moment& moment) {
  const auto watched = launch.kernel->with_host ? std::vector<Watched>{} : watched_of(launch.arguments);
  Request request(Operation::launch);
  request.number(launch.kernel->id);
  for (const Dimensions& three : {launch.grid, launch.block, launch.cluster})
    for (const uint32_t one : three) request.number(one);
  request.number(launch.shared).number(launch.cooperative).number(launch.kernel->non_portable);
  request.bytes(launch.arguments.data(), launch.arguments.size()).text(launch.site);
  Reply reply = ask(add_moment(request, moment));
  if (const auto error = static_cast<int>(reply.number()); error != 0) sticky = error;
  const std::string printed = reply.text();
  std::fwrite(printed.data(), 1, printed.size(), stdout);
  guard_written(watched, launch.kernel->shown, moment);
  refusal = reply.status == 0 ? "" : reply.text();
  return reply.status;
}

}  // namespace

Module* load(const std::vector<const void*>& images) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  device();
  Request request(Operation::module);
  request.number(images.size());
  for (const void* image : images) request.bytes(image, size_of(image));
  Reply reply = ask(request);
  auto* module = new Module;  // kept: kernels of a module that was unloaded may still be named
  module->error = reply.status;
  if (reply.status == 0) module->id = reply.number();
  return module;
}

Kernel* kernel_of(Module& module, const std::string& name, int* error) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (const auto found = module.kernels.find(name); found != module.kernels.end()) return found->second;
  Reply reply = ask(Request(Operation::kernel).number(module.id).text(name));
  if (error != nullptr) *error = reply.status;
  if (reply.status != 0) return nullptr;
  auto kernel = std::make_unique<Kernel>();
  kernel->name = name;
  kernel->id = reply.number();
  kernel->parameter_bytes = reply.number();
  for (int* field : {&kernel->registers, &kernel->static_shared, &kernel->local_bytes, &kernel->max_threads,
                     &kernel->version, &kernel->architecture})
    *field = static_cast<int>(reply.number());
  for (uint32_t& extent : kernel->cluster) extent = static_cast<uint32_t>(reply.number());
  kernel->with_host = reply.number() != 0;
  for (uint64_t left = reply.number(); left > 0; left--) {
    const uint64_t offset = reply.number();
    kernel->parameters.emplace_back(offset, reply.number());
  }
  kernel->shown = reply.text();
  kernel->max_dynamic_shared = static_cast<int>(kOrdinaryShared) - kernel->static_shared;
  return module.kernels[name] = kernel.release();
}

Variable variable_of(Module& module, const std::string& name, bool managed) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  Reply reply = ask(Request(Operation::variable).number(module.id).text(name));
  if (reply.status != 0) return {};
  Variable found;
  found.address = reply.number();
  found.bytes = reply.number();
  if (find(found.address) == nullptr) adopt(found.address, found.bytes, managed);
  return found;
}

std::vector<uint8_t> packed(const Kernel& kernel, void** arguments) {
  std::vector<uint8_t> buffer(kernel.parameter_bytes);
  for (size_t i = 0; i < kernel.parameters.size(); i++)
    std::memcpy(buffer.data() + kernel.parameters[i].first, arguments[i], kernel.parameters[i].second);
  return buffer;
}

std::vector<uint8_t> packed_extra(void** extra) {
  const uint8_t* buffer = nullptr;
  size_t size = 0;
  for (; extra != nullptr && *extra != nullptr; extra += 2) {
    if (*extra == kBufferPointer) buffer = static_cast<const uint8_t*>(extra[1]);
    if (*extra == kBufferSize) size = *static_cast<const size_t*>(extra[1]);
  }
  return buffer == nullptr ? std::vector<uint8_t>{} : std::vector<uint8_t>(buffer, buffer + size);
}

int launch(Stream& stream, Launch launch) {
  launch.arguments.resize(launch.kernel->parameter_bytes);
  if (const int most = std::max(launch.kernel->max_dynamic_shared, 0);
      launch.shared > static_cast<uint64_t>(most)) {
    refusal =
        std::to_string(launch.shared) + " bytes of dynamic shared memory are asked for, and " +
        std::to_string(most) +
        " are allowed: cudaFuncSetAttribute with cudaFuncAttributeMaxDynamicSharedMemorySize allows more";
    return kInvalidValue;
  }
  auto status = std::make_shared<int>(0);
  const bool programmatic = launch.programmatic;
  const std::vector<EarlyEvent> events = launch.events;
  submit_kernel(
      stream,
      [launch = std::move(launch), status](const Moment& moment) { *status = carry_out(launch, moment); },
      programmatic, events);
  return *status;
}

int occupancy(const Kernel& kernel, int threads, uint64_t shared) {
  Reply reply = ask(
      Request(Operation::occupancy).number(kernel.id).number(static_cast<uint64_t>(threads)).number(shared));
  return reply.status == 0 ? static_cast<int>(reply.number()) : 0;
}

const std::string& launch_refusal() { return refusal; }

int device_error() { return sticky; }

}  // namespace workbench::capture
