// clusters: blocks that run at the same time and can write into each other's shared memory. sm_90.
#pragma once
#include "ptx/shared.cuh"

// %cluster_ctarank: which block of its cluster this is
__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// the same in a cluster of so many blocks, which may be one
template <int BLOCKS_OF_IT>
__device__ __forceinline__ int cluster_rank_of() {
  return BLOCKS_OF_IT > 1 ? cluster_rank() : 0;
}

// barrier.cluster: until every thread of the cluster that has not exited is here. what they wrote before,
// remotely too, is visible after
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// barrier.cluster without memory order: until every block of the cluster has started and initialised its
// mbarriers, when mbarrier_init_fence and __syncthreads came before
__device__ __forceinline__ void cluster_started() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}

// mapa and st.shared::cluster.v4: stores 16 bytes where `to`, a multiple of 16 bytes, lies in block `rank`.
// that block must have started, and must not have ended
__device__ __forceinline__ void cluster_store(float4* to, int rank, float4 v) {
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n"
      "}" ::"r"(shared_address(to)),
      "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
      : "memory");
}

// mapa and ld.shared::cluster: what lies where `from` does in block `rank`, with the same duties
__device__ __forceinline__ float cluster_load(const float* from, int rank) {
  float v;
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [there];\n"
      "}"
      : "=f"(v)
      : "r"(shared_address(from)), "r"(rank)
      : "memory");
  return v;
}

// the same of one, two or four neighbours, at a multiple of their size
__device__ __forceinline__ void cluster_load(float (&v)[1], const float* from, int rank) {
  v[0] = cluster_load(from, rank);
}
__device__ __forceinline__ void cluster_load(float (&v)[2], const float* from, int rank) {
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %2, %3;\n"
      "ld.shared::cluster.v2.f32 {%0, %1}, [there];\n"
      "}"
      : "=f"(v[0]), "=f"(v[1])
      : "r"(shared_address(from)), "r"(rank)
      : "memory");
}
__device__ __forceinline__ void cluster_load(float (&v)[4], const float* from, int rank) {
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
      "}"
      : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
      : "r"(shared_address(from)), "r"(rank)
      : "memory");
}
