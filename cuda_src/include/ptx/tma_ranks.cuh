// the tensor memory accelerator with tensor maps of 1, 3, 4 and 5 dimensions; those of 2 are in tma.cuh, with what
// each of these does and asks for. coordinates of the box's first element stand outermost first, x is the
// innermost. and cp.reduce.async.bulk.tensor, for 1 to 5: adds a box of shared memory to the array. sm_90.
#pragma once
#include "ptx/tma.cuh"

__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, Barrier& full, int x) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], "
      "[%3];" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(shared_address(&full))
      : "memory");
}
__device__ __forceinline__ void tma_load_to(unsigned blocks, void* to, const TensorMap& map, Barrier& full,
                                            int x) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2}], [%3], %4;" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(blocks))
      : "memory");
}
__device__ __forceinline__ void tma_prefetch(const TensorMap& map, int x) {
  asm volatile("cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%0, {%1}];" ::"l"(&map), "r"(x)
               : "memory");
}
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from, int x) {
  asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(x)
               : "memory");
}

__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, Barrier& full, int z, int y, int x) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(&full))
      : "memory");
}
__device__ __forceinline__ void tma_load_to(unsigned blocks, void* to, const TensorMap& map, Barrier& full,
                                            int z, int y, int x) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(blocks))
      : "memory");
}
__device__ __forceinline__ void tma_prefetch(const TensorMap& map, int z, int y, int x) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map), "r"(x), "r"(y), "r"(z)
               : "memory");
}
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from, int z, int y, int x) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
               : "memory");
}

__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, Barrier& full, int w, int z, int y, int x) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(&full))
      : "memory");
}
__device__ __forceinline__ void tma_load_to(unsigned blocks, void* to, const TensorMap& map, Barrier& full,
                                            int w, int z, int y, int x) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(blocks))
      : "memory");
}
__device__ __forceinline__ void tma_prefetch(const TensorMap& map, int w, int z, int y, int x) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from, int w, int z, int y, int x) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}

__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, Barrier& full, int v, int w, int z, int y, int x) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], "
      "[%7];" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(shared_address(&full))
      : "memory");
}
__device__ __forceinline__ void tma_load_to(unsigned blocks, void* to, const TensorMap& map, Barrier& full,
                                            int v, int w, int z, int y, int x) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(blocks))
      : "memory");
}
__device__ __forceinline__ void tma_prefetch(const TensorMap& map, int v, int w, int z, int y, int x) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
               : "memory");
}
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from, int v, int w, int z, int y, int x) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
               : "memory");
}

__device__ __forceinline__ void tma_add(const TensorMap& map, const void* from, int x) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%0, {%2}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(x)
      : "memory");
}

__device__ __forceinline__ void tma_add(const TensorMap& map, const void* from, int y, int x) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void tma_add(const TensorMap& map, const void* from, int z, int y, int x) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void tma_add(const TensorMap& map, const void* from, int w, int z, int y, int x) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

__device__ __forceinline__ void tma_add(const TensorMap& map, const void* from, int v, int w, int z, int y, int x) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
      "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}
