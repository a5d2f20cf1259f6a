// C = A B' in fp32. A: (64, 64 steps), B: (128, 64 steps), bf16, row-major. one warpgroup; its threads store
// the slices of A and B that wgmma reads, in the layout of the 128-byte swizzle.
#include "ptx/tma.cuh"
#include "tile/vector.cuh"
#include "ptx/wgmma.cuh"

using bf16 = __nv_bfloat16;
constexpr int M = 64, N = 128, DEPTH = 64, WGMMA_K = 16;
constexpr int CHUNK = VECTOR_BYTES / sizeof(bf16), ROW_CHUNKS = DEPTH / CHUNK, ATOM_BYTES = 8 * 128;

template <int ROWS>
__device__ void copy_slice(bf16* to, const bf16* from, int ld) {
  for (int i = threadIdx.x; i < ROWS * ROW_CHUNKS; i += WARPGROUP) {
    const int row = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
    store_vector(to + row * DEPTH + (chunk ^ row % 8) * CHUNK,
                 load_vector<CHUNK>(from + row * ld + chunk * CHUNK));
  }
}

extern "C" __global__ void __launch_bounds__(WARPGROUP)
    stored_operands(const bf16* A, const bf16* B, float* C, int steps) {
  __shared__ alignas(1024) bf16 a[M * DEPTH], b[N * DEPTH];
  const int t = threadIdx.x, ld = steps * DEPTH;
  float sum[N / 2];
  for (float& s : sum) s = 0.f;
  for (int step = 0; step < steps; ++step) {
    copy_slice<M>(a, A + step * DEPTH, ld);
    copy_slice<N>(b, B + step * DEPTH, ld);
    async_fence();
    __syncthreads();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEPTH; k += WGMMA_K)
      wgmma<0>(sum, swizzled_operand(shared_address(a + k), 0, ATOM_BYTES),
               swizzled_operand(shared_address(b + k), 0, ATOM_BYTES), bf16());
    wgmma_commit();
    wgmma_wait<0>();
    __syncthreads();  // everyone is done with the slices
  }
  const int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) C[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + column + i % 2] = sum[i];
}
