// What the functions of the runtime share.
#pragma once

#include "cuda_types.hpp"
#include "modules.hpp"
#include "streams.hpp"

#define CUDA_API extern "C" __attribute__((visibility("default")))

namespace workbench::capture {

// Numbers of cudaDeviceAttr that are used here.
enum {
  kMaxThreads = 1,
  kMaxBlock = 2,
  kMaxGrid = 5,
  kSharedPerBlock = 8,
  kConstant = 9,
  kWarp = 10,
  kMaxPitch = 11,
  kRegistersPerBlock = 12,
  kClock = 13,
  kTextureAlignment = 14,
  kMultiprocessors = 16,
  kIntegrated = 18,
  kMapHost = 19,
  kConcurrentKernels = 31,
  kMemoryClock = 36,
  kBusWidth = 37,
  kL2 = 38,
  kThreadsPerMultiprocessor = 39,
  kEngines = 40,
  kUnified = 41,
  kMajor = 75,
  kMinor = 76,
  kPriorities = 78,
  kSharedPerMultiprocessor = 81,
  kRegistersPerMultiprocessor = 82,
  kManaged = 83,
  kConcurrentManaged = 89,
  kCooperativeLaunch = 95,
  kSharedOptIn = 97,
  kBlocksPerMultiprocessor = 106,
  kReservedShared = 111,
  kPools = 115,
  kClusterLaunch = 120
};
int attribute(int which);

// The event of a handle, or null.
Event* event_of(void* handle);
// Keeps an error for cudaGetLastError.
Error done(Error error);
// A host function, or a handle that __cudaGetKernel gave, as the kernel that it stands for; null where there
// is none.
Kernel* kernel_of_function(const void* function, Error* error = nullptr);
// The device's address of a variable that the host names by its own.
Variable variable_of_symbol(const void* symbol);
// The same for a module's kernel, which is a handle from then on.
Kernel* kernel_in(Module& module, const std::string& name, Error* error);
// Launches what a handle or a host function stands for.
Error launch_kernel(const void* function, const LaunchConfiguration& how, std::vector<uint8_t> arguments);
// A function that this library exports, or null.
void* own_function(const std::string& name);
// Where an object that has been loaded is a compiler: what it makes is to be PTX.
void redirect_compiler(const char* path, uint64_t base);
// Names of errors that the driver calls differently.
const std::map<Error, const char*>& driver_error_names();
// A function of CUDA that is not emulated: one sentence, the first time.
Error refuse(const char* function);

inline uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
inline Dimensions three(const dim3& extent) { return {extent.x, extent.y, extent.z}; }

}  // namespace workbench::capture
