// A stage is given back while wgmma still reads it
//
// wgmma is asynchronous. Without a commit and a wait before the arrival, the producer copies the next tile over the
// operands of a product that is not complete.
//
// report: https://github.com/NVIDIA/Fuser/issues/3561
// kind: tensor cores
// finding: in_flight
// launch: --grid 1 --block 160 --include cuda_src/include --arg x:u16[1024]=ones --arg y:f32[128]
#include "ptx/bulk.cuh"
#include "ptx/wgmma.cuh"
__device__ u64 operand(const void* p) { return u64(shared_address(p) >> 4) | 8ull << 16 | 16ull << 32; }
__global__ void products(const unsigned short* x, float* y) {
  __shared__ alignas(128) unsigned short tile[1024];
  __shared__ Barrier full, empty;
  int t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, 128);
    mbarrier_init_fence();
  }
  __syncthreads();
  if (t >= 128) {
    for (int k = 0; k < 3 && t == 128; ++k) {
      mbarrier_wait(empty, k % 2 ^ 1);
      mbarrier_arrive_expect(full, 2048);
      bulk_load(tile, x, 2048, full);  // HERE
    }
    return;
  }
  float d[4] = {};
  for (int k = 0; k < 3; ++k) {
    mbarrier_wait(full, k % 2);
    wgmma_fence();
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"  // THERE
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(operand(tile)), "l"(operand(tile)));
    wgmma_commit();
#ifdef FIXED
    wgmma_wait<0>();
#endif
    mbarrier_arrive(empty);
  }
  wgmma_wait<0>();
  y[t] = d[0] + d[1] + d[2] + d[3];
}
