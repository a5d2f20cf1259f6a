// Each step of a reduction lets more than half of the threads add
//
// The condition asks only that there is an element to add. So a thread of the upper half changes what a thread of the
// lower half reads in the same step.
//
// report: https://github.com/microsoft/onnxruntime/pull/27419
// kind: shared memory
// finding: race
// launch: --grid 1 --block 128 --arg x:f32[128]=ones --arg y:f32[1]
__global__ void total(const float* x, float* y) {
  __shared__ float sums[128];
  int t = threadIdx.x;
  sums[t] = x[t];
  __syncthreads();
  for (int stride = 64; stride > 0; stride /= 2) {
#ifdef FIXED
    if (t < stride)
#else
    if (t + stride < 128)
#endif
      sums[t] += sums[t + stride];  // HERE
    __syncthreads();
  }
  if (t == 0) *y = sums[0];
}
