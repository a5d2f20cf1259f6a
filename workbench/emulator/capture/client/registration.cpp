// What a compiled program registers before main: fat binaries, kernels and variables. Modules are loaded when
// a kernel or a variable of theirs is first needed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "connection.hpp"
#include "runtime.hpp"

namespace workbench::capture {
namespace {

struct Registered {
  std::vector<const void*> images;
  Module* module = nullptr;
};
struct Symbol {
  Registered* binary;
  std::string name;
  size_t bytes;
  void** managed;  // where the host keeps the address of a managed one
};
struct Configuration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};

constexpr int kLinked = 2;  // version of a fat binary

std::recursive_mutex mutex;

// The tables outlive the program's destructors.
struct Tables {
  std::vector<std::unique_ptr<Registered>> binaries;
  std::map<const void*, std::pair<Registered*, std::string>> functions;
  std::map<const void*, Symbol> symbols;
  std::set<const Kernel*> handles;
  std::set<std::string> refused;
};
Tables& tables() {
  static auto* all = new Tables;
  return *all;
}

thread_local Error last_error = 0;
thread_local std::vector<Configuration> configurations;

// An error of a launch that no call has read yet.
struct Unread {
  std::string message, site;
};
Unread& unread() {
  static auto* one = new Unread;
  return *one;
}

void say_unread() {
  if (!unread().message.empty()) report("unread_error", unread().message, unread().site);
  unread() = {};
}

void at_end() {
  say_unread();
  say_leaks();
}

Module* module_of(Registered* binary) {
  if (binary->module == nullptr) {
    binary->module = load(binary->images);
    std::atexit(at_end);
  }
  return binary->module;
}

}  // namespace

Error done(Error error) {
  if (error != 0) last_error = error;
  return error;
}

Kernel* kernel_of_function(const void* function, Error* error) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  auto* handle = static_cast<Kernel*>(const_cast<void*>(function));
  if (tables().handles.count(handle) > 0) return handle;
  const auto found = tables().functions.find(function);
  if (found == tables().functions.end()) return nullptr;
  return kernel_in(*module_of(found->second.first), found->second.second, error);
}

Kernel* kernel_in(Module& module, const std::string& name, Error* error) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  Kernel* kernel = kernel_of(module, name, error);
  if (kernel != nullptr) tables().handles.insert(kernel);
  return kernel;
}

namespace {

// The event that an attribute has recorded, which must have no time.
bool add_event(const LaunchAttribute& attribute, std::vector<EarlyEvent>& events) {
  const bool completion = attribute.id == kLaunchCompletionEvent;
  if (!completion && attribute.id != kProgrammaticEvent) return true;
  auto* event = event_of(attribute.recorded.event);
  if (event == nullptr || event->timed) return false;
  const Port port = attribute.recorded.at_block_start ? Port::begun : Port::triggered;
  return events.push_back({event, completion ? Port::begun_only : port}), true;
}

}  // namespace

Error launch_kernel(const void* function, const LaunchConfiguration& how, std::vector<uint8_t> arguments) {
  Kernel* kernel = kernel_of_function(function);
  Stream* stream = stream_of(how.stream);
  if (stream == nullptr) return kInvalidHandle;
  Launch wanted{kernel,     three(how.grid), three(how.block),     {1, 1, 1},
                how.shared, false,           std::move(arguments), call_site()};
  for (unsigned i = 0; i < how.attribute_count; i++) {
    if (how.attributes[i].id == kClusterDimension) wanted.cluster = three(how.attributes[i].cluster);
    if (how.attributes[i].id == kProgrammatic) wanted.programmatic = how.attributes[i].number != 0;
    if (how.attributes[i].id == kCooperative) wanted.cooperative = how.attributes[i].number != 0;
    if (!add_event(how.attributes[i], wanted.events)) return kInvalidValue;
  }
  return launch(*stream, std::move(wanted));
}

Variable variable_of_symbol(const void* symbol) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const auto found = tables().symbols.find(symbol);
  if (found == tables().symbols.end()) return {};
  return variable_of(*module_of(found->second.binary), found->second.name, found->second.managed != nullptr);
}

Error refuse(const char* function) {
  const std::string site = call_site();
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (tables().refused.insert(function).second)
    report("not_emulated",
           std::string(function) + (std::strstr(function, "calls")
                                        ? " cannot be redirected: link it with -cudart shared"
                                        : " is not emulated"),
           site);
  return done(kNotSupported);
}

}  // namespace workbench::capture

using namespace workbench::capture;

CUDA_API void** __cudaRegisterFatBinary(const FatBinary* binary) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  std::vector<const void*> images{binary->data};
  for (const void* const* linked = binary->version == kLinked ? binary->linked : nullptr;
       linked != nullptr && *linked != nullptr; linked++)
    images.push_back(*linked);
  tables().binaries.push_back(std::make_unique<Registered>(Registered{images}));
  return reinterpret_cast<void**>(tables().binaries.back().get());
}

CUDA_API void __cudaRegisterFatBinaryEnd(void**) {}
CUDA_API void __cudaUnregisterFatBinary(void**) {}
CUDA_API void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}
CUDA_API void __cudaRegisterUnifiedTable(void**, void*) {}

CUDA_API void __cudaRegisterFunction(void** handle, const void* function, char*, const char* name, int, void*,
                                     void*, void*, void*, int*) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  tables().functions[function] = {reinterpret_cast<Registered*>(handle), name};
}

CUDA_API void __cudaRegisterVar(void** handle, void* symbol, char*, const char* name, int, size_t bytes, int,
                                int) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  tables().symbols[symbol] = {reinterpret_cast<Registered*>(handle), name, bytes, nullptr};
}

CUDA_API void __cudaRegisterManagedVar(void** handle, void** symbol, char*, const char* name, int,
                                       size_t bytes, int, int) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  tables().symbols[symbol] = {reinterpret_cast<Registered*>(handle), name, bytes, symbol};
}

CUDA_API char __cudaInitModule(void** handle) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  for (const auto& [symbol, found] : tables().symbols)
    if (found.managed != nullptr && found.binary == reinterpret_cast<Registered*>(handle))
      *found.managed = reinterpret_cast<void*>(variable_of_symbol(symbol).address);
  return 1;
}

CUDA_API Error __cudaGetKernel(const void** kernel, const void* function) {
  Error error = 0;
  *kernel = kernel_of_function(function, &error);
  if (*kernel == nullptr) *kernel = function;  // the launch says what is wrong
  return kSuccess;
}

CUDA_API Error cudaGetKernel(const void** kernel, const void* function) {
  return __cudaGetKernel(kernel, function);
}
CUDA_API Error cudaGetFuncBySymbol(const void** kernel, const void* function) {
  return __cudaGetKernel(kernel, function);
}

CUDA_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

CUDA_API Error __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void** stream) {
  if (configurations.empty()) return done(52);
  const Configuration top = configurations.back();
  configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *stream = top.stream;
  return kSuccess;
}

CUDA_API Error cudaLaunchKernelExC(const LaunchConfiguration* how, const void* function, void** arguments) {
  Error error = kInvalidDeviceFunction;
  const Kernel* kernel = kernel_of_function(function, &error);
  return done(kernel == nullptr ? error : launch_kernel(function, *how, packed(*kernel, arguments)));
}

CUDA_API Error cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                                void* stream) {
  const LaunchConfiguration how{grid, block, shared, stream, nullptr, 0};
  const Error error = cudaLaunchKernelExC(&how, function, arguments);
  if (const Kernel* kernel = error != 0 ? kernel_of_function(function) : nullptr; kernel != nullptr) {
    say_unread();
    unread() = {"the launch of " + kernel->shown + " failed, and nothing has read the error: " +
                    launch_refusal() + "; call cudaGetLastError after a launch",
                call_site()};
  }
  return error;
}

CUDA_API Error __cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                                  void* stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

CUDA_API Error cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                           size_t shared, void* stream) {
  LaunchAttribute cooperative{kCooperative, {}, {}};
  cooperative.number = 1;
  const LaunchConfiguration how{grid, block, shared, stream, &cooperative, 1};
  return cudaLaunchKernelExC(&how, function, arguments);
}

CUDA_API Error cudaGetLastError() {
  const Error error = last_error ? last_error : device_error();
  last_error = 0;
  unread() = {};
  return error;
}

CUDA_API Error cudaPeekAtLastError() {
  unread() = {};
  return last_error ? last_error : device_error();
}
