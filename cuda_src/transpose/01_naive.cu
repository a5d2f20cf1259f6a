// y[c, r] = x[r, c]. x: (rows, columns), rows ldx elements apart; y: (columns, rows), rows ldy elements
// apart.
//
// stage 1, naive: one thread moves one element; the lanes of a warp read neighbouring elements of a row.
//
// what limits it: what a warp reads together it writes to addresses a row apart, 32 transactions of which
// each fills a small part of what the memory moves.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y)
    transpose_naive(const IN* __restrict__ x, IN* __restrict__ y, int rows, int columns, long long ldx,
                    long long ldy, int tiles) {
  const int c = blockIdx.x % tiles * BLOCK_X + threadIdx.x, r = blockIdx.x / tiles * BLOCK_Y + threadIdx.y;
  if (r < rows && c < columns) y[c * ldy + r] = x[r * ldx + c];
}
