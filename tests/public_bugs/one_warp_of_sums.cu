// Threads behind the first warp write sums to an array of one warp
//
// Only one value a warp is kept, so the array has 32 elements. The condition that lets the other warps go is wrong.
//
// report: https://github.com/ggml-org/llama.cpp/pull/10740
// kind: indices and addresses
// finding: out_of_bounds
// launch: --grid 1 --block 64 --arg x:f32[64]=ones --arg y:f32[1]
__global__ void mul_mat_vec(const float* x, float* y) {
  __shared__ float sums[32];
  int t = threadIdx.x;
  float sum = x[t];
  for (int k = 16; k > 0; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
#ifdef FIXED
  if (t < 32)
#endif
    sums[t] = 0;  // HERE
  __syncthreads();
  if (t % 32 == 0) sums[t / 32] = sum;
  __syncthreads();
  if (t == 0) *y = sums[0] + sums[1];
}
