// reductions over the blocks of a cluster that share a row, through distributed shared memory. sm_90.
#pragma once
#include "ptx/cluster.cuh"
#include "ptx/st_async.cuh"
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

// where the blocks' values of reductions that follow each other come, two of them by turns; in the same place
// of every block
template <int RANKS>
struct alignas(16) ClusterInbox {
  float4 from[2][RANKS];
  Barrier full[2], empty[2];
};

// reductions in a loop, of values as above. they come with st.async, and a block waits for those
// alone: the release of cluster_sync would wait for all that the threads have stored to device memory before,
// too
template <int RANKS>
class ClusterReductions {
 public:
  // by all threads of the cluster, which wait until all have started
  __device__ __forceinline__ explicit ClusterReductions(ClusterInbox<RANKS>& inbox) : inbox(inbox) {
    if constexpr (RANKS == 1) return;
    if (threadIdx.x == 0) {
      for (int slot = 0; slot < 2; ++slot) {
        mbarrier_init(inbox.full[slot], 1);
        mbarrier_init(inbox.empty[slot], RANKS);
      }
      mbarrier_init_fence();
    }
    __syncthreads();
    cluster_started();
  }

  // combines one value of each block, the same in all its threads, in the order of the ranks. by all threads
  // of the cluster, those of a block between two calls at a barrier. after the last one blocks may end
  template <class Op>
  __device__ __forceinline__ typename Op::Value reduce(typename Op::Value value) {
    using Value = typename Op::Value;
    static_assert(sizeof(Value) <= sizeof(float4), "a value that goes to other blocks has at most 16 bytes");
    if constexpr (RANKS == 1) return value;
    float4 packed = {};
    *reinterpret_cast<Value*>(&packed) = value;
    const int slot = turn & 1, parity = turn >> 1 & 1;
    if (threadIdx.x == 0) mbarrier_arrive_expect(inbox.full[slot], RANKS * sizeof(float4));
    if (threadIdx.x < RANKS) {
      // the values of the last turn have been read: the block was at a barrier since
      if (turn > 0) mbarrier_arrive_at(inbox.empty[slot ^ 1], threadIdx.x);
      mbarrier_wait(inbox.empty[slot], parity ^ 1);
      store_async(&inbox.from[slot][cluster_rank()], threadIdx.x, packed, inbox.full[slot]);
    }
    ++turn;
    mbarrier_wait(inbox.full[slot], parity);
    value = *reinterpret_cast<const Value*>(&inbox.from[slot][0]);
#pragma unroll
    for (int rank = 1; rank < RANKS; ++rank)
      value = Op::combine(value, *reinterpret_cast<const Value*>(&inbox.from[slot][rank]));
    return value;
  }

 private:
  ClusterInbox<RANKS>& inbox;
  unsigned turn = 0;
};
