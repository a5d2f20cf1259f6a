// gradient of layer norm, of which g = w dy, n = (x - mean) scale, scale = 1 / sqrt(variance + eps):
// dx = scale (g - mean_j g - n mean_j(g n)), dw = sum_r dy n, db = sum_r dy.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw, db: (columns).
// partial: (blocks, columns, 2), scratch.
//
// stage 4, fused: a block takes rows one after the other, each with all its threads, and keeps what the rows
// add to dw in registers: a thread has the same columns of every row. a second kernel adds up what the blocks
// store.
//
// what it gains: x and dy are read once for all gradients.
//
// what limits it: device memory; rows that do not start at multiples of 16 bytes are moved element by
// element.
#include "tile/gradient_row.cuh"
#include "tile/norm_row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>, GROUP = THREADS;

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_fused(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                              OUT* __restrict__ dx, TwoSums::Value* __restrict__ partial, int rows,
                              int columns, long long ldx, long long ldy, float eps) {
  __shared__ RowScratch<Moments, THREADS> statistics[2];  // alternating: a fast warp may be one row ahead
  __shared__ RowScratch<TwoSums, THREADS> scratch[2];
  const int member = threadIdx.x;
  const RowWalk<WIDTH, EVEN> walk(w, columns);  // of every row a thread has the same columns
  const IN outside = from_float<IN>(0.f);
  TwoSums::Value sums[VECTORS * WIDTH];
#pragma unroll
  for (int i = 0; i < VECTORS * WIDTH; ++i) sums[i] = TwoSums::identity();

  int buffer = 0;
  for (int row = blockIdx.x; row < rows; row += gridDim.x, buffer ^= 1) {
    const IN *from = x + row * ldx, *more = dy + row * ldx;
    OUT* to = dx + row * ldy;
    Vector<IN, WIDTH> v[VECTORS], d[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) v[i] = walk.load(from, walk.column(member + i * GROUP), outside);
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) d[i] = walk.load(more, walk.column(member + i * GROUP), outside);
    const Moments::Value moment = row_reduce<Moments, GROUP, THREADS>(
        moments<EVEN>(v, walk.column(member), GROUP * WIDTH, columns), statistics[buffer]);
    const float mean = moment.mean, scale = rsqrtf(moment.squares / columns + eps);
    TwoSums::Value means = TwoSums::identity();
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
      add_gradient_sums(means, v[i], d[i], walk.load(w, walk.column(member + i * GROUP), outside), mean,
                        scale);
    means = row_reduce<TwoSums, GROUP, THREADS>(means, scratch[buffer]);
    const RowGradient gradient = {mean, scale, means.first / columns, means.second / columns};
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int column = walk.column(member + i * GROUP);
      walk.store(to, column, norm_gradient<OUT>(v[i], d[i], walk.load(w, column, outside), gradient));
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        const float g = to_float(d[i].x[j]);
        sums[i * WIDTH + j] =
            TwoSums::combine(sums[i * WIDTH + j], {g * gradient.normalised(to_float(v[i].x[j])), g});
      }
    }
  }
#pragma unroll
  for (int i = 0; i < VECTORS; ++i)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      const int column = walk.column(member + i * GROUP) + j;
      if (column < columns)
        partial[static_cast<long long>(blockIdx.x) * columns + column] = sums[i * WIDTH + j];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_combine(const TwoSums::Value* __restrict__ partial, OUT* __restrict__ dw,
                                OUT* __restrict__ db, int columns, int parts) {
  const int column = blockIdx.x * THREADS + threadIdx.x;
  if (column >= columns) return;
  TwoSums::Value sum = TwoSums::identity();
  for (int p = 0; p < parts; ++p)
    sum = TwoSums::combine(sum, partial[static_cast<long long>(p) * columns + column]);
  dw[column] = from_float<OUT>(sum.first);
  db[column] = from_float<OUT>(sum.second);
}
