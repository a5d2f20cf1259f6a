// s[r, c] = x[r, c] + residual[r, c]; y[r, c] = s[r, c] w[c] / sqrt(mean_j s[r, j]^2 + eps), of s as it is
// stored. x, residual, s, y: (rows, columns), rows ldx (of the first two) and ldy elements apart; w:
// (columns).
//
// stage 1, naive: one thread takes one row. it stores the sum of the two rows and reads it again for the
// result.
//
// what limits it: neighbouring threads read addresses a row apart, so each load of a warp needs 32
// transactions. there are only as many threads as rows.
#include "tile/convert.cuh"
#include "tile/row_reduce.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    residual_rms_norm_naive(const IN* __restrict__ x, const IN* __restrict__ residual,
                            const IN* __restrict__ w, IN* __restrict__ s, OUT* __restrict__ y, int rows,
                            int columns, long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const IN *from = x + row * ldx, *more = residual + row * ldx;
  IN* sums = s + row * ldy;
  OUT* to = y + row * ldy;

  Running<Sum> squares;
  for (int c = 0; c < columns; ++c) {
    sums[c] = from_float<IN>(to_float(from[c]) + to_float(more[c]));
    const float v = to_float(sums[c]);
    squares.add(v * v);
  }
  const float scale = rsqrtf(squares.value() / columns + eps);
  for (int c = 0; c < columns; ++c) to[c] = from_float<OUT>(to_float(sums[c]) * scale * to_float(w[c]));
}
