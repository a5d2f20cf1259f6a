// C[m, n] = sum_k a_scale[m, k / BLOCK] A[m, k] b_scale[n, k / BLOCK] B[n, k]. A: (M, K), B: (N, K), of e4m3, or of
// e2m1 that are packed two a byte; C: (M, N); rows are lda, ldb, ldc elements apart. scales lie in tiles of 128 rows
// and 4 blocks: see scale_of. sm_80.
//
// stage 2, decoded halves: a block computes a tile of 64 x 64. its threads decode a k-tile of both matrices into shared
// memory, to fp16, which holds every number of 8 and of 4 bits. tensor cores multiply the fp16, one block of scales at a
// time, and fp32 units add up the blocks, each times its two scales.
//
// what it gains: a number is decoded once for 64 elements of C, and tensor cores multiply.
//
// what limits it: loads, decoding and products take turns, and all of them are of fp16, of four times as many bytes as
// e2m1 has.

#include "decode.cuh"
#include "ptx/mma.cuh"

constexpr int TILE = 64, WARPS = 4, THREADS = 32 * WARPS, WARP_TILE = 32;
constexpr int ROW = TILE + 8;  // eight rows begin in different banks
constexpr int BLOCKS = TILE / BLOCK;

struct Tile {
  __half numbers[TILE][ROW];
  float scales[TILE][BLOCKS];

  // by all threads: rows from `first` on, columns from k on. beyond the matrix all is zero
  __device__ __forceinline__ void load(const IN* matrix, const SCALE* of, int first, int rows, int k, int columns,
                                       int leading) {
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
      const int row = first + i / TILE, column = k + i % TILE;
      const bool inside = row < rows && column < columns;
      const IN* from = matrix + static_cast<long long>(row) * leading / PACKING;
      numbers[i / TILE][i % TILE] = __float2half_rn(inside ? element(from, column) : 0.f);
    }
    const int blocks = (columns + BLOCK - 1) / BLOCK;
    for (int i = threadIdx.x; i < TILE * BLOCKS; i += THREADS) {
      const int row = first + i / BLOCKS, block = k / BLOCK + i % BLOCKS;
      scales[i / BLOCKS][i % BLOCKS] = row < rows && block < blocks ? scale_of(of, row, block, blocks) : 0.f;
    }
  }

  __device__ __forceinline__ u32 pair(int row, int k) const {
    return *reinterpret_cast<const u32*>(&numbers[row][k]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_block_scaled_decoded_halves(const IN* A, const IN* B, const SCALE* a_scale, const SCALE* b_scale, OUT* C,
                                     int M, int N, int K, int lda, int ldb, int ldc) {
  __shared__ Tile a, b;
  const int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE;
  const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  const int wm = warp / 2 * WARP_TILE, wn = warp % 2 * WARP_TILE;

  float sums[2][4][4] = {};  // 2 x 4 pieces of 16 x 8
  for (int k = 0; k < K; k += TILE) {
    __syncthreads();
    a.load(A, a_scale, m0, M, k, K, lda);
    b.load(B, b_scale, n0, N, k, K, ldb);
    __syncthreads();
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
      float products[2][4][4] = {};
#pragma unroll
      for (int i = block * BLOCK; i < (block + 1) * BLOCK; i += 16)
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          const int upper = wm + y * 16 + row, at = i + column;
          const u32 of_a[4] = {a.pair(upper, at), a.pair(upper + 8, at), a.pair(upper, at + 8),
                               a.pair(upper + 8, at + 8)};
#pragma unroll
          for (int x = 0; x < 4; ++x)
            mma(products[y][x], of_a, b.pair(wn + x * 8 + row, at), b.pair(wn + x * 8 + row, at + 8), __half{});
        }
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int y = i / 16, x = i / 4 % 4, e = i % 4;
        sums[y][x][e] += products[y][x][e] * (a.scales[wm + y * 16 + row + e / 2 * 8][block] *
                                              b.scales[wn + x * 8 + column + e % 2][block]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int y = i / 16, x = i / 4 % 4, e = i % 4;
    const int m = m0 + wm + y * 16 + row + e / 2 * 8, n = n0 + wn + x * 8 + column + e % 2;
    if (m < M && n < N) C[static_cast<long long>(m) * ldc + n] = from_float<OUT>(sums[y][x][e]);
  }
}
