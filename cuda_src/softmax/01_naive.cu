// y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r). x, y: (rows, columns), rows ldx and ldy elements
// apart.
//
// stage 1, naive: one thread takes one row and reads it three times: for the maximum, for the sum and for the
// result.
//
// what limits it: neighbouring threads read addresses a row apart, so each load of a warp needs 32
// transactions. there are only as many threads as rows.
#include "tile/convert.cuh"
#include "tile/online_softmax.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_naive(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                  long long ldy) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;

  float max = -infinity();
  Running<Sum> sum;
  for (int c = 0; c < columns; ++c) max = fmaxf(max, to_float(from[c]));
  const float base = ExpSum::base(max);
  for (int c = 0; c < columns; ++c) sum.add(exp_of(to_float(from[c]) - base));
  const float scale = reciprocal_sum({max, sum.value()});
  for (int c = 0; c < columns; ++c) to[c] = from_float<OUT>(exp_of(to_float(from[c]) - base) * scale);
}
