// the tensor memory accelerator: one thread asks for a whole tile. sm_90.
#pragma once
#include "ptx/mbarrier.cuh"

// what cuTensorMapEncodeTiled filled in on the host: array, strides, box, swizzle. pass it as a
// `const __grid_constant__` parameter, so that its address is one TMA can read
struct alignas(64) TensorMap {
  u64 opaque[16];
};

// cp.async.bulk.tensor.2d: copies the map's box whose first element is (row, column) to shared memory and
// reports its bytes to `full`. by one thread. `to` is a multiple of 128 bytes, of 1024 where the swizzle is
// 128 bytes. the box may begin before the array or beyond it, along a row at multiples of 16 bytes; the part
// of it that is outside becomes zero and counts as bytes all the same
__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, Barrier& full, int row, int column) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], [%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full))
      : "memory");
}

// the same into every block of the cluster whose bit is set in `blocks`: to the same place of its shared
// memory, and reported to its `full`, which it has initialised (see cluster_started)
__device__ __forceinline__ void tma_load_to(unsigned blocks, void* to, const TensorMap& map, Barrier& full,
                                            int row, int column) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full)), "h"(static_cast<unsigned short>(blocks))
      : "memory");
}

// createpolicy, and tma_load with it: for what is read once. its lines are the first to leave the L2 again
__device__ __forceinline__ void tma_load_once(void* to, const TensorMap& map, Barrier& full, int row,
                                              int column) {
  u64 first;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full)), "l"(first)
      : "memory");
}

// cp.async.bulk.prefetch.tensor.2d: has the L2 fetch the map's box whose first element is (row, column), so
// that a later copy of it waits less. by one thread
__device__ __forceinline__ void tma_prefetch(const TensorMap& map, int row, int column) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&map), "r"(column),
               "r"(row)
               : "memory");
}

// prefetch.tensormap: has TMA fetch the map itself, ahead of the first copy with it. by one
// thread
__device__ __forceinline__ void tma_prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// cp.async.bulk.tensor.2d to global memory: copies a box of shared memory to where its first element is (row,
// column) of the array, neither of them below 0; what lies outside of the array is left out, but only in
// whole 16 bytes: a row that ends within 16 bytes is written up to their end. by one thread, after every
// thread that wrote the box has called async_fence and met this one at a barrier. part of a bulk group
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from, int row, int column) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(column), "r"(row)
               : "memory");
}

// fence.proxy.async: makes this thread's ordinary stores to shared memory visible to TMA and
// wgmma
__device__ __forceinline__ void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// cp.async.bulk.commit_group: the stores this thread asked for since the last commit become one group
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// cp.async.bulk.wait_group.read: until at most PENDING of this thread's groups still have to be read, so that
// the memory of the others may be written again
template <int PENDING>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// cp.async.bulk.wait_group: until at most PENDING of this thread's groups are still to be written. what the others
// store is then visible to this thread, and to whoever finds a flag that it raises after
template <int PENDING>
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}
