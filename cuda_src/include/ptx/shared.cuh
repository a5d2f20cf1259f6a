// addresses of shared memory as PTX takes them: 32 bits, counted from the start of the block's window.
#pragma once

using u32 = unsigned;
using u64 = unsigned long long;

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}
