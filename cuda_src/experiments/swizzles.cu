// C[i, j] = sum_k A[i, k] B[j, k]. A: (M, K), B: (N, K), both bf16, C: (M, N), float; M, N, K multiples of
// TILE.
//
// swept: SWIZZLE, the bytes within which the 16-byte chunks of a row of a tile are permuted, by an exclusive
// or with the number of the row: 128 (the whole row), 64, 32, or 16, which leaves them where they are. an
// ldmatrix reads the same chunk of 8 rows, 128 bytes apart: without a swizzle all 8 lie in the same banks.

#include "ptx/cp_async.cuh"
#include "ptx/mma.cuh"

using Element = __nv_bfloat16;

constexpr int LANES = 32, THREADS = 128, TILE = 64, WARP_TILE = 32;  // 2 x 2 warps
constexpr int CHUNK_BYTES = 16, CHUNK = CHUNK_BYTES / sizeof(Element), ROW_CHUNKS = TILE / CHUNK;
constexpr int PERMUTED = SWIZZLE / CHUNK_BYTES;
static_assert(PERMUTED >= 1 && PERMUTED <= ROW_CHUNKS && (PERMUTED & (PERMUTED - 1)) == 0,
              "SWIZZLE has to be 16, 32, 64 or 128");

struct alignas(TILE * sizeof(Element)) Tile {
  Element data[TILE * TILE];

  __device__ Element* chunk(int row, int chunk) {
    return data + row * TILE + (chunk ^ row % PERMUTED) * CHUNK;
  }
  __device__ void load(const Element* from, int ld) {
    for (int c = threadIdx.x; c < TILE * ROW_CHUNKS; c += THREADS)
      cp_async_16(chunk(c / ROW_CHUNKS, c % ROW_CHUNKS),
                  from + static_cast<long long>(c / ROW_CHUNKS) * ld + c % ROW_CHUNKS * CHUNK);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    swizzles(const Element* __restrict__ A, const Element* __restrict__ B, float* __restrict__ C, int N,
             int K) {
  __shared__ Tile a_tile, b_tile;
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
  const int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE;
  const int warp_m = warp / 2 * WARP_TILE, warp_n = warp % 2 * WARP_TILE;
  float sum[2][4][4] = {};
  for (int k0 = 0; k0 < K; k0 += TILE) {
    a_tile.load(A + static_cast<long long>(m0) * K + k0, K);
    b_tile.load(B + static_cast<long long>(n0) * K + k0, K);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int c = 0; c < ROW_CHUNKS; c += 2) {
      u32 a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ldmatrix_x4(a[i], a_tile.chunk(warp_m + i * 16 + lane % 16, c + lane / 16));
        ldmatrix_x4(b[i], b_tile.chunk(warp_n + i * 16 + lane / 16 * 8 + lane % 8, c + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], Element());
    }
    __syncthreads();
  }
  float* corner = C + static_cast<long long>(m0 + warp_m + lane / 4) * N + n0 + warp_n + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i)  // 8 rows at a time
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float* to = corner + static_cast<long long>(i) * 8 * N + j * 8;
      to[0] = sum[i / 2][j][i % 2 * 2];
      to[1] = sum[i / 2][j][i % 2 * 2 + 1];
    }
}
