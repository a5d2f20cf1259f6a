// Sums are stored over operands that another warp still multiplies
//
// The partial sums reuse the memory of the operands. There is a barrier between the sums and the reduction that reads
// them, and none between the products and the sums.
//
// report: https://github.com/sgl-project/sglang/pull/37287
// kind: shared memory
// finding: race
// launch: --grid 1 --block 128 --arg a:f32[128]=ones --arg c:f32[32]
__global__ void split_k(const float* a, float* c) {
  __shared__ float memory[128];
  float *operand = memory, *sums = memory;
  int t = threadIdx.x;
  operand[t] = a[t];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 32; ++k) sum += operand[4 * k + t / 32] * operand[(k + t) % 128];  // THERE
#ifdef FIXED
  __syncthreads();
#endif
  sums[t] = sum;  // HERE
  __syncthreads();
  if (t < 32) c[t] = sums[t] + sums[t + 32] + sums[t + 64] + sums[t + 96];
}
