// The driver's functions of devices, contexts, modules and launches, for programs that load libcuda: CuPy,
// cuda-python, PyCUDA, Numba. Handles are those of the runtime here, and there is one context.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "runtime.hpp"

using namespace workbench::capture;

extern "C" {
Error cudaFuncGetAttributes(FunctionAttributes*, const void*);
Error cudaFuncSetAttribute(const void*, int, int);
const char* cudaGetErrorName(Error);
const char* cudaGetErrorString(Error);
Error cudaRuntimeGetVersion(int*);
}

namespace {

char only_context;
thread_local void* current_context = nullptr;
constexpr uint32_t kWrapper = 0x466243B1;  // in front of a fat binary, where nvcc has put it
constexpr int kPtx = 1;                    // a CUjitInputType
constexpr int kFound = 0, kNotFound = 1;   // a CUdriverProcAddressQueryResult

Error load_into(void** module, const void* image) {
  uint32_t magic;
  std::memcpy(&magic, image, sizeof magic);
  if (magic == kWrapper) image = static_cast<const FatBinary*>(image)->data;
  Module* loaded = load({image});
  return loaded->error != 0 ? loaded->error : (*module = loaded, kSuccess);
}

Error load_file(void** module, const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return kFileNotFound;
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  return load_into(module, image.c_str());
}

Error global_of(uint64_t* address, size_t* bytes, void* module, const char* name, bool managed) {
  const Variable found = variable_of(*static_cast<Module*>(module), name, managed);
  if (address != nullptr) *address = found.address;
  if (bytes != nullptr) *bytes = found.bytes;
  return found.address == 0 ? kSymbolNotFound : kSuccess;
}

Error launch_function(const LaunchConfiguration& how, void* function, void** arguments, void** extra) {
  const Kernel* kernel = kernel_of_function(function);
  if (kernel == nullptr) return kInvalidHandle;
  const Error error =
      launch_kernel(function, how, arguments != nullptr ? packed(*kernel, arguments) : packed_extra(extra));
  return error == kInvalidConfiguration ? Error{kInvalidValue} : error;
}

// What was given to a linker, which is one module's PTX: that is what it answers.
struct Linker {
  std::string image;
};

Error add_to_linker(Linker& linker, int type, const char* data, size_t size) {
  if (type != kPtx) return kSuccess;  // a library of machine code, such as cudadevrt
  if (!linker.image.empty()) return refuse("cuLinkAddData of a second module");
  linker.image.assign(data, size);
  return kSuccess;
}

// Of functions whose arguments have changed, which version a program that was built for a version of CUDA
// means.
struct Version {
  const char *name, *exported;
  int since;
};
const Version kVersions[] = {{"cuCtxCreate", "cuCtxCreate_v4", 12050},
                             {"cuCtxCreate", "cuCtxCreate_v3", 11040},
                             {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", 12030},
                             {"cuMemPrefetchAsync", "cuMemPrefetchAsync_v2", 12020},
                             {"cuMemAdvise", "cuMemAdvise_v2", 12020},
                             {"cuGetProcAddress", "cuGetProcAddress_v2", 12000}};

void* function_of(std::string name, int version) {
  for (const Version& one : kVersions)
    if (name == one.name && version >= one.since) name = one.exported;
  for (const char* suffix : {"_v2", ""})
    if (void* found = own_function(name + suffix)) return found;
  return nullptr;
}

// cudaErrorInvalidValue is CUDA_ERROR_INVALID_VALUE.
std::string driver_name(Error error) {
  const auto& special = driver_error_names();
  if (const auto found = special.find(error); found != special.end()) return found->second;
  std::string name = "CUDA";
  for (const char* next = cudaGetErrorName(error) + 4; *next != 0; next++) {
    const bool upper = *next >= 'A' && *next <= 'Z';
    if (upper) name += '_';
    name += static_cast<char>(upper ? *next : *next - 'a' + 'A');
  }
  return name;
}

}  // namespace

// ---- the driver itself

CUDA_API Error cuInit(unsigned) { return device(), kSuccess; }
CUDA_API Error cuGetErrorName(Error error, const char** name) {
  static auto* names = new std::map<Error, std::string>;
  return *name = names->emplace(error, driver_name(error)).first->second.c_str(), kSuccess;
}
CUDA_API Error cuGetErrorString(Error error, const char** text) {
  return *text = cudaGetErrorString(error), kSuccess;
}
CUDA_API Error cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t, int* status) {
  *function = function_of(name, version);
  if (status != nullptr) *status = *function != nullptr ? kFound : kNotFound;
  return *function == nullptr && status == nullptr ? kSymbolNotFound : kSuccess;
}
CUDA_API Error cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
CUDA_API Error cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                                uint64_t flags, int* status) {
  const Error error = cuGetProcAddress_v2(name, function, static_cast<int>(version), flags, status);
  return done(error);
}
CUDA_API Error cudaGetDriverEntryPoint(const char* name, void** function, uint64_t flags, int* status) {
  int version;
  cudaRuntimeGetVersion(&version);
  return cudaGetDriverEntryPointByVersion(name, function, static_cast<unsigned>(version), flags, status);
}
// A runtime inside a program asks for it first where its own functions could not be redirected; NVRTC asks,
// too.
CUDA_API Error cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  Dl_info info{};
  if (dladdr(__builtin_return_address(0), &info) == 0 || std::strstr(info.dli_fname, "/libnv") != nullptr)
    return kNotSupported;
  return refuse(
      (std::string(info.dli_fname) + " holds CUDA's runtime without a symbol table, and its calls").c_str());
}

// ---- devices and contexts

CUDA_API Error cuDeviceGet(int* number, int which) {
  return *number = 0, which == 0 ? kSuccess : kInvalidDevice;
}
CUDA_API Error cuDeviceGetName(char* name, int size, int) {
  return std::snprintf(name, static_cast<size_t>(size), "%s", device().name.c_str()), kSuccess;
}
CUDA_API Error cuDeviceGetUuid_v2(void* id, int) { return std::memset(id, 0, 16), kSuccess; }
CUDA_API Error cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = device().total_memory, kSuccess; }
CUDA_API Error cuDeviceComputeCapability(int* major, int* minor, int) {
  return *major = attribute(kMajor), *minor = attribute(kMinor), kSuccess;
}
CUDA_API Error cuDevicePrimaryCtxRetain(void** context, int) {
  return device(), *context = &only_context, kSuccess;
}
CUDA_API Error cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  return *flags = 0, *active = 1, kSuccess;
}
CUDA_API Error cuCtxSetCurrent(void* context) { return current_context = context, kSuccess; }
CUDA_API Error cuCtxGetCurrent(void** context) { return *context = current_context, kSuccess; }
CUDA_API Error cuCtxPopCurrent_v2(void** context) {
  if (context != nullptr) *context = current_context;
  return kSuccess;
}
CUDA_API Error cuCtxCreate_v2(void** context, unsigned, int) {
  return device(), current_context = *context = &only_context, kSuccess;
}
CUDA_API Error cuCtxGetFlags(unsigned* flags) { return *flags = 0, kSuccess; }
CUDA_API Error cuCtxGetApiVersion(void*, unsigned* version) { return *version = 3020, kSuccess; }
CUDA_API Error cuCtxGetId(void*, unsigned long long* id) { return *id = 1, kSuccess; }
CUDA_API Error cuStreamGetCtx(void*, void** context) { return *context = &only_context, kSuccess; }

// ---- modules

CUDA_API Error cuModuleLoad(void** module, const char* path) { return load_file(module, path); }
CUDA_API Error cuModuleLoadData(void** module, const void* image) { return load_into(module, image); }
CUDA_API Error cuModuleGetFunction(void** function, void* module, const char* name) {
  Error error = kSymbolNotFound;
  *function = kernel_in(*static_cast<Module*>(module), name, &error);
  return *function == nullptr ? error : kSuccess;
}
CUDA_API Error cuModuleGetGlobal_v2(uint64_t* address, size_t* bytes, void* module, const char* name) {
  return global_of(address, bytes, module, name, false);
}
CUDA_API Error cuLibraryGetManaged(uint64_t* address, size_t* bytes, void* library, const char* name) {
  return global_of(address, bytes, library, name, true);
}
CUDA_API Error cuLibraryGetModule(void** module, void* library) { return *module = library, kSuccess; }
CUDA_API Error cuKernelGetFunction(void** function, void* kernel) { return *function = kernel, kSuccess; }
CUDA_API Error cuModuleGetLoadingMode(int* mode) { return *mode = 2, kSuccess; }
CUDA_API Error cuFuncIsLoaded(int* state, void*) { return *state = 1, kSuccess; }

CUDA_API Error cuLinkCreate_v2(unsigned, int*, void**, void** state) { return *state = new Linker, kSuccess; }
CUDA_API Error cuLinkAddData_v2(void* state, int type, void* data, size_t size, const char*, unsigned, int*,
                                void**) {
  return add_to_linker(*static_cast<Linker*>(state), type, static_cast<const char*>(data), size);
}
CUDA_API Error cuLinkAddFile_v2(void* state, int type, const char* path, unsigned, int*, void**) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return kFileNotFound;
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  return add_to_linker(*static_cast<Linker*>(state), type, image.data(), image.size());
}
CUDA_API Error cuLinkComplete(void* state, void** image, size_t* size) {
  std::string& linked = static_cast<Linker*>(state)->image;
  *image = linked.data();
  if (size != nullptr) *size = linked.size() + 1;
  return kSuccess;
}
CUDA_API Error cuLinkDestroy(void* state) { return delete static_cast<Linker*>(state), kSuccess; }

// ---- functions and their launches

CUDA_API Error cuFuncGetAttribute(int* value, int which, const void* function) {
  FunctionAttributes found;
  if (const Error error = cudaFuncGetAttributes(&found, function)) return error;
  const int values[] = {found.max_threads,
                        static_cast<int>(found.shared),
                        static_cast<int>(found.constant),
                        static_cast<int>(found.local),
                        found.registers,
                        found.ptx_version,
                        found.binary_version,
                        found.cache_mode,
                        found.max_dynamic_shared,
                        found.carveout,
                        found.cluster_must_be_set,
                        found.cluster[0],
                        found.cluster[1],
                        found.cluster[2],
                        found.non_portable,
                        found.scheduling};
  if (which < 0 || which > 15) return kInvalidValue;
  return *value = values[which], kSuccess;
}
CUDA_API Error cuKernelSetAttribute(int which, int value, const void* kernel, int) {
  return cudaFuncSetAttribute(kernel, which, value);
}
CUDA_API Error cuFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* size) {
  const Kernel* kernel = kernel_of_function(function);
  if (kernel == nullptr || index >= kernel->parameters.size()) return kInvalidValue;
  *offset = kernel->parameters[index].first;
  if (size != nullptr) *size = kernel->parameters[index].second;
  return kSuccess;
}
CUDA_API Error cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, void* stream, void** arguments, void** extra) {
  return launch_function({{gx, gy, gz}, {bx, by, bz}, shared, stream, nullptr, 0}, function, arguments,
                         extra);
}
CUDA_API Error cuLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                         unsigned by, unsigned bz, unsigned shared, void* stream,
                                         void** arguments) {
  LaunchAttribute cooperative{kCooperative, {}, {}};
  cooperative.number = 1;
  return launch_function({{gx, gy, gz}, {bx, by, bz}, shared, stream, &cooperative, 1}, function, arguments,
                         nullptr);
}
CUDA_API Error cuLaunchKernelEx(const LaunchConfiguration* how, void* function, void** arguments,
                                void** extra) {
  LaunchConfiguration wanted = *how;
  wanted.shared = static_cast<uint32_t>(how->shared);  // of 32 bits here
  return launch_function(wanted, function, arguments, extra);
}
CUDA_API Error cuOccupancyMaxPotentialBlockSize(int* blocks, int* threads, const void* function,
                                                size_t (*shared_of)(int), size_t shared, int most) {
  const Kernel* kernel = kernel_of_function(function);
  if (kernel == nullptr) return kInvalidHandle;
  const int warp = attribute(kWarp);
  most = std::min(most > 0 ? most : kernel->max_threads, kernel->max_threads);
  int best = 0;
  for (int wanted = most / warp * warp; wanted > 0; wanted -= warp) {
    const int found = occupancy(*kernel, wanted, shared_of != nullptr ? shared_of(wanted) : shared);
    if (found * wanted <= best) continue;
    best = found * wanted;
    *threads = wanted;
    *blocks = found * attribute(kMultiprocessors);
  }
  return best > 0 ? kSuccess : kInvalidValue;
}
