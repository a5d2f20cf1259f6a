// loss[r] = log sum_j e^(x[r, j]) - x[r, labels[r]], 0 where the label is below 0; lse[r]: that logarithm.
// x: (rows, columns), rows ldx elements apart; labels, loss, lse: (rows).
//
// stage 3, online: maximum and sum are computed in one pass. a lane keeps its sum relative to the largest
// number that it has seen. when a larger number comes, it rescales the sum. the pairs of maximum and sum of
// the lanes are combined in the same way.
//
// what it gains: the row is read once, which is the least possible.
//
// what limits it: a lane loads one element at a time, so few bytes are in flight.
#include "tile/cross_entropy.cuh"

constexpr int ROWS = THREADS / WARP;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_online(const IN* __restrict__ x, const int* __restrict__ labels, float* __restrict__ loss,
                         float* __restrict__ lse, int rows, int columns, long long ldx) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;

  ExpSum::Value state = ExpSum::identity();
  for (int c = lane; c < columns; c += WARP) ExpSum::add(state, to_float(from[c]));
  state = warp_reduce<ExpSum>(state);
  if (lane == 0) store_loss(&loss[row], &lse[row], from, labels[row], state);
}
