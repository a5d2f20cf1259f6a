// two consumer warpgroups in an order, by named barriers: ping-pong. while one computes the other does
// something else. sm_90a.
#pragma once
#include "ptx/named_barrier.cuh"
#include "ptx/wgmma.cuh"

// NAME and NAME + 1 are the named barriers
template <int NAME = 1>
struct PingPong {
  // by consumer 1, once: consumer 0 goes first
  static __device__ __forceinline__ void start(int consumer) {
    if (consumer == 1) named_arrive<2 * WARPGROUP>(NAME);
  }
  // until it is this consumer's turn
  static __device__ __forceinline__ void wait(int consumer) { named_sync<2 * WARPGROUP>(NAME + consumer); }
  // the other may go on. everyone passes as often as the other waits
  static __device__ __forceinline__ void pass(int consumer) {
    named_arrive<2 * WARPGROUP>(NAME + 1 - consumer);
  }
};
