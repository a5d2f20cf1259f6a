// y[r, c] = x[r, c] w[c] / sqrt(mean_j x[r, j]^2 + eps). x, y: (rows, columns), rows ldx and ldy elements
// apart; w: (columns).
//
// stage 1, naive: one thread takes one row and reads it twice: for the sum of squares and for the result.
//
// what limits it: neighbouring threads read addresses a row apart, so each load of a warp needs 32
// transactions. there are only as many threads as rows.
#include "tile/convert.cuh"
#include "tile/row_reduce.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_naive(const IN* __restrict__ x, const IN* __restrict__ w, OUT* __restrict__ y, int rows,
                   int columns, long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;

  Running<Sum> squares;
  for (int c = 0; c < columns; ++c) {
    const float v = to_float(from[c]);
    squares.add(v * v);
  }
  const float scale = rsqrtf(squares.value() / columns + eps);
  for (int c = 0; c < columns; ++c) to[c] = from_float<OUT>(to_float(from[c]) * scale * to_float(w[c]));
}
