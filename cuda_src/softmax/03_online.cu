// y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r). x, y: (rows, columns), rows ldx and ldy elements
// apart.
//
// stage 3, online: maximum and sum are computed in one pass. a lane keeps its sum relative to the largest
// number that it has seen. when a larger number comes, it rescales the sum. the pairs of maximum and sum of
// the lanes are combined in the same way.
//
// what it gains: the row is read once less.
//
// what limits it: the row is read twice. a lane loads one element at a time, so few bytes are in flight.
#include "tile/convert.cuh"
#include "tile/online_softmax.cuh"

constexpr int ROWS = THREADS / WARP;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_online(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                   long long ldy) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;

  ExpSum::Value state = ExpSum::identity();
  for (int c = lane; c < columns; c += WARP) ExpSum::add(state, to_float(from[c]));
  state = warp_reduce<ExpSum>(state);
  const float base = ExpSum::base(state.max), scale = reciprocal_sum(state);
  for (int c = lane; c < columns; c += WARP)
    to[c] = from_float<OUT>(exp_of(to_float(from[c]) - base) * scale);
}
