// y[r, c] = (x[r, c] - mean_r) w[c] / sqrt(variance_r + eps) + b[c]. x, y: (rows, columns), rows ldx and ldy
// elements apart; w, b: (columns).
//
// stage 2, a warp a row: the lanes of a warp share a row, and reduce mean and variance by shuffles.
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
    layer_norm_warp_row(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ b,
                        OUT* __restrict__ y, int rows, int columns, long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;

  float sum = 0.f, squares = 0.f;
  for (int c = lane; c < columns; c += WARP) sum += to_float(from[c]);
  const float mean = warp_reduce<Sum>(sum) / columns;
  for (int c = lane; c < columns; c += WARP) {
    const float distance = to_float(from[c]) - mean;
    squares += distance * distance;
  }
  const float scale = rsqrtf(warp_reduce<Sum>(squares) / columns + eps);
  for (int c = lane; c < columns; c += WARP)
    to[c] = from_float<OUT>((to_float(from[c]) - mean) * scale * to_float(w[c]) + to_float(b[c]));
}
