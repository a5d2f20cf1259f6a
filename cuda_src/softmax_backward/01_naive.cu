// dx[r, c] = y[r, c] (dy[r, c] - sum_j y[r, j] dy[r, j]): gradient of softmax, of which y is the result.
// y, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart.
//
// stage 1, naive: one thread takes one row and reads it twice: for the sum and for the result.
//
// what limits it: neighbouring threads read addresses a row apart, so each load of a warp needs 32
// transactions. there are only as many threads as rows.
#include "tile/convert.cuh"
#include "tile/row_reduce.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_backward_naive(const IN* __restrict__ y, const IN* __restrict__ dy, OUT* __restrict__ dx,
                           int rows, int columns, long long ldx, long long ldy) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const IN *from = y + row * ldx, *more = dy + row * ldx;
  OUT* to = dx + row * ldy;

  Running<Sum> products;
  for (int c = 0; c < columns; ++c) products.add(to_float(from[c]) * to_float(more[c]));
  const float dot = products.value();
  for (int c = 0; c < columns; ++c) to[c] = from_float<OUT>(to_float(from[c]) * (to_float(more[c]) - dot));
}
