// s[r, c] = x[r, c] + residual[r, c]; y[r, c] = s[r, c] w[c] / sqrt(mean_j s[r, j]^2 + eps), of s as it is
// stored. x, residual, s, y: (rows, columns), rows ldx (of the first two) and ldy elements apart; w:
// (columns).
//
// stage 2, a warp a row: the lanes of a warp share a row, and reduce the sum of squares by shuffles.
//
// what it gains: lanes read neighbouring elements in few transactions, and 32 times as many threads work.
//
// what limits it: a lane loads one element at a time, so few bytes are in flight. the row is read more than
// once.
#include "tile/convert.cuh"
#include "tile/row_reduce.cuh"

constexpr int ROWS = THREADS / WARP;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    residual_rms_norm_warp_row(const IN* __restrict__ x, const IN* __restrict__ residual,
                               const IN* __restrict__ w, IN* __restrict__ s, OUT* __restrict__ y, int rows,
                               int columns, long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN *from = x + row * ldx, *more = residual + row * ldx;
  IN* sums = s + row * ldy;
  OUT* to = y + row * ldy;

  float squares = 0.f;
  for (int c = lane; c < columns; c += WARP) {
    sums[c] = from_float<IN>(to_float(from[c]) + to_float(more[c]));
    const float v = to_float(sums[c]);
    squares += v * v;
  }
  const float scale = rsqrtf(warp_reduce<Sum>(squares) / columns + eps);
  for (int c = lane; c < columns; c += WARP)
    to[c] = from_float<OUT>(to_float(sums[c]) * scale * to_float(w[c]));
}
