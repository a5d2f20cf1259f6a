// y[c, r] = x[r, c]. x: (rows, columns), rows ldx elements apart; y: (columns, rows), rows ldy elements
// apart.
//
// stage 2, shared tile: a block reads a tile row by row into shared memory, and writes it column by column.
//
// what it gains: a warp reads neighbouring elements, and writes neighbouring elements.
//
// what limits it: the elements of a column of the tile lie in one bank of the shared memory, so a warp reads
// them one after the other. each load and store moves one element.
#include "tile/warp.cuh"

constexpr int TILE = WARP;
static_assert(TILE % BLOCK_Y == 0, "BLOCK_Y has to divide 32: a block walks over the tile in whole steps");

extern "C" __global__ void __launch_bounds__(TILE* BLOCK_Y)
    transpose_shared_tile(const IN* __restrict__ x, IN* __restrict__ y, int rows, int columns, long long ldx,
                          long long ldy, int tiles) {
  __shared__ IN tile[TILE][TILE];
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
