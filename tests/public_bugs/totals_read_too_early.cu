// A total of one thread, read by all at once
//
// One thread stores a total, and all read it without a barrier between. A compiler may move the read behind the next
// barrier, and then a tool that looks at the machine code finds nothing.
//
// report: https://github.com/ORNL/HeCBench/issues/254
// kind: shared memory
// finding: race
// launch: --grid 1 --block 128 --arg x:i32[128]=ones --arg y:i32[128]
__global__ void offsets(const int* x, int* y) {
  __shared__ int total;
  int t = threadIdx.x;
  if (t == 0) total = x[0] + x[127];  // THERE
#ifdef FIXED
  __syncthreads();
#endif
  int all = total;  // HERE
  __syncthreads();
  y[t] = all + x[t];
}
