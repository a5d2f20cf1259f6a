// bulk copies of consecutive bytes, without a tensor map, and bulk reductions: by one thread. addresses and the
// number of bytes are multiples of 16. sm_90.
#pragma once
#include "ptx/mbarrier.cuh"

// cp.async.bulk: copies from global to shared memory and reports the bytes to `full`, as tma_load does
__device__ __forceinline__ void bulk_load(void* to, const void* from, int bytes, Barrier& full) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(&full))
               : "memory");
}

// mapa and cp.async.bulk: copies from this block's shared memory to where `to` lies in block `rank` of the
// cluster, and reports the bytes to its `full`. that block has initialised it (see cluster_started) and must not
// have ended; neither must this one before the bytes have come
__device__ __forceinline__ void bulk_send(void* to, int rank, const void* from, int bytes, Barrier& full) {
  asm volatile(
      "{\n"
      ".reg .u32 there, barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mapa.shared::cluster.u32 barrier, %4, %1;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%2], %3, [barrier];\n"
      "}" ::"r"(shared_address(to)),
      "r"(rank), "r"(shared_address(from)), "r"(bytes), "r"(shared_address(&full))
      : "memory");
}

// cp.async.bulk to global memory: part of a bulk group, as tma_store is (tma_store_commit, tma_store_wait_read).
// every thread that wrote there has called async_fence before and met this one at a barrier
__device__ __forceinline__ void bulk_store(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

// cp.reduce.async.bulk.add to global memory: adds each element to what is there, atomically. else as bulk_store
__device__ __forceinline__ void bulk_add(float* to, const float* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_add(int* to, const int* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

// the same with minimum and maximum
__device__ __forceinline__ void bulk_min(int* to, const int* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.s32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_max(int* to, const int* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

// mapa and cp.reduce.async.bulk.add to shared memory of block `rank` of the cluster: integers only. reports the
// bytes to its `full`. else as bulk_send
__device__ __forceinline__ void bulk_add_at(int* to, int rank, const int* from, int bytes, Barrier& full) {
  asm volatile(
      "{\n"
      ".reg .u32 there, barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mapa.shared::cluster.u32 barrier, %4, %1;\n"
      "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.s32 [there], [%2], %3, "
      "[barrier];\n"
      "}" ::"r"(shared_address(to)),
      "r"(rank), "r"(shared_address(from)), "r"(bytes), "r"(shared_address(&full))
      : "memory");
}
