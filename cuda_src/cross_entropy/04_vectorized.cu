// loss[r] = log sum_j e^(x[r, j]) - x[r, labels[r]], 0 where the label is below 0; lse[r]: that logarithm.
// x: (rows, columns), rows ldx elements apart; labels, loss, lse: (rows).
//
// stage 4, vectorized: a lane loads 16 bytes at a time, and VECTORS such vectors before it uses the first.
// vectors begin at multiples of 16 bytes, wherever the row begins. only the first and the last elements of a
// row are loaded one by one.
//
// what it gains: one instruction loads 8 elements (4 of fp32), and more bytes are in flight. a lane takes the
// maximum of all vectors before their exponentials, so the sum is rescaled once for all of them.
//
// what limits it: if rows are few and long, one warp a row is not enough.
#include "tile/cross_entropy.cuh"
#include "tile/softmax_row.cuh"

constexpr int ROWS = THREADS / WARP, WIDTH = ROW_WIDTH<IN>;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_vectorized(const IN* __restrict__ x, const int* __restrict__ labels,
                             float* __restrict__ loss, float* __restrict__ lse, int rows, int columns,
                             long long ldx) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  const RowWalk<WIDTH, EVEN> walk(from, columns);

  ExpSum::Value state = ExpSum::identity();
  for (int i = lane; walk.column(i) < columns; i += WARP * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
    walk.load(v, from, i, WARP, from_float<IN>(-infinity()));
    state = ExpSum::combine(state, exp_sum(v));
  }
  state = warp_reduce<ExpSum>(state);
  if (lane == 0) store_loss(&loss[row], &lse[row], from, labels[row], state);
}
