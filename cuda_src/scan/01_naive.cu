// y[r, c] = sum_{j <= c} x[r, j]. x, y: (rows, columns), rows ldx and ldy elements apart.
//
// stage 1, naive: one thread takes one row.
//
// what limits it: neighbouring threads read and write addresses a row apart, so each load of a warp needs 32
// transactions. there are only as many threads as rows.
#include "tile/convert.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_naive(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
               long long ldy) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  float sum = 0.f;
  for (int c = 0; c < columns; ++c) {
    sum += to_float(from[c]);
    to[c] = from_float<OUT>(sum);
  }
}
