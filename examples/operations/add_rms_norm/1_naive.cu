// total = x + residual; y[r, c] = total[r, c] w[c] / sqrt(mean_j total[r, j]^2 + eps). x, residual, y, total:
// (rows, columns); w: (columns,).
//
// stage 1, naive: one thread takes one row, in two passes: the sum of squares, while it stores the sums; then
// the quotients, for which it adds x and residual again, as total may hold them rounded.
//
// what limits it: the lanes of a warp walk down 32 rows side by side, so each load touches 32 lines to use 2
// or 4 bytes of each; and rows are few for a whole device.

#include "tile/convert.cuh"  // to_float, from_float

extern "C" __global__ void __launch_bounds__(THREADS)
    add_rms_norm_naive(const DTYPE* x, const DTYPE* residual, const DTYPE* w, DTYPE* y, DTYPE* total, int rows,
                       int columns, float eps) {
  const int r = blockIdx.x * THREADS + threadIdx.x;
  if (r >= rows) return;
  const long long first = static_cast<long long>(r) * columns;

  float squares = 0.f;
  for (int c = 0; c < columns; ++c) {
    const float sum = to_float(x[first + c]) + to_float(residual[first + c]);
    total[first + c] = from_float<DTYPE>(sum);
    squares += sum * sum;
  }
  const float scale = 1.f / sqrtf(squares / columns + eps);
  for (int c = 0; c < columns; ++c) {
    const float sum = to_float(x[first + c]) + to_float(residual[first + c]);
    y[first + c] = from_float<DTYPE>(sum * scale * to_float(w[c]));
  }
}
