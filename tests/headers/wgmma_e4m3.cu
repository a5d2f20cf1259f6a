// COLUMNS is given
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

constexpr int ROWS = 64, DEPTH = 128, STEP = 32;  // of a, of k, of k in one wgmma
constexpr int CHUNK = 16, ATOM_BYTES = 1024;      // bytes of a chunk of a swizzled row; 8 rows

// element (row, k) of a tile whose rows are 128 bytes, with the 128-byte swizzle
__device__ unsigned char* swizzled(unsigned char* tile, int row, int k) {
  return tile + row * DEPTH + (k / CHUNK ^ row % 8) * CHUNK + k % CHUNK;
}

// d = a b^T: the first step of k over what the registers hold, the others added. a: (64, 128), b: (COLUMNS,
// 128), d: (64, COLUMNS)
extern "C" __global__ void __launch_bounds__(WARPGROUP)
    product(const unsigned char* a, const unsigned char* b, float* d) {
  __shared__ alignas(ATOM_BYTES) unsigned char a_tile[ROWS * DEPTH], b_tile[COLUMNS * DEPTH];
  const int t = threadIdx.x;
  for (int i = t; i < ROWS * DEPTH; i += WARPGROUP) *swizzled(a_tile, i / DEPTH, i % DEPTH) = a[i];
  for (int i = t; i < COLUMNS * DEPTH; i += WARPGROUP) *swizzled(b_tile, i / DEPTH, i % DEPTH) = b[i];
  async_fence();
  __syncthreads();

  float sum[COLUMNS / 2];
#pragma unroll
  for (float& x : sum) x = 1e30f;
  const u64 from = swizzled_operand(shared_address(a_tile), 0, ATOM_BYTES);
  const u64 with = swizzled_operand(shared_address(b_tile), 0, ATOM_BYTES);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < DEPTH; k += STEP) wgmma_e4m3(sum, operand_at(from, k), operand_at(with, k), k > 0);
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) {
    const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
    d[row * COLUMNS + column] = sum[i];
  }
}
