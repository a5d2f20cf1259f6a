// Warps decide alone whether to skip, by a mask that the next round overwrites
//
// All warps read the same mask and come to the same decision, so no barrier seems to be needed. But the first warp
// that goes on stores the next mask, and a slower warp then decides by a mixture of both.
//
// report: https://github.com/ggml-org/llama.cpp/pull/13742
// kind: shared memory
// finding: race
// launch: --grid 1 --block 128 --arg mask:f32[512]=zeros --arg v:f32[512]=ones --arg out:f32[128] --arg i32=4
__global__ void attend(const float* mask, const float* v, float* out, int tiles) {
  __shared__ float weight[128];
  int t = threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    weight[t] = mask[128 * tile + t];  // HERE
    __syncthreads();
    bool skip = true;
    for (int i = t % 32; i < 128; i += 32) skip &= weight[i] == 0;  // THERE
    skip = __all_sync(~0u, skip);
#ifdef FIXED
    __syncthreads();
#endif
    if (skip) continue;
    sum += weight[t] * v[128 * tile + t];
    __syncthreads();
  }
  out[t] = sum;
}
