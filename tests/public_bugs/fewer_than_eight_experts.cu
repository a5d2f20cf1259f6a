// A reduction reads eight scores a warp, where only some were stored
//
// Each warp leaves its best scores in a row of eight. With a smaller top-k, the rest of the row has no value, and the
// last reduction takes it for scores.
//
// report: https://github.com/flashinfer-ai/flashinfer/pull/3224
// kind: values that were never written
// finding: uninitialised
// launch: --grid 1 --block 64 --arg x:f32[64]=arange --arg best:f32[1] --arg i32=4
__global__ void top(const float* x, float* best, int k) {
  __shared__ float scores[16];
  int t = threadIdx.x, lane = t % 32;
#ifdef FIXED
  if (lane < 8) scores[t / 32 * 8 + lane] = lane < k ? x[t] : -1e9f;
#else
  if (lane < k) scores[t / 32 * 8 + lane] = x[t];
#endif
  __syncthreads();
  float largest = -1e9f;
  for (int i = 0; i < 16; ++i) largest = scores[i] > largest ? scores[i] : largest;  // THERE
  if (t == 0) *best = largest;  // HERE
}
