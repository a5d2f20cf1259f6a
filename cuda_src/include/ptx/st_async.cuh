// st.async and red.async: a thread writes registers to the shared memory of a block of its cluster, and what waits
// there is an mbarrier. sm_90.
#pragma once
#include "ptx/mbarrier.cuh"

// mapa and st.async.v4: stores 16 bytes where `to`, a multiple of 16 bytes, lies in block `rank`, and reports them
// to its `full`, which expects them. that block has initialised it (see cluster_started) and must not have ended
__device__ __forceinline__ void store_async(float4* to, int rank, float4 v, Barrier& full) {
  asm volatile(
      "{\n"
      ".reg .u32 there, barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mapa.shared::cluster.u32 barrier, %6, %1;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%2, %3, %4, %5}, [barrier];\n"
      "}" ::"r"(shared_address(to)),
      "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(shared_address(&full))
      : "memory");
}

// the same of 4 bytes
__device__ __forceinline__ void store_async(u32* to, int rank, u32 v, Barrier& full) {
  asm volatile(
      "{\n"
      ".reg .u32 there, barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mapa.shared::cluster.u32 barrier, %3, %1;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [there], %2, [barrier];\n"
      "}" ::"r"(shared_address(to)),
      "r"(rank), "r"(v), "r"(shared_address(&full))
      : "memory");
}

// mapa and red.async.add: adds to 4 bytes there, atomically
__device__ __forceinline__ void add_async(u32* to, int rank, u32 v, Barrier& full) {
  asm volatile(
      "{\n"
      ".reg .u32 there, barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mapa.shared::cluster.u32 barrier, %3, %1;\n"
      "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [there], %2, [barrier];\n"
      "}" ::"r"(shared_address(to)),
      "r"(rank), "r"(v), "r"(shared_address(&full))
      : "memory");
}
