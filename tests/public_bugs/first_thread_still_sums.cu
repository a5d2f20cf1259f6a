// One thread adds up what all have stored, and the others begin the next round
//
// The barrier before the sum is there. The one behind it is missing: nothing keeps the others from storing their next
// products while the first thread reads these.
//
// report: https://github.com/NVIDIA/cuml/pull/6578
// kind: shared memory
// finding: race
// launch: --grid 1 --block 128 --arg a:f32[512]=arange --arg x:f32[128]=ones --arg y:f32[4] --arg i32=4
__global__ void block_gemv(const float* a, const float* x, float* y, int rows) {
  __shared__ float product[128];
  int t = threadIdx.x;
  for (int row = 0; row < rows; ++row) {
    product[t] = a[128 * row + t] * x[t];  // HERE
    __syncthreads();
    if (t == 0) {
      float sum = 0;
      for (int i = 0; i < 128; ++i) sum += product[i];  // THERE
      y[row] = sum;
    }
#ifdef FIXED
    __syncthreads();
#endif
  }
}
