// Names and texts of errors.
#include <map>

#include "runtime.hpp"

using namespace workbench::capture;

namespace {

struct Text {
  const char *name, *text;
};

const Text& text_of(Error error) {
  static const auto* all = new std::map<Error, Text>{
      {0, {"cudaSuccess", "no error"}},
      {1, {"cudaErrorInvalidValue", "invalid argument"}},
      {2, {"cudaErrorMemoryAllocation", "out of memory"}},
      {3, {"cudaErrorInitializationError", "initialization error"}},
      {9, {"cudaErrorInvalidConfiguration", "invalid configuration argument"}},
      {13, {"cudaErrorInvalidSymbol", "invalid device symbol"}},
      {17, {"cudaErrorInvalidDevicePointer", "invalid device pointer"}},
      {21, {"cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"}},
      {52, {"cudaErrorMissingConfiguration", "__global__ function call is not configured"}},
      {98, {"cudaErrorInvalidDeviceFunction", "invalid device function"}},
      {101, {"cudaErrorInvalidDevice", "invalid device ordinal"}},
      {200, {"cudaErrorInvalidKernelImage", "device kernel image is invalid"}},
      {209, {"cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"}},
      {217, {"cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices"}},
      {218, {"cudaErrorInvalidPtx", "a PTX JIT compilation failed"}},
      {301, {"cudaErrorFileNotFound", "file not found"}},
      {400, {"cudaErrorInvalidResourceHandle", "invalid resource handle"}},
      {500, {"cudaErrorSymbolNotFound", "named symbol not found"}},
      {600, {"cudaErrorNotReady", "device not ready"}},
      {700, {"cudaErrorIllegalAddress", "an illegal memory access was encountered"}},
      {701, {"cudaErrorLaunchOutOfResources", "too many resources requested for launch"}},
      {702, {"cudaErrorLaunchTimeout", "the launch timed out and was terminated"}},
      {710, {"cudaErrorAssert", "device-side assert triggered"}},
      {713,
       {"cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"}},
      {715, {"cudaErrorIllegalInstruction", "an illegal instruction was encountered"}},
      {716, {"cudaErrorMisalignedAddress", "misaligned address"}},
      {719, {"cudaErrorLaunchFailure", "unspecified launch failure"}},
      {720, {"cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"}},
      {801, {"cudaErrorNotSupported", "operation not supported"}},
      {900, {"cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"}},
      {903, {"cudaErrorStreamCaptureUnmatched", "the capture was not initiated in this stream"}},
      {912, {"cudaErrorInvalidClusterSize", "cluster misconfiguration"}},
  };
  static const Text unknown{"unrecognized error code", "unrecognized error code"};
  const auto found = all->find(error);
  return found == all->end() ? unknown : found->second;
}

}  // namespace

const std::map<Error, const char*>& workbench::capture::driver_error_names() {
  static const auto* all = new std::map<Error, const char*>{{0, "CUDA_SUCCESS"},
                                                            {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                            {3, "CUDA_ERROR_NOT_INITIALIZED"},
                                                            {200, "CUDA_ERROR_INVALID_IMAGE"},
                                                            {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                                                            {400, "CUDA_ERROR_INVALID_HANDLE"},
                                                            {500, "CUDA_ERROR_NOT_FOUND"},
                                                            {719, "CUDA_ERROR_LAUNCH_FAILED"}};
  return *all;
}

CUDA_API const char* cudaGetErrorName(Error error) { return text_of(error).name; }
CUDA_API const char* cudaGetErrorString(Error error) { return text_of(error).text; }
