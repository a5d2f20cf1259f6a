// gradient of rms norm, of which g = w dy, n = x scale, scale = 1 / sqrt(mean_j x^2 + eps):
// dx = scale (g - n mean_j(g n)), dw = sum_r dy n.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw: (columns).
// states: (rows) scratch: how rows were normalised.
//
// stage 1, naive: first one thread takes one row, for dx. then one thread takes one column, for dw.
//
// what limits it: for dx, neighbouring threads read addresses a row apart. for dw, there are only as many
// threads as columns.
#include "tile/gradient_row.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_backward_naive(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                            OUT* __restrict__ dx, float* __restrict__ states, int rows, int columns,
                            long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const IN *from = x + row * ldx, *more = dy + row * ldx;
  OUT* to = dx + row * ldy;

  Running<Sum> squares, products;
  for (int c = 0; c < columns; ++c) {
    const float v = to_float(from[c]);
    squares.add(v * v);
  }
  const float scale = rsqrtf(squares.value() / columns + eps);
  for (int c = 0; c < columns; ++c)
    products.add(to_float(w[c]) * to_float(more[c]) * (to_float(from[c]) * scale));
  const RowGradient gradient = {0.f, scale, 0.f, products.value() / columns};
  for (int c = 0; c < columns; ++c)
    to[c] = from_float<OUT>(gradient.dx(to_float(from[c]), to_float(w[c]) * to_float(more[c])));
  states[row] = scale;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_backward_columns(const IN* __restrict__ x, const IN* __restrict__ dy,
                              const float* __restrict__ states, OUT* __restrict__ dw, int rows, int columns,
                              long long ldx) {
  const int column = blockIdx.x * THREADS + threadIdx.x;
  if (column >= columns) return;
  Running<TwoSums> sums;
  for (int r = 0; r < rows; ++r) {
    const float v = to_float(dy[r * ldx + column]);
    sums.add({v * (to_float(x[r * ldx + column]) * states[r]), v});
  }
  dw[column] = from_float<OUT>(sums.value().first);
}
