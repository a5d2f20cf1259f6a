// y[r, c] = (x[r, c] - mean_r) w[c] / sqrt(variance_r + eps) + b[c]. x, y: (rows, columns), rows ldx and ldy
// elements apart; w, b: (columns).
//
// stage 3, vectorized: a lane loads and stores 16 bytes at a time. vectors begin at multiples of 16 bytes,
// wherever the row begins. only the first and the last vector of a row are moved element by element.
//
// what it gains: one instruction moves 8 elements (4 of fp32).
//
// what limits it: the row is read more than once. one warp has too few bytes in flight for a long row.
#include "tile/norm_row.cuh"

constexpr int ROWS = THREADS / WARP, WIDTH = ROW_WIDTH<IN, OUT>;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_vectorized(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ b,
                          OUT* __restrict__ y, int rows, int columns, long long ldx, long long ldy,
                          float eps) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN outside = from_float<IN>(0.f);

  Moments::Value state = Moments::identity();
  for (int i = lane; walk.column(i) < columns; i += WARP) {
    const int column = walk.column(i);
    const Vector<IN, WIDTH> v[1] = {walk.load(from, column, outside)};
    state = Moments::combine(state, moments<EVEN>(v, column, 0, columns));
  }
  state = warp_reduce<Moments>(state);
  const float scale = rsqrtf(state.squares / columns + eps);
  for (int i = lane; walk.column(i) < columns; i += WARP) {
    const int column = walk.column(i);
    walk.store(to, column,
               standardized<OUT>(walk.load(from, column, outside), state.mean, scale,
                                 walk.load(w, column, outside), walk.load(b, column, outside)));
  }
}
