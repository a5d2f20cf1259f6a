// y[c, r] = x[r, c]. x: (rows, columns), rows ldx elements apart; y: (columns, rows), rows ldy elements
// apart.
//
// stage 1, naive: one thread moves one element; the lanes of a warp read neighbouring elements of a row.
//
// what limits it: a warp writes to addresses a row apart, in 32 transactions, and each of them fills only a
// small part of a sector.
extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y)
    transpose_naive(const IN* __restrict__ x, IN* __restrict__ y, int rows, int columns, long long ldx,
                    long long ldy, int tiles) {
  const int c = blockIdx.x % tiles * BLOCK_X + threadIdx.x, r = blockIdx.x / tiles * BLOCK_Y + threadIdx.y;
  if (r < rows && c < columns) y[c * ldy + r] = x[r * ldx + c];
}
