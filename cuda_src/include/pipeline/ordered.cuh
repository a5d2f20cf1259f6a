// consumer warpgroups in an order, by named barriers: ping-pong. while one computes the others do something else.
// sm_90a.
#pragma once
#include "ptx/named_barrier.cuh"
#include "ptx/wgmma.cuh"

// NAME to NAME + CONSUMERS - 1 are the named barriers
template <int NAME = 1, int CONSUMERS = 2>
struct PingPong {
  // by the last consumer, once: consumer 0 goes first
  static __device__ __forceinline__ void start(int consumer) {
    if (consumer == CONSUMERS - 1) named_arrive<2 * WARPGROUP>(NAME);
  }
  // until it is this consumer's turn
  static __device__ __forceinline__ void wait(int consumer) { named_sync<2 * WARPGROUP>(NAME + consumer); }
  // the next one may go on. everyone passes as often as the next one waits
  static __device__ __forceinline__ void pass(int consumer) {
    named_arrive<2 * WARPGROUP>(consumer == CONSUMERS - 1 ? NAME : NAME + 1 + consumer);
  }
  // at the end, where all have waited and passed as often: takes what the last one has passed
  static __device__ __forceinline__ void finish(int consumer) {
    if (consumer == 0) wait(0);
  }
};
