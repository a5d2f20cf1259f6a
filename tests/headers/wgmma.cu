// TYPE, COLUMNS, TRANSPOSED and WHOLE are given
#include "tile/k_tile.cuh"

constexpr int ROWS = 64, DEPTH = 64;  // of a, of k
constexpr int SPAN = 64, CHUNK = 8;   // elements of a swizzled row, of a chunk

// element (row, column) of a tile whose rows are 128 bytes, with the 128-byte swizzle
__device__ TYPE* swizzled(TYPE* tile, int row, int column) {
  return tile + row * SPAN + (column / CHUNK ^ row % 8) * CHUNK + column % CHUNK;
}

// d = a b^T, with TRANSPOSED: a b; where `add` c is added. with WHOLE the k-tile is multiplied at once. a:
// (64, 64), b: (COLUMNS, 64) or (64, COLUMNS), c, d: (64, COLUMNS)
extern "C" __global__ void __launch_bounds__(WARPGROUP)
    product(const TYPE* a, const TYPE* b, const float* c, float* d, int add) {
  __shared__ alignas(ATOM_BYTES) TYPE a_tile[ROWS * DEPTH], b_tile[COLUMNS * DEPTH];
  const int t = threadIdx.x;
  for (int i = t; i < ROWS * DEPTH; i += WARPGROUP) *swizzled(a_tile, i / DEPTH, i % DEPTH) = a[i];
  for (int i = t; i < COLUMNS * DEPTH; i += WARPGROUP)
    if constexpr (TRANSPOSED)  // panels of 64 columns
      *swizzled(b_tile + i % COLUMNS / SPAN * SPAN * DEPTH, i / COLUMNS, i % COLUMNS % SPAN) = b[i];
    else
      *swizzled(b_tile, i / DEPTH, i % DEPTH) = b[i];
  async_fence();
  __syncthreads();

  float sum[COLUMNS / 2];
  const auto place = [&](int i) {
    const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
    return row * COLUMNS + column;
  };
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) sum[i] = c[place(i)];
  if constexpr (WHOLE) {
    KTile<TYPE>::multiply<!TRANSPOSED>(sum, a_tile, b_tile, add);
  } else {
    constexpr int LEADING = TRANSPOSED ? SPAN * DEPTH * sizeof(TYPE) : 0;
    const u64 from = swizzled_operand(shared_address(a_tile), 0, ATOM_BYTES);
    const u64 with = swizzled_operand(shared_address(b_tile), LEADING, ATOM_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEPTH; k += WGMMA_K) {
      wgmma<TRANSPOSED>(sum, operand_at(from, k * sizeof(TYPE)),
                        operand_at(with, k * (TRANSPOSED ? SPAN : 1) * sizeof(TYPE)), TYPE(), k > 0 || add);
      wgmma_commit();
    }
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) d[place(i)] = sum[i];
}

// y[t] = x[32 (t / 32)]: what the first lane of a warp has. x, y: (64)
extern "C" __global__ void first_lane(const u32* x, u32* y) { y[threadIdx.x] = uniform(x[threadIdx.x]); }

// y[t] = t, by a warpgroup that gives registers back, and by two that take them: 40 + 2 * 232 are three times
// the 168 that each had. y: (384)
extern "C" __global__ void __launch_bounds__(3 * WARPGROUP, 1) registers(u32* y) {
  if (threadIdx.x < WARPGROUP)
    keep_registers<40>();
  else
    take_registers<232>();
  y[threadIdx.x] = threadIdx.x;
}
