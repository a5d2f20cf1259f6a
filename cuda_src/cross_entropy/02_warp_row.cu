// loss[r] = log sum_j e^(x[r, j]) - x[r, labels[r]], 0 where the label is below 0; lse[r]: that logarithm.
// x: (rows, columns), rows ldx elements apart; labels, loss, lse: (rows).
//
// stage 2, a warp a row: the lanes of a warp share a row, and reduce maximum and sum by shuffles.
//
// what it gains: lanes read neighbouring elements in few transactions, and 32 times as many threads work.
//
// what limits it: the row is read twice; a cache serves the second read while it still holds the row.
#include "tile/cross_entropy.cuh"

constexpr int ROWS = THREADS / WARP;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_warp_row(const IN* __restrict__ x, const int* __restrict__ labels, float* __restrict__ loss,
                           float* __restrict__ lse, int rows, int columns, long long ldx) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;

  float max = -infinity(), sum = 0.f;
  for (int c = lane; c < columns; c += WARP) max = fmaxf(max, to_float(from[c]));
  max = warp_reduce<Max>(max);
  const float base = ExpSum::base(max);
  for (int c = lane; c < columns; c += WARP) sum += exp_of(to_float(from[c]) - base);
  sum = warp_reduce<Sum>(sum);
  if (lane == 0) store_loss(&loss[row], &lse[row], from, labels[row], {max, sum});
}
