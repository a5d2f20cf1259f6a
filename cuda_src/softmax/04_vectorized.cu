// y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r). x, y: (rows, columns), rows ldx and ldy elements
// apart.
//
// stage 4, vectorized: a lane loads and stores 16 bytes at a time. vectors begin at multiples of 16 bytes,
// wherever the row begins. only the first and the last vector of a row are moved element by element.
//
// what it gains: one instruction moves 8 elements (4 of fp32). a lane takes the maximum of a vector before it
// takes the exponentials, so it rescales the sum once a vector.
//
// what limits it: the row is read twice. one warp has too few bytes in flight for a long row.
#include "tile/softmax_row.cuh"

constexpr int ROWS = THREADS / WARP, WIDTH = ROW_WIDTH<IN, OUT>;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_vectorized(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                       long long ldy) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN masked = from_float<IN>(-infinity());

  ExpSum::Value state = ExpSum::identity();
  for (int i = lane; walk.column(i) < columns; i += WARP) {
    const Vector<IN, WIDTH> v[1] = {walk.load(from, walk.column(i), masked)};
    state = ExpSum::combine(state, exp_sum(v));
  }
  state = warp_reduce<ExpSum>(state);
  const float base = ExpSum::base(state.max), scale = reciprocal_sum(state);
  for (int i = lane; walk.column(i) < columns; i += WARP) {
    const auto v = walk.load(from, walk.column(i), masked);
    walk.store(to, walk.column(i), probabilities<OUT>(v, base, scale));
  }
}
