// reductions over the blocks of a cluster that share a row, through distributed shared memory. sm_90.
#pragma once
#include "ptx/cluster.cuh"
#include "tile/row_reduce.cuh"

// the blocks' values, by rank. a reduction needs one of its own, in the same place of every block
template <class Op, int RANKS>
struct alignas(16) ClusterScratch {
  float4 from[RANKS];
};

// combines one value of each block, the same in all its threads, in the order of the ranks. by all threads of
// the cluster; all blocks must have started (cluster_started), and may end after it
template <class Op, int RANKS>
__device__ __forceinline__ typename Op::Value cluster_reduce(typename Op::Value value,
                                                             ClusterScratch<Op, RANKS>& scratch) {
  using Value = typename Op::Value;
  static_assert(sizeof(Value) <= sizeof(float4), "a value that goes to other blocks has at most 16 bytes");
  if constexpr (RANKS == 1) return value;
  float4 packed = {};
  *reinterpret_cast<Value*>(&packed) = value;
  if (threadIdx.x < RANKS) cluster_store(&scratch.from[cluster_rank()], threadIdx.x, packed);
  cluster_sync();
  value = *reinterpret_cast<const Value*>(&scratch.from[0]);
#pragma unroll
  for (int rank = 1; rank < RANKS; ++rank)
    value = Op::combine(value, *reinterpret_cast<const Value*>(&scratch.from[rank]));
  return value;
}
