// y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r). x, y: (rows, columns), rows ldx and ldy elements
// apart.
//
// stage 2, a warp a row: the lanes of a warp share a row, and reduce maximum and sum by shuffles.
//
// what it gains: lanes read neighbouring elements in few transactions, and 32 times as many threads work.
//
// what limits it: the row is read three times, and a cache serves the second and the third read only while it
// still holds the row. two passes come before the first store.
#include "tile/convert.cuh"
#include "tile/online_softmax.cuh"

constexpr int ROWS = THREADS / WARP;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_warp_row(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                     long long ldy) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;

  float max = -infinity(), sum = 0.f;
  for (int c = lane; c < columns; c += WARP) max = fmaxf(max, to_float(from[c]));
  max = warp_reduce<Max>(max);
  const float base = ExpSum::base(max);
  for (int c = lane; c < columns; c += WARP) sum += exp_of(to_float(from[c]) - base);
  sum = warp_reduce<Sum>(sum);
  const float scale = reciprocal_sum({max, sum});
  for (int c = lane; c < columns; c += WARP)
    to[c] = from_float<OUT>(exp_of(to_float(from[c]) - base) * scale);
}
