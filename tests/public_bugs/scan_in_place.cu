// A scan in place: some threads add before others have read
//
// Reads and writes of a step of the scan have no barrier between them. Up to 32 threads it seems to work, because a
// warp executes the read and then the write.
//
// report: https://github.com/ORNL/HeCBench/issues/255
// kind: shared memory
// finding: race
// launch: --grid 1 --block 64 --arg x:i32[64]=ones --arg y:i32[64]
__global__ void running_maximum(const int* x, int* y) {
  __shared__ int values[64];
  int t = threadIdx.x;
  values[t] = x[t];
  __syncthreads();
  for (int offset = 1; offset < 64; offset *= 2) {
    int before = t >= offset ? values[t - offset] : 0;  // HERE
#ifdef FIXED
    __syncthreads();
#endif
    values[t] = values[t] + before;  // THERE
    __syncthreads();
  }
  y[t] = values[t];
}
