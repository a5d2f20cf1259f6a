// clusterlaunchcontrol: a block takes over the work of one of its grid that has not started, which then never does.
// sm_100.
#pragma once
#include "ptx/mbarrier.cuh"

// the answer to a try, in shared memory
struct alignas(16) LaunchAnswer {
  u64 words[2];

  // clusterlaunchcontrol.query_cancel: blockIdx.x of the block that was canceled, the first of its cluster; -1 where none
  // was. by threads that have waited for the answer's mbarrier
  __device__ __forceinline__ int first_block() const {
    int block;
    asm volatile(
        "{\n"
        ".reg .pred canceled;\n"
        ".reg .b128 answer;\n"
        ".reg .b32 x;\n"
        "ld.shared.b128 answer, [%1];\n"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 canceled, answer;\n"
        "mov.b32 x, -1;\n"
        "@canceled clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 x, answer;\n"
        "mov.b32 %0, x;\n"
        "}"
        : "=r"(block)
        : "r"(shared_address(words))
        : "memory");
    return block;
  }
};

// clusterlaunchcontrol.try_cancel: asks for a block that has not started. the answer is written to shared memory, and its
// bytes reported to `full`. by one thread, not after an answer that none was canceled
__device__ __forceinline__ void try_cancel(LaunchAnswer& answer, Barrier& full) {
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(
                   shared_address(&answer)),
               "r"(shared_address(&full))
               : "memory");
}
