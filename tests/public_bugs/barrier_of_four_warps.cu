// A __syncthreads() that only four of twelve warps reach
//
// Warps have roles, and the barrier stands in the branch of one role. It has worked on some devices, and hung on
// others. A named barrier of the role's threads is meant.
//
// report: https://github.com/flashinfer-ai/flashinfer/pull/2996
// kind: barriers
// finding: barrier_diverged
// launch: --grid 1 --block 384 --arg x:f32[384]=ones --arg y:f32[384]
__global__ void roles(const float* x, float* y) {
  __shared__ float part[128];
  int t = threadIdx.x;
  if (t < 128) {  // THERE
    part[t] = x[t];
#ifdef FIXED
    asm volatile("bar.sync 1, 128;" ::: "memory");
#else
    __syncthreads();  // HERE
#endif
    y[t] = part[127 - t];
  } else {
    y[t] = x[t];
  }
}
