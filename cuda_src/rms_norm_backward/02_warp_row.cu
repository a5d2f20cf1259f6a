// gradient of rms norm, of which g = w dy, n = x scale, scale = 1 / sqrt(mean_j x^2 + eps):
// dx = scale (g - n mean_j(g n)), dw = sum_r dy n.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw: (columns).
// states: (rows) scratch: how rows were normalised.
//
// stage 2, a warp a row: for dx, the lanes of a warp share a row, and add up by shuffles. for dw, a lane has
// a column, and the warps of a block take rows in turn.
//
// what it gains: a load needs few transactions, and many more threads work.
//
// what limits it: x and dy are read several times for dx and once more for dw. a lane loads one element at a
// time.
#include "tile/gradient_row.cuh"

constexpr int ROWS = THREADS / WARP;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_backward_warp_row(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                               OUT* __restrict__ dx, float* __restrict__ states, int rows, int columns,
                               long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN *from = x + row * ldx, *more = dy + row * ldx;
  OUT* to = dx + row * ldy;

  float squares = 0.f, of_products = 0.f;
  for (int c = lane; c < columns; c += WARP) {
    const float v = to_float(from[c]);
    squares += v * v;
  }
  const float scale = rsqrtf(warp_reduce<Sum>(squares) / columns + eps);
  for (int c = lane; c < columns; c += WARP)
    of_products += to_float(w[c]) * to_float(more[c]) * (to_float(from[c]) * scale);
  const RowGradient gradient = {0.f, scale, 0.f, warp_reduce<Sum>(of_products) / columns};
  for (int c = lane; c < columns; c += WARP)
    to[c] = from_float<OUT>(gradient.dx(to_float(from[c]), to_float(w[c]) * to_float(more[c])));
  if (lane == 0) states[row] = scale;
}

// a lane has a column, the warps of a block take rows alternately
extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_backward_columns(const IN* __restrict__ x, const IN* __restrict__ dy,
                              const float* __restrict__ states, OUT* __restrict__ dw, int rows, int columns,
                              long long ldx) {
  __shared__ TwoSums::Value partial[THREADS / WARP][WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = blockIdx.x * WARP + lane;
  TwoSums::Value sums = TwoSums::identity();
  if (column < columns)
    for (int r = warp; r < rows; r += THREADS / WARP) {
      const float v = to_float(dy[r * ldx + column]);
      sums = TwoSums::combine(sums, {v * (to_float(x[r * ldx + column]) * states[r]), v});
    }
  partial[warp][lane] = sums;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
#pragma unroll
  for (int i = 1; i < THREADS / WARP; ++i) sums = TwoSums::combine(sums, partial[i][lane]);
  dw[column] = from_float<OUT>(sums.first);
}
