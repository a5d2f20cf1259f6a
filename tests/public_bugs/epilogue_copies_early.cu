// A tile is copied out before all warps have stored their part
//
// Each thread stores its results to shared memory, and then copies consecutive elements out, which others have
// stored. Where the copy is not a bulk copy behind a barrier, it needs a barrier of its own.
//
// report: https://github.com/Dao-AILab/flash-attention/issues/1344
// kind: shared memory
// finding: race
// launch: --grid 1 --block 128 --arg x:f32[512]=arange --arg y:f32[512]
__global__ void epilogue(const float* x, float* y) {
  __shared__ float tile[4][128];
  int t = threadIdx.x;
  for (int r = 0; r < 4; ++r) tile[r][t] = 2 * x[128 * r + t];  // THERE
#ifdef FIXED
  __syncthreads();
#endif
  for (int c = t % 32; c < 128; c += 32) y[t / 32 * 128 + c] = tile[t / 32][c];  // HERE
}
