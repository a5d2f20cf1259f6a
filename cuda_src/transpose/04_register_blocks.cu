// y[c, r] = x[r, c]. x: (rows, columns), rows ldx elements apart; y: (columns, rows), rows ldy elements
// apart.
//
// stage 4, register blocks: a thread loads a square block, which is WIDTH vectors of 16 bytes with WIDTH
// elements each. it stores the columns of the block as vectors. ACROSS lanes lie side by side along a row,
// and 32 / ACROSS lanes along a column. so a warp moves 16 ACROSS bytes of a row of x together, and 512 /
// ACROSS bytes of a row of y. where rows do not start at multiples of 16 bytes, elements are moved one by
// one.
//
// what it gains: one instruction moves 16 bytes, and a thread has WIDTH loads in flight. there is no shared
// memory and no barrier.
//
// what limits it: device memory. each page is read and written in short runs.
#include "tile/row.cuh"
#include "tile/warp.cuh"

constexpr int WIDTH = ROW_WIDTH<IN>, DOWN = WARP / ACROSS, WARPS = THREADS / WARP;
static_assert(WARP % ACROSS == 0, "ACROSS has to divide 32: lanes of a warp are a rectangle");

extern "C" __global__ void __launch_bounds__(THREADS)
    transpose_register_blocks(const IN* __restrict__ x, IN* __restrict__ y, int rows, int columns,
                              long long ldx, long long ldy, int tiles) {
  const int lane = threadIdx.x % WARP, tile_row = blockIdx.x / tiles * WARPS + threadIdx.x / WARP;
  const int c0 = (blockIdx.x % tiles * ACROSS + lane % ACROSS) * WIDTH;
  const int r0 = (tile_row * DOWN + lane / ACROSS) * WIDTH;
  const bool from_aligned = ldx % WIDTH == 0, to_aligned = ldy % WIDTH == 0;

  Vector<IN, WIDTH> v[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; ++i)
    v[i] = load_row<WIDTH, EVEN>(x + (r0 + i) * ldx, c0, r0 + i < rows ? columns : 0, from_aligned,
                                 static_cast<IN>(0));
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) {
    if (c0 + j >= columns) continue;
    Vector<IN, WIDTH> column;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) column.x[i] = v[i].x[j];
    store_row<EVEN>(y + (c0 + j) * ldy, r0, rows, to_aligned, column);
  }
}
