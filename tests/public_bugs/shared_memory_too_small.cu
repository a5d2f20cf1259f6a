// All threads clear a buffer in shared memory that has fewer elements
//
// The dynamic shared memory holds 32 values for each block of A. With fewer than four blocks of A, 256 threads write
// behind its end.
//
// report: https://github.com/huggingface/transformers/issues/35507
// kind: indices and addresses
// finding: out_of_bounds
// launch: --grid 1 --block 256 --shared 256 --arg x:f32[64]=arange --arg y:f32[64] --arg i32=64
__global__ void index_max(const float* x, float* y, int n) {
  extern __shared__ float largest[];
  int t = threadIdx.x;
#ifdef FIXED
  if (t < n)
#endif
    largest[t] = -1e9f;  // HERE
  __syncthreads();
  if (t < n) largest[t] = fmaxf(largest[t], x[t]);
  __syncthreads();
  if (t < n) y[t] = largest[n - 1 - t];
}
