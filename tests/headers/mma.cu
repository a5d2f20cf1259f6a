// TYPE is given; one warp
#include "ptx/mma.cuh"

// the registers of four 8x8 matrices, and of these transposed. x: (4, 8, 8), plain, transposed: (4, 32)
extern "C" __global__ void matrices(const TYPE* x, u32* plain, u32* transposed) {
  __shared__ __align__(16) TYPE tile[32 * 8];
  const int lane = threadIdx.x;
  for (int i = lane; i < 32 * 8; i += 32) tile[i] = x[i];
  __syncwarp();
  u32 r[4], t[4];
  ldmatrix_x4(r, tile + lane * 8);
  ldmatrix_x4_trans(t, tile + lane * 8);
  for (int i = 0; i < 4; ++i) plain[i * 32 + lane] = r[i], transposed[i * 32 + lane] = t[i];
}

// four 8x8 matrices from registers that hold row l / 4 in lane l. x, stored: (4, 8, 8)
extern "C" __global__ void stored(const TYPE* x, TYPE* stored) {
  __shared__ __align__(16) TYPE tile[32 * 8];
  const int lane = threadIdx.x;
  u32 r[4];
  for (int i = 0; i < 4; ++i) r[i] = reinterpret_cast<const u32*>(x)[i * 32 + lane];
  stmatrix_x4(tile + lane * 8, r);
  __syncwarp();
  for (int i = lane; i < 32 * 8; i += 32) stored[i] = tile[i];
}

// d = c + a b^T. a: (16, 16), b: (8, 16), c, d: (16, 8)
extern "C" __global__ void product(const TYPE* a, const TYPE* b, const float* c, float* d) {
  const int lane = threadIdx.x, row = lane / 4, column = lane % 4 * 2;
  const auto pair = [](const TYPE* from) { return *reinterpret_cast<const u32*>(from); };
  const u32 held[4] = {pair(a + row * 16 + column), pair(a + (row + 8) * 16 + column),
                       pair(a + row * 16 + column + 8), pair(a + (row + 8) * 16 + column + 8)};
  float sum[4];
  for (int i = 0; i < 4; ++i) sum[i] = c[(row + i / 2 * 8) * 8 + column + i % 2];
  mma(sum, held, pair(b + row * 16 + column), pair(b + row * 16 + column + 8), TYPE());
  for (int i = 0; i < 4; ++i) d[(row + i / 2 * 8) * 8 + column + i % 2] = sum[i];
}
