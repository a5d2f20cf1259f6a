// the tensor memory accelerator: one thread asks for a whole tile. sm_90.
#pragma once
#include "mbarrier.cuh"

// what cuTensorMapEncodeTiled filled in on the host: array, strides, box, swizzle. pass it as a
// `const __grid_constant__` parameter, so that its address is one the copy engine can read
struct alignas(64) TensorMap {
  u64 opaque[16];
};

// cp.async.bulk.tensor.2d: copies the map's box whose first element is (row, column) to shared memory and
// reports its bytes to `full`. by one thread. `to` is a multiple of 1024 bytes where the swizzle is 128
// bytes; the part of the box outside of the array becomes zero and counts as bytes all the same
__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, Barrier& full, int row, int column) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], [%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full))
      : "memory");
}
