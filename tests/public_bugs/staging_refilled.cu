// The next tile goes into a buffer that a bulk store still reads
//
// A persistent kernel stages each result in one buffer. The thread that stores has to wait until the copy has read
// it, and the others have to meet that thread before they fill the buffer again.
//
// report: https://github.com/tile-ai/TileOPs/pull/1550
// kind: asynchronous copies
// finding: race
// launch: --grid 1 --block 128 --include cuda_src/include --arg x:f32[512]=arange --arg y:f32[512]
#include "ptx/bulk.cuh"
#include "ptx/tma.cuh"
__global__ void persistent(const float* x, float* y) {
  __shared__ alignas(128) float tile[128];
  int t = threadIdx.x;
  for (int wave = 0; wave < 4; ++wave) {
#ifdef FIXED
    if (t == 0) tma_store_wait_read<0>();
    __syncthreads();
#endif
    tile[t] = 2 * x[128 * wave + t];  // HERE
    async_fence();
    __syncthreads();
    if (t == 0) {
      bulk_store(y + 128 * wave, tile, 512);  // THERE
      tma_store_commit();
    }
  }
  if (t == 0) tma_store_wait<0>();
}
