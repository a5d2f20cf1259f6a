// gradient of layer norm, of which g = w dy, n = (x - mean) scale, scale = 1 / sqrt(variance + eps):
// dx = scale (g - mean_j g - n mean_j(g n)), dw = sum_r dy n, db = sum_r dy.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw, db: (columns).
// states: (rows, 2) scratch: how rows were normalised.
//
// stage 2, a warp a row: for dx, the lanes of a warp share a row, and add up by shuffles. for dw and db, a
// lane has a column, and the warps of a block take rows in turn.
//
// what it gains: a load needs few transactions, and many more threads work.
//
// what limits it: x and dy are read several times for dx and once more for dw and db. a lane loads one
// element at a time.
#include "tile/gradient_row.cuh"

constexpr int ROWS = THREADS / WARP;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_warp_row(const IN* __restrict__ x, const IN* __restrict__ w,
                                 const IN* __restrict__ dy, OUT* __restrict__ dx, float2* __restrict__ states,
                                 int rows, int columns, long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN *from = x + row * ldx, *more = dy + row * ldx;
  OUT* to = dx + row * ldy;

  float sum = 0.f, squares = 0.f, of_g = 0.f, of_products = 0.f;
  for (int c = lane; c < columns; c += WARP) sum += to_float(from[c]);
  const float mean = warp_reduce<Sum>(sum) / columns;
  for (int c = lane; c < columns; c += WARP) {
    const float distance = to_float(from[c]) - mean;
    squares += distance * distance;
  }
  const float scale = rsqrtf(warp_reduce<Sum>(squares) / columns + eps);
  for (int c = lane; c < columns; c += WARP) {
    const float g = to_float(w[c]) * to_float(more[c]);
    of_g += g;
    of_products += g * ((to_float(from[c]) - mean) * scale);
  }
  const RowGradient gradient = {mean, scale, warp_reduce<Sum>(of_g) / columns,
                                warp_reduce<Sum>(of_products) / columns};
  for (int c = lane; c < columns; c += WARP)
    to[c] = from_float<OUT>(gradient.dx(to_float(from[c]), to_float(w[c]) * to_float(more[c])));
  if (lane == 0) states[row] = make_float2(mean, scale);
}

// a lane has a column, the warps of a block take rows alternately
extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_columns(const IN* __restrict__ x, const IN* __restrict__ dy,
                                const float2* __restrict__ states, OUT* __restrict__ dw, OUT* __restrict__ db,
                                int rows, int columns, long long ldx) {
  __shared__ TwoSums::Value partial[THREADS / WARP][WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = blockIdx.x * WARP + lane;
  TwoSums::Value sums = TwoSums::identity();
  if (column < columns)
    for (int r = warp; r < rows; r += THREADS / WARP) {
      const float v = to_float(dy[r * ldx + column]);
      sums = TwoSums::combine(sums, {v * ((to_float(x[r * ldx + column]) - states[r].x) * states[r].y), v});
    }
  partial[warp][lane] = sums;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
#pragma unroll
  for (int i = 1; i < THREADS / WARP; ++i) sums = TwoSums::combine(sums, partial[i][lane]);
  dw[column] = from_float<OUT>(sums.first);
  db[column] = from_float<OUT>(sums.second);
}
