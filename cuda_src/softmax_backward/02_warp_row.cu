// dx[r, c] = y[r, c] (dy[r, c] - sum_j y[r, j] dy[r, j]): gradient of softmax, of which y is the result.
// y, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart.
//
// stage 2, a warp a row: the lanes of a warp share a row, and add up by shuffles.
//
// what it gains: lanes read neighbouring elements in few transactions, and 32 times as many threads work.
//
// what limits it: both rows are read twice. a lane loads one element at a time, so few bytes are in flight.
#include "tile/convert.cuh"
#include "tile/row_reduce.cuh"

constexpr int ROWS = THREADS / WARP;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_backward_warp_row(const IN* __restrict__ y, const IN* __restrict__ dy, OUT* __restrict__ dx,
                              int rows, int columns, long long ldx, long long ldy) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN *from = y + row * ldx, *more = dy + row * ldx;
  OUT* to = dx + row * ldy;

  float dot = 0.f;
  for (int c = lane; c < columns; c += WARP) dot += to_float(from[c]) * to_float(more[c]);
  dot = warp_reduce<Sum>(dot);
  for (int c = lane; c < columns; c += WARP)
    to[c] = from_float<OUT>(to_float(from[c]) * (to_float(more[c]) - dot));
}
