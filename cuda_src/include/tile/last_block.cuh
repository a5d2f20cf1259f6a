// several blocks share a result: the last of them to finish completes it. sm_70.
#pragma once
#include "ptx/flag.cuh"

// counts this block as one of `blocks`, and tells all its threads whether it is the last: what the others'
// threads stored before is there then. by all threads of the block; where others than thread 0 have stored, a
// barrier has to come before. the counter is zero before and after
__device__ __forceinline__ bool last_block(unsigned* counter, int blocks) {
  __shared__ bool last;
  if (threadIdx.x == 0) last = count_to_last(counter, blocks);
  __syncthreads();
  return last;
}
