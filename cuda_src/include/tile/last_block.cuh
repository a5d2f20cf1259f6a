// several blocks share a result: the last of them to finish completes it. sm_70.
#pragma once
#include "ptx/flag.cuh"

// counts this block as one of `blocks`, and tells all its threads whether it is the last: what the others'
// threads stored before is there then. the counter is zero before and after. by all threads of the block
__device__ __forceinline__ bool last_block(unsigned* counter, int blocks) {
  __shared__ bool last;
  __syncthreads();  // all threads have stored before one counts for them
  if (threadIdx.x == 0) last = count_to_last(counter, blocks);
  __syncthreads();
  return last;
}
