// A stage of a systolic pipeline reads what its neighbour overwrites in the same step
//
// Each thread takes the last result of the thread before it and leaves its own. Both happen between the same two
// barriers, so the neighbour's result may be that of this step already.
//
// report: https://github.com/ORNL/HeCBench/issues/256
// kind: shared memory
// finding: race
// launch: --grid 1 --block 64 --arg x:f32[96]=arange --arg y:f32[96] --arg i32=96
__global__ void filter(const float* x, float* y, int n) {
  __shared__ float out[64];
  int t = threadIdx.x;
  out[t] = 0;
  __syncthreads();
  for (int step = 0; step < n; ++step) {
    float in = t ? out[t - 1] : x[step];  // HERE
#ifdef FIXED
    __syncthreads();
#endif
    out[t] = 0.5f * in + 0.25f * out[t];  // THERE
    __syncthreads();
    if (t == 63) y[step] = out[t];
  }
}
