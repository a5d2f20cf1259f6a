// What the functions of the runtime share.
#pragma once

#include "cuda_types.hpp"
#include "modules.hpp"
#include "streams.hpp"

#define CUDA_API extern "C" __attribute__((visibility("default")))

namespace workbench::capture {

// Keeps an error for cudaGetLastError.
Error done(Error error);
// A host function, or a handle that __cudaGetKernel gave, as the kernel that it stands for; null where there
// is none.
Kernel* kernel_of_function(const void* function, Error* error = nullptr);
// The device's address of a variable that the host names by its own.
Variable variable_of_symbol(const void* symbol);
// A function of CUDA that is not emulated: one sentence, the first time.
Error refuse(const char* function);

inline uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
inline Dimensions three(const dim3& extent) { return {extent.x, extent.y, extent.z}; }

}  // namespace workbench::capture
