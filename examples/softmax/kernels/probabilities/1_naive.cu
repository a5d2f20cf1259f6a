// y[r, c] = exp(x[r, c]) / sum_j exp(x[r, j]). x, y: (rows, columns).
//
// stage 1, naive: one thread takes one row, in three passes: the maximum, without which exp overflows; the sum; the
// quotients.
//
// what limits it: the lanes of a warp read 32 different rows, so each load touches 32 lines and uses 2 or 4 bytes of
// each; and there are few rows for a whole device.

#include "tile/convert.cuh"  // to_float, from_float

extern "C" __global__ void __launch_bounds__(THREADS)
    probabilities_naive(const IN* x, IN* y, int rows, int columns) {
  const int r = blockIdx.x * THREADS + threadIdx.x;
  if (r >= rows) return;
  x += static_cast<long long>(r) * columns;
  y += static_cast<long long>(r) * columns;

  float top = to_float(x[0]);
  for (int c = 1; c < columns; ++c) top = fmaxf(top, to_float(x[c]));
  float sum = 0.f;
  for (int c = 0; c < columns; ++c) sum += expf(to_float(x[c]) - top);
  for (int c = 0; c < columns; ++c) y[c] = from_float<IN>(expf(to_float(x[c]) - top) / sum);
}
