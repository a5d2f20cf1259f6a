// The tile of the next step is stored while others still read that of this step
//
// There is a barrier between the store and the reads of a step, and none between these reads and the store of the
// next step. A loop over one buffer needs both.
//
// report: https://github.com/ggml-org/llama.cpp/pull/24360
// kind: shared memory
// finding: race
// launch: --grid 1 --block 128 --arg b:f32[64]=arange --arg x:f32[512]=ones --arg y:f32[512] --arg i32=4
__global__ void scan(const float* b, const float* x, float* y, int steps) {
  __shared__ float row[16];
  int t = threadIdx.x;
  float state = 0;
  for (int step = 0; step < steps; ++step) {
    if (t < 16) row[t] = b[16 * step + t];  // HERE
    __syncthreads();
    for (int k = 0; k < 16; ++k) state += row[k] * x[128 * step + t];  // THERE
    y[128 * step + t] = state;
#ifdef FIXED
    __syncthreads();
#endif
  }
}
