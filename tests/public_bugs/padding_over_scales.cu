// Lanes store padding over the scales that lie behind their region
//
// All 32 lanes store, also where a row has 16 words. The other 16 lanes then store zeros over the scales, which lie
// there, and nothing orders the two stores.
//
// report: https://github.com/ggml-org/llama.cpp/pull/28358
// kind: shared memory
// finding: race
// launch: --grid 1 --block 32 --arg x:i32[16]=ones --arg y:i32[18]
__global__ void quantize(const int* x, int* y) {
  __shared__ int row[32];
  int* scale = row + 16;
  int lane = threadIdx.x, v = lane < 16 ? x[lane] : 0;
  if (lane % 8 == 0 && lane < 16) scale[lane / 8] = v + 1;  // THERE
#ifdef FIXED
  if (lane < 16)
#endif
    row[lane] = v;  // HERE
  __syncwarp();
  if (lane < 18) y[lane] = row[lane];
}
