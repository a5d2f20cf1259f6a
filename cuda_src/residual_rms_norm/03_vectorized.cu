// s[r, c] = x[r, c] + residual[r, c]; y[r, c] = s[r, c] w[c] / sqrt(mean_j s[r, j]^2 + eps), of s as it is
// stored. x, residual, s, y: (rows, columns), rows ldx (of the first two) and ldy elements apart; w:
// (columns).
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
    residual_rms_norm_vectorized(const IN* __restrict__ x, const IN* __restrict__ residual,
                                 const IN* __restrict__ w, IN* __restrict__ s, OUT* __restrict__ y, int rows,
                                 int columns, long long ldx, long long ldy, float eps) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN *from = x + row * ldx, *more = residual + row * ldx;
  IN* sums = s + row * ldy;
  OUT* to = y + row * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN outside = from_float<IN>(0.f);

  float squares = 0.f;
  for (int i = lane; walk.column(i) < columns; i += WARP) {
    const int column = walk.column(i);
    const Vector<IN, WIDTH> v[1] = {
        added(walk.load(from, column, outside), walk.load(more, column, outside))};
    walk.store(sums, column, v[0]);
    squares += sum_squares(v);
  }
  const float scale = rsqrtf(warp_reduce<Sum>(squares) / columns + eps);
  for (int i = lane; walk.column(i) < columns; i += WARP) {
    const int column = walk.column(i);
    walk.store(to, column,
               scaled<OUT>(walk.load(sums, column, outside), scale, walk.load(w, column, outside)));
  }
}
