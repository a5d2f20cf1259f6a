// A lane calls a shuffle whose mask does not name it
//
// The mask names the lanes that take part. The lane that calls has to be one of them.
//
// report: https://github.com/brucefan1983/CUDA-Programming/pull/51
// kind: warps and masks
// finding: not_member
// launch: --grid 1 --block 32 --arg y:i32[32]
__global__ void shuffles(int* y) {
  int lane = threadIdx.x, v = lane;
#ifdef FIXED
  if (lane > 0)
#endif
    v = __shfl_sync(0xfffffffe, lane, 2);  // HERE
  y[lane] = v;
}
