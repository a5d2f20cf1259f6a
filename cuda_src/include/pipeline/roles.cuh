// warp-specialised roles: the first warpgroup of a block produces, the others consume, and registers move from
// it to them. sm_90a.
#pragma once
#include "ptx/wgmma.cuh"

// CONSUMERS warpgroups beside that of the producers. compile the kernel with __launch_bounds__(THREADS,
// BLOCKS_PER_SM), without which registers cannot move, and launch it with SHARED_BYTES of shared memory
template <int CONSUMERS_, int PRODUCER_REGISTERS_ = 40, int BLOCKS_PER_SM_ = 1>
struct Roles {
  static constexpr int CONSUMERS = CONSUMERS_, BLOCKS_PER_SM = BLOCKS_PER_SM_, LANES = 32;
  static constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
  static constexpr int WARPS = WARPGROUP / LANES;  // of a warpgroup
  static constexpr int CONSUMER_THREADS = CONSUMERS * WARPGROUP, CONSUMER_WARPS = CONSUMERS * WARPS;
  static_assert(CONSUMERS >= 2 && CONSUMERS <= 4,
                "one consumer warpgroup cannot use the registers, five have too few: take 2 to 4");
  // all that a block may have. of what a multiprocessor has each block takes 1 KB more
  static constexpr int SHARED_BYTES = (228 / BLOCKS_PER_SM - 1) * 1024;

  // a thread starts with an equal share of the registers. producers keep few, consumers take the rest
  static constexpr int UNIT = 8, REGISTER_FILE = 64 * 1024;
  static constexpr int SHARE = REGISTER_FILE / (BLOCKS_PER_SM * THREADS) / UNIT * UNIT;
  static constexpr int PRODUCER_REGISTERS = PRODUCER_REGISTERS_;
  static_assert(PRODUCER_REGISTERS <= SHARE, "a thread starts with too few registers: lower BLOCKS_PER_SM");
  static constexpr int LEFT = (SHARE * (1 + CONSUMERS) - PRODUCER_REGISTERS) / CONSUMERS / UNIT * UNIT;
  static constexpr int CONSUMER_REGISTERS = LEFT < 240 ? LEFT : 240;

  // which role a thread has
  static __device__ __forceinline__ bool producing() { return threadIdx.x < WARPGROUP; }

  // by every thread of the role, first of all
  static __device__ __forceinline__ void produce() { keep_registers<PRODUCER_REGISTERS>(); }
  static __device__ __forceinline__ void consume() { take_registers<CONSUMER_REGISTERS>(); }

  // of a consumer: its warpgroup, its warp within that and within all of them
  static __device__ __forceinline__ int consumer() { return threadIdx.x / WARPGROUP - 1; }
  static __device__ __forceinline__ int warp() { return threadIdx.x / LANES % WARPS; }
  static __device__ __forceinline__ int warp_of_all() { return threadIdx.x / LANES - WARPS; }
};
