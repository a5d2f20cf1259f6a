// y[r, c] = exp(x[r, c]) / sum_j exp(x[r, j]). x, y: (rows, columns).
//
// stage 2, warp: a warp takes one row. each lane takes every 32nd column, so a load reads neighbouring columns. shuffles
// give all lanes the maximum and the sum.
//
// what it gains: every line that is loaded is used whole, and 32 times as many threads have loads in flight.
//
// what limits it: the row is read three times, and exp is computed twice. a row that fits into registers needs one read
// and one exp.

#include "tile/convert.cuh"  // to_float, from_float
#include "tile/warp.cuh"     // warp_sum, WARP, ALL_LANES

extern "C" __global__ void __launch_bounds__(THREADS)
    probabilities_warp(const IN* x, IN* y, int rows, int columns) {
  const int lane = threadIdx.x % WARP;
  const int r = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (r >= rows) return;
  x += static_cast<long long>(r) * columns;
  y += static_cast<long long>(r) * columns;

  float top = to_float(x[0]);
  for (int c = lane; c < columns; c += WARP) top = fmaxf(top, to_float(x[c]));
#pragma unroll
  for (int distance = WARP / 2; distance > 0; distance /= 2)
    top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, distance));
  float sum = 0.f;
  for (int c = lane; c < columns; c += WARP) sum += expf(to_float(x[c]) - top);
  sum = warp_sum(sum);
  for (int c = lane; c < columns; c += WARP) y[c] = from_float<IN>(expf(to_float(x[c]) - top) / sum);
}
