// y[r, c] = x[r, c] w[c] / sqrt(mean_j x[r, j]^2 + eps). x, y: (rows, columns), rows ldx and ldy elements
// apart; w: (columns).
//
// stage 3, vectorized: a lane loads and stores 16 bytes at a time. vectors begin at multiples of 16 bytes,
// wherever the row begins. only the first and the last vector of a row are moved element by element.
//
// what it gains: one instruction moves 8 elements (4 of fp32).
//
// what limits it: the row is read more than once. one warp has too few bytes in flight for a long row.
#include "tile/norm_row.cuh"

constexpr int GROUP = WARP;
constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_vectorized(const IN* __restrict__ x, const IN* __restrict__ w, OUT* __restrict__ y, int rows,
                        int columns, long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * ROWS + threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN outside = from_float<IN>(0.f);

  float squares = 0.f;
  for (int i = member; walk.column(i) < columns; i += GROUP) {
    const int column = walk.column(i);
    const Vector<IN, WIDTH> v[1] = {walk.load(from, column, outside)};
    squares += sum_squares(v);
  }
  const float scale = rsqrtf(warp_reduce<Sum>(squares) / columns + eps);
  for (int i = member; walk.column(i) < columns; i += GROUP) {
    const int column = walk.column(i);
    walk.store(to, column,
               scaled<OUT>(walk.load(from, column, outside), scale, walk.load(w, column, outside)));
  }
}
