// a tile of C whose k is split over the blocks of a cluster: each block gathers the others' sums for its own
// columns, through distributed shared memory. sm_90a.
#pragma once
#include "ptx/cluster.cuh"

// the THREADS from FIRST on of each of RANKS blocks hold sums of the same N columns, N / 2 a thread
template <int RANKS, int N, int FIRST, int THREADS>
struct ClusterSums {
  static constexpr int PART = N / RANKS;  // columns that a block gathers
  static constexpr int BYTES = (RANKS - 1) * PART / 2 * THREADS * sizeof(float);

  // where block `from` of the RANKS - 1 others leaves four sums for a thread
  static __device__ __forceinline__ float4* inbox(void* memory, int from, int four) {
    constexpr int FOURS = PART / 2 / 4;
    return static_cast<float4*>(memory) + (from * FOURS + four) * THREADS + threadIdx.x - FIRST;
  }

  // by all threads of the cluster that have not exited. `memory` holds BYTES at the same place in every
  // block, and nobody needs what was there
  static __device__ __forceinline__ void send(const float* sum, int rank, void* memory) {
    cluster_sync();  // nobody needs it any more, in the other blocks too
#pragma unroll
    for (int part = 0; part < RANKS; ++part) {
      if (part == rank) continue;
      const float* theirs = &sum[part * PART / 2];
#pragma unroll
      for (int i = 0; i < PART / 2; i += 4)
        cluster_store(inbox(memory, rank - (rank > part), i / 4), part,
                      make_float4(theirs[i], theirs[i + 1], theirs[i + 2], theirs[i + 3]));
    }
    cluster_sync();  // all have come
  }

  // adds what the others have sent to this block's part
  static __device__ __forceinline__ void gather(float* part, void* memory) {
#pragma unroll
    for (int from = 0; from < RANKS - 1; ++from)
#pragma unroll
      for (int i = 0; i < PART / 2; i += 4) {
        const float4 v = *inbox(memory, from, i / 4);
        part[i] += v.x, part[i + 1] += v.y, part[i + 2] += v.z, part[i + 3] += v.w;
      }
  }
};
