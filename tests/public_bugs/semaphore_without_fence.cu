// A semaphore is released before the block's stores are visible
//
// Blocks add to a tile in turns. The barrier brings the threads together, and one of them releases the semaphore, but
// no fence makes what all of them have stored visible to the next block.
//
// report: https://github.com/NVIDIA/Fuser/pull/2391
// kind: between blocks
// finding: race
// launch: --grid 3 --block 64 --arg x:f32[192]=ones --arg sum:f32[64]=zeros --arg turn:i32[1]=zeros
__global__ void serial_split_k(const float* x, float* sum, int* turn) {
  int t = threadIdx.x;
  if (t == 0)
    while (*(volatile int*)turn != blockIdx.x);
  __threadfence();
  __syncthreads();
  sum[t] += x[64 * blockIdx.x + t];  // HERE
#ifdef FIXED
  __threadfence();
#endif
  __syncthreads();
  if (t == 0) *(volatile int*)turn = blockIdx.x + 1;
}
