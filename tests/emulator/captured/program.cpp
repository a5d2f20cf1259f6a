// A program of CUDA, as nvcc would make one of `kernels.cu` and of host code: each case does one thing right
// or wrong.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime.h"

static void scale() {}
static void reverse() {}
static void count() {}
static void fill() {}
static void first() {}
static void second() {}
static void sample() {}
static void load() {}
static void rotate() {}
static float factor;

const int kCount = 64;
const size_t kBytes = kCount * sizeof(float);

static void launch(void (*kernel)(), void* array, void* stream = nullptr, unsigned threads = kCount,
                   int n = kCount) {
  void* arguments[] = {&array, &n};
  cudaLaunchKernel(reinterpret_cast<const void*>(kernel), {1, 1, 1}, {threads, 1, 1}, arguments, 0, stream);
}

static int launch_with(const LaunchAttribute& attribute, void (*kernel)(), void* array, void* stream,
                       int n = kCount) {
  void* arguments[] = {&array, &n};
  LaunchAttribute copy = attribute;
  const LaunchConfiguration how{{1, 1, 1}, {kCount, 1, 1}, 0, stream, &copy, 1};
  return cudaLaunchKernelExC(&how, reinterpret_cast<const void*>(kernel), arguments);
}

static void launch_graph(void* graph, void* stream, int times) {
  void* executable;
  cudaGraphInstantiate(&executable, graph, 0);
  for (int i = 0; i < times; i++) cudaGraphLaunch(executable, stream);
}

// A launch that may begin before `first` has ended, by an event of that launch or by an edge of a graph.
static void launch_early(void* array, void* stream, LaunchAttribute attribute, int n,
                         const std::string& how) {
  void *event, *other, *graph;
  cudaStreamCreate(&other);
  if (how == "edge") {
    const unsigned char port = attribute.id == 12 || attribute.recorded.at_block_start ? 2 : 1;
    const EdgeData edge{port, 0, static_cast<unsigned char>(attribute.id == 7), {}};
    void *nodes[2], *arguments[] = {&array, &n};
    KernelNodeParameters node{
        reinterpret_cast<const void*>(&first), {1, 1, 1}, {kCount, 1, 1}, 0, arguments, nullptr};
    cudaGraphCreate(&graph, 0);
    cudaGraphAddKernelNode(&nodes[0], graph, nullptr, 0, &node);
    node.function = reinterpret_cast<const void*>(&second);
    cudaGraphAddKernelNode(&nodes[1], graph, nullptr, 0, &node);
    cudaGraphAddDependencies(graph, &nodes[0], &nodes[1], &edge, 1);
  } else {
    cudaEventCreate(&event);
    attribute.recorded.event = event;
    if (launch_with(attribute, first, array, stream) != 1) std::exit(8);  // its time is not disabled
    cudaEventCreateWithFlags(&event, 2);
    attribute.recorded.event = event;
    if (how == "captured") cudaStreamBeginCapture(stream, 0);
    launch_with(attribute, first, array, stream);
    if (how == "behind") cudaEventRecord(event, stream);
    if (how == "host") {
      cudaEventSynchronize(event);
      static_cast<float*>(array)[0] = 5;
    }
    cudaStreamWaitEvent(other, event, 0);
    launch(second, array, other, kCount, n);
    if (how == "captured") {
      cudaEventRecord(event, other);
      cudaStreamWaitEvent(stream, event, 0);
      cudaStreamEndCapture(stream, &graph);
    }
  }
  if (how == "captured" || how == "edge") launch_graph(graph, stream, 2);
  cudaDeviceSynchronize();
}

static void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

static void check(const float* values, float expected) {
  for (int i = 0; i < kCount; i++)
    if (values[i] != expected) std::exit(7);
}

int main(int, char** words) {
  // what nvcc writes in front of main; fat binaries may hold PTX as text
  std::ifstream file(words[1], std::ios::binary);
  static const std::string ptx{std::istreambuf_iterator<char>(file), {}};
  static const FatBinary binary{0x466243b1, 1, ptx.c_str(), nullptr};
  void** handle = __cudaRegisterFatBinary(&binary);
  const std::pair<const char*, void (*)()> kernels[] = {
      {"scale", scale}, {"reverse", reverse}, {"count", count},   {"fill", fill},
      {"first", first}, {"second", second},   {"sample", sample}, {"load", load}};
  for (const auto& [name, function] : kernels)
    __cudaRegisterFunction(handle, reinterpret_cast<const void*>(function), nullptr, name, -1, nullptr,
                           nullptr, nullptr, nullptr, nullptr);
  __cudaRegisterVar(handle, &factor, nullptr, "factor", 0, sizeof factor, 1, 0);
  __cudaRegisterFatBinaryEnd(handle);

  const std::string wanted = words[2];
  const float two = 2, ones[kCount] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                       1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                       1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  float host[kCount] = {};
  void *device = nullptr, *pinned = nullptr, *managed = nullptr, *stream = nullptr, *event = nullptr;
  cudaMemcpyToSymbol(&factor, &two, sizeof two, 0, kToDevice);
  cudaMalloc(&device, kBytes);
  cudaMallocHost(&pinned, kBytes);
  cudaMallocManaged(&managed, kBytes, 1);
  cudaStreamCreate(&stream);
  cudaEventCreate(&event);
  auto* const values = static_cast<float*>(pinned);
  if (wanted != "unwritten") cudaMemcpy(device, ones, kBytes, kToDevice);

  if (wanted == "right") {
    launch(scale, device);
    cudaMemcpy(host, device, kBytes, kToHost);
    check(host, 2);
  } else if (wanted == "rows") {  // of 32 bytes, of which half are copied, one behind the other
    void* halves;
    cudaMalloc(&halves, kBytes / 2);
    cudaMemcpy2D(halves, 16, device, 32, 16, 8, kWithin);
    cudaMemset(device, 0, kBytes);
    cudaMemcpy2D(device, 32, halves, 16, 16, 8, kWithin);
    cudaMemcpy(host, device, kBytes, kToHost);
    for (int i = 0; i < kCount; i++)
      if (host[i] != static_cast<float>(i % 8 < 4)) return 7;
    cudaFree(halves);
  } else if (wanted == "race") {
    launch(reverse, device);
  } else if (wanted == "same_name") {  // two modules that have a `scale`: one of them is `rotate`
    static std::string other = ptx;
    replace_all(other, "scale", "left_out");
    replace_all(other, "rotate", "scale");
    static const FatBinary second_binary{0x466243b1, 1, other.c_str(), nullptr};
    void** const second_handle = __cudaRegisterFatBinary(&second_binary);
    __cudaRegisterFunction(second_handle, reinterpret_cast<const void*>(rotate), nullptr, "scale", -1,
                           nullptr, nullptr, nullptr, nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(second_handle);
    cudaMemset(device, 0, kBytes);
    launch(scale, device);
    launch(rotate, device);
  } else if (wanted == "unwritten") {
    launch(scale, device);
  } else if (wanted == "unread") {
    launch(scale, device, nullptr, 4096);
  } else if (wanted == "read") {
    launch(scale, device, nullptr, 4096);
    if (cudaGetLastError() != 9) return 8;
  } else if (wanted == "forgotten" || wanted == "copied_back") {
    void *first, *second;
    cudaMalloc(&first, kBytes);
    cudaMalloc(&second, kBytes);
    launch(fill, first);
    cudaMemcpy(second, first, kBytes, kWithin);
    launch(scale, second);
    if (wanted == "copied_back") cudaMemcpy(host, second, kBytes, kToHost);
    launch(fill, second);
    if (wanted == "forgotten") launch(fill, pinned);
    cudaFree(first);
    cudaFree(second);
    cudaMalloc(&first, 2 * kBytes);
    launch(fill, first);
    launch(fill, first);
    if (wanted == "copied_back") cudaMemcpy(host, first, kBytes, kToHost);
    cudaFree(first);
  } else if (wanted == "copied_behind") {  // what a launch has left unwritten is stored by a copy
    for (const bool within : {false, true}) {
      void* both;
      cudaMalloc(&both, 2 * kBytes);
      launch(fill, both);
      cudaMemcpy(host, both, kBytes, kToHost);
      auto* const behind = static_cast<float*>(both) + kCount;
      cudaMemcpy(behind, within ? device : ones, kBytes / 2, within ? kWithin : kToDevice);
      launch(scale, both);
      cudaFree(both);
    }
  } else if (wanted == "unwaited_copy") {
    cudaMemcpyAsync(pinned, device, kBytes, kToHost, stream);
    check(values, 1);
  } else if (wanted == "unwaited_source") {
    cudaMemcpyAsync(device, pinned, kBytes, kToDevice, stream);
    values[0] = 5;
  } else if (wanted == "unwaited_kernel") {
    std::memcpy(managed, ones, kBytes);
    launch(scale, managed);
    check(static_cast<float*>(managed), 2);
  } else if (wanted == "managed_part" || wanted == "managed_bits") {  // half of it, or all bits
    std::memset(managed, 0xFF, wanted == "managed_part" ? kBytes / 2 : kBytes);
    launch(scale, managed);
    cudaDeviceSynchronize();
  } else if (wanted == "waited") {
    cudaMemcpyAsync(pinned, device, kBytes, kToHost, stream);
    cudaEventRecord(event, stream);
    cudaEventSynchronize(event);
    check(values, 1);
    std::memcpy(managed, ones, kBytes);
    launch(scale, managed, stream);
    cudaStreamSynchronize(stream);
    check(static_cast<float*>(managed), 2);
    cudaMemcpyAsync(device, pinned, kBytes, kToDevice, stream);
    cudaDeviceSynchronize();
    values[0] = 5;
  } else if (wanted == "waited_by_another_stream") {
    void* other;
    cudaStreamCreate(&other);
    cudaMemcpyAsync(pinned, device, kBytes, kToHost, stream);
    cudaEventRecord(event, stream);
    cudaStreamWaitEvent(other, event, 0);
    cudaStreamSynchronize(other);
    check(values, 1);
    cudaStreamDestroy(other);
  } else if (wanted == "beside" || wanted == "behind" || wanted == "copied_beside" ||
             wanted == "host_between") {
    void* other;
    cudaStreamCreate(&other);
    launch(scale, device, stream);
    cudaEventRecord(event, stream);
    if (wanted == "behind") cudaStreamWaitEvent(other, event, 0);
    if (wanted == "host_between") cudaEventSynchronize(event);
    if (wanted == "copied_beside")
      cudaMemcpyAsync(device, pinned, kBytes, kToDevice, other);
    else
      launch(scale, device, other);
    cudaStreamSynchronize(other);
    cudaStreamDestroy(other);
  } else if (wanted == "freed_beside" || wanted == "freed_behind") {
    void *other, *own;
    cudaStreamCreate(&other);
    cudaMallocAsync(&own, kBytes, stream);
    cudaMemsetAsync(own, 0, kBytes, stream);
    launch(scale, own, stream);
    cudaEventRecord(event, stream);
    if (wanted == "freed_behind") cudaStreamWaitEvent(other, event, 0);
    cudaFreeAsync(own, other);
    launch(scale, device, stream);  // in no order with the release
    cudaDeviceSynchronize();
    cudaStreamDestroy(other);
  } else if (wanted.rfind("early ", 0) == 0) {  // attribute, whether at the start of blocks, n, how
    char how[16];
    int id, at_block_start, n;
    if (std::sscanf(wanted.c_str(), "early %d %d %d %15s", &id, &at_block_start, &n, how) != 4) return 9;
    LaunchAttribute attribute{id, 0, {}};
    attribute.recorded = {nullptr, 0, at_block_start};
    launch_early(how == std::string("host") ? pinned : device, stream, attribute, n, how);
  } else if (wanted == "programmatic" || wanted == "programmatic_fill" || wanted == "programmatic_captured") {
    void* graph;
    LaunchAttribute attribute{6, 0, {{1}}};
    if (wanted == "programmatic_captured") cudaStreamBeginCapture(stream, 0);
    launch(first, device, stream);
    if (wanted == "programmatic_fill") cudaMemsetAsync(device, 0, kBytes, stream);  // which triggers nothing
    launch_with(attribute, second, device, stream, -1);
    if (wanted == "programmatic_captured") {
      cudaStreamEndCapture(stream, &graph);
      launch_graph(graph, stream, 1);
    }
    cudaStreamSynchronize(stream);
  } else if (wanted == "with_host") {
    std::memset(managed, 0, kBytes);
    launch(count, managed);
    __atomic_fetch_add(static_cast<int*>(managed), 1, __ATOMIC_SEQ_CST);
    cudaDeviceSynchronize();
    if (*static_cast<int*>(managed) != kCount + 1) return 7;
  } else if (wanted == "followed") {
    std::printf("%g\n", *static_cast<float*>(device));
  } else if (wanted == "too_long") {
    cudaMemcpy(host, device, kBytes + 4, kToHost);
  } else if (wanted == "direction") {
    cudaMemcpy(host, device, kBytes, kToDevice);
  } else if (wanted == "freed_twice") {
    cudaFree(device);
    cudaFree(device);
    return 0;
  } else if (wanted == "leak") {
    return 0;
  } else if (wanted == "registered") {
    auto* own = new float[kCount];
    std::memcpy(own, ones, kBytes);
    void* seen;
    cudaHostRegister(own, kBytes, 2);
    cudaHostGetDevicePointer(&seen, own, 0);
    launch(scale, seen);
    cudaDeviceSynchronize();
    check(own, 2);
    cudaHostUnregister(own);
    check(own, 2);
    delete[] own;
  } else if (wanted == "graph") {
    void* graph;
    int capturing = 1;
    unsigned long long number = 0;
    cudaStreamGetCaptureInfo(stream, &capturing, &number, nullptr, nullptr, nullptr, nullptr);
    if (capturing != 0) return 9;
    cudaStreamBeginCapture(stream, 0);
    cudaStreamGetCaptureInfo(stream, &capturing, &number, &graph, nullptr, nullptr, nullptr);
    if (capturing != 1 || number == 0 || graph == nullptr) return 9;
    launch(scale, device, stream);
    cudaMemcpyAsync(pinned, device, kBytes, kToHost, stream);
    cudaStreamEndCapture(stream, &graph);
    launch_graph(graph, stream, 3);
    cudaStreamSynchronize(stream);
    check(values, 8);
  } else if (wanted == "graph_branches" || wanted == "graph_in_order") {
    void *graph, *other, *joined;
    cudaStreamCreate(&other);
    cudaEventCreate(&joined);
    cudaStreamBeginCapture(stream, 0);
    if (wanted == "graph_branches") cudaEventRecord(event, stream);
    launch(scale, device, stream);
    if (wanted == "graph_in_order") cudaEventRecord(event, stream);
    cudaStreamWaitEvent(other, event, 0);
    launch(scale, device, other);
    cudaEventRecord(joined, other);
    cudaStreamWaitEvent(stream, joined, 0);
    launch(scale, device, stream);
    cudaStreamEndCapture(stream, &graph);
    launch_graph(graph, stream, 2);
    cudaMemcpyAsync(pinned, device, kBytes, kToHost, stream);
    cudaStreamSynchronize(stream);
    check(values, 64);
  } else if (wanted == "graph_unwaited") {
    void* graph;
    cudaStreamBeginCapture(stream, 0);
    cudaMemcpyAsync(pinned, device, kBytes, kToHost, stream);
    cudaStreamEndCapture(stream, &graph);
    launch_graph(graph, stream, 1);
    check(values, 1);
  } else if (wanted == "mipmap") {
    cudaMallocMipmappedArray(&device, nullptr, {8, 8, 0}, 2, 0);
  } else if (wanted == "texture") {
    const ChannelFormat format{32, 0, 0, 0, 2};
    for (int i = 0; i < kCount; i++) host[i] = static_cast<float>(i);
    Resource resource{};
    TextureDescription description{};
    unsigned long long texture;
    cudaMallocArray(&resource.array, &format, 8, 8, 0);
    cudaMemcpy2DToArray(resource.array, 0, 0, host, 32, 32, 8, kToDevice);
    if (cudaCreateTextureObject(&texture, &resource, &description, nullptr) != 0) return 8;
    void* arguments[] = {&device, &texture};
    cudaLaunchKernel(reinterpret_cast<const void*>(&sample), {1, 1, 1}, {kCount, 1, 1}, arguments, 0,
                     nullptr);
    cudaMemcpy(host, device, kBytes, kToHost);
    for (int i = 0; i < kCount; i++)
      if (host[i] != static_cast<float>(kCount - 1 - i)) return 7;
    cudaDestroyTextureObject(texture);
    cudaFreeArray(resource.array);
  } else if (wanted == "tiled" || wanted == "pixels" || wanted == "tiled_badly") {
    for (int i = 0; i < kCount; i++) host[i] = static_cast<float>(i);
    cudaMemcpy(device, host, kBytes, kToDevice);
    struct alignas(64) {
      unsigned long long words[16];
    } map;
    const unsigned long long sizes[] = {8, 8, 1}, strides[] = {wanted == "tiled_badly" ? 30ull : 32ull, 256};
    const unsigned box[] = {4, 4}, steps[] = {1, 1, 1};
    const int lower[] = {0}, upper[] = {0};
    int pixels = wanted == "pixels" ? 4 : 0, error, status = -1;
    if (pixels) {
      error =
          cuTensorMapEncodeIm2col(&map, 7, 3, device, sizes, strides, lower, upper, 4, 4, steps, 0, 0, 0, 0);
    } else {
      void* found = nullptr;
      if (cudaGetDriverEntryPointByVersion("cuTensorMapEncode", &found, 12000, 0, &status) || status != 1)
        return 8;
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, 0, &status);
      using Encode = int (*)(void*, int, unsigned, void*, const unsigned long long*,
                             const unsigned long long*, const unsigned*, const unsigned*, int, int, int, int);
      error = status == 0 ? reinterpret_cast<Encode>(found)(&map, 7, 2, device, sizes, strides, box, steps, 0,
                                                            0, 0, 0)
                          : -1;
    }
    if (error != (wanted == "tiled_badly" ? 1 : 0)) return 8;
    if (error == 0) {
      void* arguments[] = {&pinned, &map, &pixels};
      cudaLaunchKernel(reinterpret_cast<const void*>(&load), {1, 1, 1}, {32, 1, 1}, arguments, 0, nullptr);
      cudaDeviceSynchronize();
      for (int i = 0; i < 16; i++)
        if (values[i] != static_cast<float>((4 + i / 4) * 8 + 4 + i % 4)) return 7;
    }
  } else if (wanted == "wide_cluster") {  // 16 blocks, which a kernel has to ask for
    int n = 4;
    void* arguments[] = {&device, &n};
    LaunchAttribute cluster{4, 0, {{16, 1, 1}}};
    const LaunchConfiguration how{{16, 1, 1}, {4, 1, 1}, 0, nullptr, &cluster, 1};
    const auto* const kernel = reinterpret_cast<const void*>(&scale);
    if (cudaLaunchKernelExC(&how, kernel, arguments) != 9 || cudaGetLastError() != 9) return 8;
    cudaFuncSetAttribute(kernel, 14, 1);
    if (cudaLaunchKernelExC(&how, kernel, arguments) != 0) return 8;
    cudaMemcpy(host, device, kBytes, kToHost);
    if (host[0] != 2) return 7;
  } else if (wanted == "repeated") {
    cudaMemset(device, 0, kBytes);
    for (int i = 0; i < 100; i++) launch(scale, device);
    cudaMemcpy(device, ones, kBytes, kToDevice);
    launch(scale, device);
    cudaMemcpy(host, device, kBytes, kToHost);
    check(host, 2);
  } else if (wanted == "refilled") {
    for (int i = 0; i < 4; i++) {
      cudaMemcpy(device, ones, kBytes, kToDevice);
      launch(scale, device);
      if (i > 1) cudaMemcpy(host, device, kBytes, kToHost);
    }
    check(host, 2);
  } else {
    return 9;
  }
  cudaFree(device);
  cudaFreeHost(pinned);
  cudaFree(managed);
  cudaStreamDestroy(stream);
  return 0;
}
