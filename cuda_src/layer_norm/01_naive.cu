// y[r, c] = (x[r, c] - mean_r) w[c] / sqrt(variance_r + eps) + b[c]. x, y: (rows, columns), rows ldx and ldy
// elements apart; w, b: (columns).
//
// stage 1, naive: one thread takes one row and reads it three times: for the mean, for the variance and for
// the result.
//
// what limits it: neighbouring threads read addresses a row apart, so each load of a warp needs 32
// transactions. there are only as many threads as rows.
#include "tile/convert.cuh"
#include "tile/row_reduce.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_naive(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ b,
                     OUT* __restrict__ y, int rows, int columns, long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;

  Running<Sum> sum, squares;
  for (int c = 0; c < columns; ++c) sum.add(to_float(from[c]));
  const float mean = sum.value() / columns;
  for (int c = 0; c < columns; ++c) {
    const float distance = to_float(from[c]) - mean;
    squares.add(distance * distance);
  }
  const float scale = rsqrtf(squares.value() / columns + eps);
  for (int c = 0; c < columns; ++c)
    to[c] = from_float<OUT>((to_float(from[c]) - mean) * scale * to_float(w[c]) + to_float(b[c]));
}
