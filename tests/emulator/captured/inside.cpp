// A program that holds the runtime inside, as nvcc links it by default: here one whose functions all fail.
#include <cstdio>

#include "runtime.h"

extern "C" {
__attribute__((noinline)) int cudaMalloc(void** pointer, size_t bytes) {
  std::printf("no GPU %p %zu\n", static_cast<void*>(pointer), bytes);
  return 100;
}
__attribute__((noinline)) int cudaFree(void* pointer) {
  std::printf("no GPU %p\n", pointer);
  return 100;
}
}

int main() {
  void* device = nullptr;
  return cudaMalloc(&device, 64) + (device == nullptr) + cudaFree(device);
}
