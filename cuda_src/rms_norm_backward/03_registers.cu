// gradient of rms norm, of which g = w dy, n = x scale, scale = 1 / sqrt(mean_j x^2 + eps):
// dx = scale (g - n mean_j(g n)), dw = sum_r dy n.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw: (columns).
// states: (rows) scratch: how rows were normalised.
//
// stage 3, registers: as many threads share a row, GROUP, as can hold x and dy in their registers, VECTORS
// vectors of 16 bytes of each.
//
// what it gains: one read of x and dy for dx; all loads of a thread are in flight at once.
//
// what limits it: dw reads x and dy once more.
#include "tile/gradient_row.cuh"
#include "tile/norm_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_backward_registers(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                                OUT* __restrict__ dx, float* __restrict__ states, int rows, int columns,
                                long long ldx, long long ldy, float eps) {
  __shared__ RowScratch<Sum, THREADS> statistics;
  __shared__ RowScratch<TwoSums, THREADS> scratch;
  const int row = blockIdx.x * ROWS + threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const int held = min(row, rows - 1);
  const IN *from = x + held * ldx, *more = dy + held * ldx;
  OUT* to = dx + held * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN outside = from_float<IN>(0.f);

  Vector<IN, WIDTH> v[VECTORS], d[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) v[i] = walk.load(from, walk.column(member + i * GROUP), outside);
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) d[i] = walk.load(more, walk.column(member + i * GROUP), outside);
  const float mean = 0.f,
              scale = rsqrtf(row_reduce<Sum, GROUP, THREADS>(sum_squares(v), statistics) / columns + eps);
  TwoSums::Value means = TwoSums::identity();
#pragma unroll
  for (int i = 0; i < VECTORS; ++i)
    add_gradient_sums(means, v[i], d[i], walk.load(w, walk.column(member + i * GROUP), outside), mean, scale);
  means = row_reduce<TwoSums, GROUP, THREADS>(means, scratch);
  const RowGradient gradient = {mean, scale, 0.f, means.second / columns};
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP);
    walk.store(to, column, norm_gradient<OUT>(v[i], d[i], walk.load(w, column, outside), gradient));
  }
  if (member == 0) states[row] = scale;
}

// a lane has a column, the warps of a block take rows alternately
extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_backward_columns(const IN* __restrict__ x, const IN* __restrict__ dy,
                              const float* __restrict__ states, OUT* __restrict__ dw, int rows, int columns,
                              long long ldx) {
  __shared__ TwoSums::Value partial[THREADS / WARP][WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = blockIdx.x * WARP + lane;
  TwoSums::Value sums = TwoSums::identity();
  if (column < columns)
    for (int r = warp; r < rows; r += THREADS / WARP) {
      const float v = to_float(dy[r * ldx + column]);
      sums = TwoSums::combine(sums, {v * (to_float(x[r * ldx + column]) * states[r]), v});
    }
  partial[warp][lane] = sums;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
#pragma unroll
  for (int i = 1; i < THREADS / WARP; ++i) sums = TwoSums::combine(sums, partial[i][lane]);
  dw[column] = from_float<OUT>(sums.first);
}
