// gradient of layer norm, of which g = w dy, n = (x - mean) scale, scale = 1 / sqrt(variance + eps):
// dx = scale (g - mean_j g - n mean_j(g n)), dw = sum_r dy n, db = sum_r dy.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw, db: (columns).
// states: (rows, 2) scratch: how rows were normalised.
//
// stage 1, naive: first one thread takes one row, for dx. then one thread takes one column, for dw and db.
//
// what limits it: for dx, neighbouring threads read addresses a row apart. for dw and db, there are only as
// many threads as columns.
#include "tile/gradient_row.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_naive(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                              OUT* __restrict__ dx, float2* __restrict__ states, int rows, int columns,
                              long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const IN *from = x + row * ldx, *more = dy + row * ldx;
  OUT* to = dx + row * ldy;

  Running<Sum> sum, squares;
  Running<TwoSums> of_row;
  for (int c = 0; c < columns; ++c) sum.add(to_float(from[c]));
  const float mean = sum.value() / columns;
  for (int c = 0; c < columns; ++c) {
    const float distance = to_float(from[c]) - mean;
    squares.add(distance * distance);
  }
  const float scale = rsqrtf(squares.value() / columns + eps);
  for (int c = 0; c < columns; ++c) {
    const float g = to_float(w[c]) * to_float(more[c]);
    of_row.add({g, g * ((to_float(from[c]) - mean) * scale)});
  }
  const RowGradient gradient = {mean, scale, of_row.value().first / columns, of_row.value().second / columns};
  for (int c = 0; c < columns; ++c)
    to[c] = from_float<OUT>(gradient.dx(to_float(from[c]), to_float(w[c]) * to_float(more[c])));
  states[row] = make_float2(mean, scale);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_columns(const IN* __restrict__ x, const IN* __restrict__ dy,
                                const float2* __restrict__ states, OUT* __restrict__ dw, OUT* __restrict__ db,
                                int rows, int columns, long long ldx) {
  const int column = blockIdx.x * THREADS + threadIdx.x;
  if (column >= columns) return;
  Running<TwoSums> sums;
  for (int r = 0; r < rows; ++r) {
    const float v = to_float(dy[r * ldx + column]);
    sums.add({v * ((to_float(x[r * ldx + column]) - states[r].x) * states[r].y), v});
  }
  dw[column] = from_float<OUT>(sums.value().first);
  db[column] = from_float<OUT>(sums.value().second);
}
