// loss[r] = log sum_j e^(x[r, j]) - x[r, labels[r]], 0 where the label is below 0; lse[r]: that logarithm.
// x: (rows, columns), rows ldx elements apart; labels, loss, lse: (rows).
//
// stage 1, naive: one thread takes one row and reads it twice: for the maximum and for the sum.
//
// what limits it: neighbouring threads read addresses a row apart, so each load of a warp needs 32
// transactions. there are only as many threads as rows.
#include "tile/cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_naive(const IN* __restrict__ x, const int* __restrict__ labels, float* __restrict__ loss,
                        float* __restrict__ lse, int rows, int columns, long long ldx) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const IN* from = x + row * ldx;

  float max = -infinity();
  Running<Sum> sum;
  for (int c = 0; c < columns; ++c) max = fmaxf(max, to_float(from[c]));
  const float base = ExpSum::base(max);
  for (int c = 0; c < columns; ++c) sum.add(exp_of(to_float(from[c]) - base));
  store_loss(&loss[row], &lse[row], from, labels[row], {max, sum.value()});
}
