// Registers of an operand are filled again while wgmma still reads them
//
// A product with A in registers reads them until it is complete. The next fragment goes into the same registers
// before the wait.
//
// report: https://github.com/deepseek-ai/DeepGEMM/pull/448
// kind: tensor cores
// finding: accumulator_in_flight
// launch: --grid 1 --block 128 --include cuda_src/include --arg a:u32[1024]=ones --arg y:f32[128]
#include "ptx/wgmma.cuh"
__device__ u64 operand(const void* p) { return u64(shared_address(p) >> 4) | 8ull << 16 | 16ull << 32; }
__global__ void products(const unsigned* a, float* y) {
  __shared__ alignas(128) unsigned b[64];
  int t = threadIdx.x;
  if (t < 64) b[t] = a[t];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[4] = {};
  unsigned r[4];
#pragma unroll 1
  for (int k = 0; k < 2; ++k) {
    for (int i = 0; i < 4; ++i) asm volatile("ld.global.u32 %0, [%1];" : "=r"(r[i]) : "l"(a + 512 * k + 4 * t + i));  // HERE
    wgmma_fence();
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"  // THERE
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(operand(b)));
    wgmma_commit();
#ifdef FIXED
    wgmma_wait<0>();
#endif
  }
  wgmma_wait<0>();
  y[t] = d[0] + d[1] + d[2] + d[3];
}
