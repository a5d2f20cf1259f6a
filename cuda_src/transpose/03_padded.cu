// y[c, r] = x[r, c]. x: (rows, columns), rows ldx elements apart; y: (columns, rows), rows ldy elements
// apart.
//
// stage 3, padded: in shared memory the rows of the tile are one bank further apart than they are long.
//
// what it gains: the elements of a column lie in different banks, and a warp reads them at once.
//
// what limits it: each load and store moves one element, so few bytes are in flight.
#include "tile/warp.cuh"

constexpr int TILE = WARP, PAD = 4 / sizeof(IN);
static_assert(TILE % BLOCK_Y == 0, "BLOCK_Y has to divide 32: a block walks over the tile in whole steps");

extern "C" __global__ void __launch_bounds__(TILE* BLOCK_Y)
    transpose_padded(const IN* __restrict__ x, IN* __restrict__ y, int rows, int columns, long long ldx,
                     long long ldy, int tiles) {
  __shared__ IN tile[TILE][TILE + PAD];
  const int c0 = blockIdx.x % tiles * TILE, r0 = blockIdx.x / tiles * TILE;
#pragma unroll
  for (int i = threadIdx.y; i < TILE; i += BLOCK_Y)
    if (r0 + i < rows && c0 + threadIdx.x < columns)
      tile[i][threadIdx.x] = x[(r0 + i) * ldx + c0 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.y; i < TILE; i += BLOCK_Y)
    if (c0 + i < columns && r0 + threadIdx.x < rows)
      y[(c0 + i) * ldy + r0 + threadIdx.x] = tile[threadIdx.x][i];
}
