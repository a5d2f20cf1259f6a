// What a program of CUDA calls, declared here so that no toolkit is needed to build one.
#pragma once
#include <cstddef>

struct dim3 {
  unsigned x, y, z;
};
struct FatBinary {
  int magic, version;
  const void* data;
  const void* const* linked;
};
struct ChannelFormat {
  int x, y, z, w, kind;
};
struct Extent {
  size_t width, height, depth;
};
struct Resource {
  int type;
  void* array;
  int others[30];
};
struct TextureDescription {
  int mode[3], filter, read_mode, srgb;
  float border[4];
  int is_normalized, others[7];
};
struct Recorded {
  void* event;
  int flags, at_block_start;
};
struct LaunchAttribute {
  int id, padding;
  union {
    unsigned values[16];
    Recorded recorded;
  };
};
struct KernelNodeParameters {
  const void* function;
  dim3 grid, block;
  unsigned shared;
  void **arguments, **extra;
};
struct EdgeData {
  unsigned char port, to_port, type, reserved[5];
};
struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared;
  void* stream;
  LaunchAttribute* attributes;
  unsigned count;
};
enum Direction { kToDevice = 1, kToHost = 2, kWithin = 3 };

extern "C" {
void** __cudaRegisterFatBinary(const FatBinary*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaRegisterFunction(void**, const void*, char*, const char*, int, void*, void*, void*, void*, int*);
void __cudaRegisterVar(void**, void*, char*, const char*, int, size_t, int, int);
int cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, void*);
int cudaLaunchKernelExC(const LaunchConfiguration*, const void*, void**);
int cudaFuncSetAttribute(const void*, int, int);
int cudaGetDeviceCount(int*);
int cudaGetLastError();
int cudaDeviceSynchronize();
int cudaMalloc(void**, size_t);
int cudaMallocHost(void**, size_t);
int cudaMallocManaged(void**, size_t, unsigned);
int cudaHostRegister(void*, size_t, unsigned);
int cudaHostGetDevicePointer(void**, void*, unsigned);
int cudaHostUnregister(void*);
int cudaFree(void*);
int cudaFreeHost(void*);
int cudaMemcpy(void*, const void*, size_t, int);
int cudaMemcpy2D(void*, size_t, const void*, size_t, size_t, size_t, int);
int cudaMemcpyAsync(void*, const void*, size_t, int, void*);
int cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, int);
int cudaMemsetAsync(void*, int, size_t, void*);
int cudaMemset(void*, int, size_t);
int cudaStreamCreate(void**);
int cudaStreamSynchronize(void*);
int cudaStreamDestroy(void*);
int cudaMallocAsync(void**, size_t, void*);
int cudaFreeAsync(void*, void*);
int cudaStreamWaitEvent(void*, void*, unsigned);
int cudaStreamBeginCapture(void*, int);
int cudaStreamGetCaptureInfo(void*, int*, unsigned long long*, void**, const void***, const void***, size_t*);
int cudaStreamEndCapture(void*, void**);
int cudaGraphCreate(void**, unsigned);
int cudaGraphAddKernelNode(void**, void*, void* const*, size_t, const KernelNodeParameters*);
int cudaGraphAddDependencies(void*, void* const*, void* const*, const EdgeData*, size_t);
int cudaGraphInstantiate(void**, void*, unsigned long long);
int cudaGraphLaunch(void*, void*);
int cudaEventCreate(void**);
int cudaEventCreateWithFlags(void**, unsigned);
int cudaEventRecord(void*, void*);
int cudaEventSynchronize(void*);
int cudaMallocMipmappedArray(void**, const ChannelFormat*, Extent, unsigned, unsigned);
int cudaMallocArray(void**, const ChannelFormat*, size_t, size_t, unsigned);
int cudaFreeArray(void*);
int cudaMemcpy2DToArray(void*, size_t, size_t, const void*, size_t, size_t, size_t, int);
int cudaCreateTextureObject(unsigned long long*, const Resource*, const TextureDescription*, const void*);
int cudaDestroyTextureObject(unsigned long long);
int cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long, int*);
int cuTensorMapEncodeIm2col(void*, int, unsigned, void*, const unsigned long long*, const unsigned long long*,
                            const int*, const int*, unsigned, unsigned, const unsigned*, int, int, int, int);
}
