// The temporary storage of a block reduction is used again without a barrier
//
// CUB asks for a __syncthreads() before the storage of a BlockReduce is used once more. With a small vocabulary the
// loop runs once, and nothing is wrong. Here `largest_of_block` stands for the reduction.
//
// report: https://github.com/flashinfer-ai/flashinfer/pull/3624
// kind: shared memory
// finding: race
// launch: --grid 1 --block 128 --arg x:f32[512]=arange --arg y:f32[1] --arg i32=512
__device__ float largest_of_block(float* storage, float v) {
  for (int k = 16; k > 0; k /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, k));
  if (threadIdx.x % 32 == 0) storage[threadIdx.x / 32] = v;  // HERE
  __syncthreads();
  return fmaxf(fmaxf(storage[0], storage[1]), fmaxf(storage[2], storage[3]));  // THERE
}
__global__ void sample(const float* logits, float* best, int n) {
  __shared__ float storage[4];
  float largest = 0;
  for (int i = threadIdx.x; i < n; i += 128) {
    largest = fmaxf(largest, largest_of_block(storage, logits[i]));
#ifdef FIXED
    __syncthreads();
#endif
  }
  if (threadIdx.x == 0) *best = largest;
}
