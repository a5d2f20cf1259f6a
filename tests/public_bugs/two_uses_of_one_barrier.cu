// Two pairs of warps meet at a named barrier of one number
//
// Each pair calls bar.sync with 64 threads. With the same number, a warp of one pair may complete the barrier of the
// other, and its partner waits for ever, or goes on too early.
//
// report: https://github.com/flashinfer-ai/flashinfer/pull/4533
// kind: barriers
// finding: race
// launch: --grid 1 --block 128 --arg x:f32[128]=ones --arg y:f32[128]
__global__ void correction(const float* x, float* y) {
  __shared__ float row[128];
  int t = threadIdx.x, pair = t / 64;
  row[t] = x[t];  // THERE
#ifdef FIXED
  asm volatile("bar.sync %0, 64;" ::"r"(1 + pair) : "memory");
#else
  asm volatile("bar.sync 1, 64;" ::: "memory");
#endif
  y[t] = row[t ^ 32];  // HERE
}
