// A barrier that warps come to in different rounds
//
// The barrier stands in a loop whose rounds differ between warps. Warps then meet at barriers of different rounds,
// which protect nothing.
//
// report: https://github.com/ggml-org/llama.cpp/pull/13469
// kind: barriers
// finding: barrier_diverged
// launch: --grid 1 --block 128 --arg x:f32[512]=ones --arg y:f32[128]
__global__ void attend(const float* x, float* y) {
  __shared__ float tile[128];
  int t = threadIdx.x, rounds = t < 64 ? 4 : 2;
  float sum = 0;
#ifdef FIXED
  for (int round = 0; round < 4; ++round) {
#else
  for (int round = 0; round < rounds; ++round) {  // THERE
#endif
    if (round < rounds) tile[t] = x[128 * round + t];
    __syncthreads();  // HERE
    if (round < rounds) sum += tile[t ^ 32];
    __syncthreads();
  }
  y[t] = sum;
}
