// y[r, c] = exp(x[r, c]) / sum_j exp(x[r, j]). x, y: (rows, columns).
//
// stage 3, online: maximum and sum in one pass. a lane keeps its sum relative to the largest number so far, and
// rescales the sum when a larger number comes. the pairs of all lanes are combined in the same way.
//
// what it gains: the row is read twice instead of three times.
//
// what limits it: the second read, which rows that fit into registers could spare; and each load is of one element.

#include "tile/convert.cuh"         // to_float, from_float
#include "tile/online_softmax.cuh"  // ExpSum, exp_of, reciprocal_sum

extern "C" __global__ void __launch_bounds__(THREADS)
    probabilities_online(const IN* x, IN* y, int rows, int columns) {
  const int lane = threadIdx.x % WARP;
  const int r = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (r >= rows) return;
  x += static_cast<long long>(r) * columns;
  y += static_cast<long long>(r) * columns;

  ExpSum::Value state = ExpSum::identity();
  for (int c = lane; c < columns; c += WARP) ExpSum::add(state, to_float(x[c]));
  state = warp_reduce<ExpSum>(state);
  const float base = ExpSum::base(state.max), scale = reciprocal_sum(state);
  for (int c = lane; c < columns; c += WARP) y[c] = from_float<IN>(exp_of(to_float(x[c]) - base) * scale);
}
