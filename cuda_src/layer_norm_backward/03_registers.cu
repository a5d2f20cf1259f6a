// gradient of layer norm, of which g = w dy, n = (x - mean) scale, scale = 1 / sqrt(variance + eps):
// dx = scale (g - mean_j g - n mean_j(g n)), dw = sum_r dy n, db = sum_r dy.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw, db: (columns).
// states: (rows, 2) scratch: how rows were normalised.
//
// stage 3, registers: GROUP threads share a row, as many as can hold x and dy in their registers. each of
// them holds VECTORS vectors of 16 bytes of x and as many of dy.
//
// what it gains: x and dy are read once for dx. all loads of a thread are in flight at once.
//
// what limits it: x and dy are read once more for dw and db.
#include "tile/gradient_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    layer_norm_backward_registers(const IN* __restrict__ x, const IN* __restrict__ w,
                                  const IN* __restrict__ dy, OUT* __restrict__ dx,
                                  float2* __restrict__ states, int rows, int columns, long long ldx,
                                  long long ldy, float eps) {
  __shared__ RowScratch<Sum, THREADS> statistics;
  __shared__ RowScratch<ThreeSums, THREADS> scratch;
  const int row = blockIdx.x * ROWS + threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const long long at = min(row, rows - 1);
  OUT* const to = dx + at * ldy;
  const RowWalk<WIDTH, EVEN> walk(x + at * ldx, columns);
  const IN outside = from_float<IN>(0.f);

  GradientRow<VECTORS, WIDTH, EVEN, IN> held;
  held.load(walk, x + at * ldx, dy + at * ldx, member, GROUP);
  const float mean = row_reduce<Sum, GROUP, THREADS>(sum_elements(held.x), statistics) / columns;
  ThreeSums::Value part = ThreeSums::identity();
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP);
    add_centred_sums<EVEN>(part, held.x[i], held.dy[i], walk.load(w, column, outside), mean, column, columns);
  }
  const ThreeSums::Value whole = row_reduce<ThreeSums, GROUP, THREADS>(part, scratch);
  const float scale = rsqrtf(whole.first / columns + eps);
  const RowGradient gradient = {mean, scale, whole.second / columns, whole.third * scale / columns};
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP);
    walk.store(to, column,
               norm_gradient<OUT>(held.x[i], held.dy[i], walk.load(w, column, outside), gradient));
  }
  if (member == 0) states[row] = make_float2(mean, scale);
}

// a lane has a column, the warps of a block take rows alternately
extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_columns(const IN* __restrict__ x, const IN* __restrict__ dy,
                                const float2* __restrict__ states, OUT* __restrict__ dw, OUT* __restrict__ db,
                                int rows, int columns, long long ldx) {
  __shared__ TwoSums::Value partial[THREADS / WARP][WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = blockIdx.x * WARP + lane;
  TwoSums::Value sums = TwoSums::identity();
  if (column < columns)
    for (int r = warp; r < rows; r += THREADS / WARP) {
      const float v = to_float(dy[r * ldx + column]);
      sums = TwoSums::combine(sums, {v * ((to_float(x[r * ldx + column]) - states[r].x) * states[r].y), v});
    }
  partial[warp][lane] = sums;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
#pragma unroll
  for (int i = 1; i < THREADS / WARP; ++i) sums = TwoSums::combine(sums, partial[i][lane]);
  dw[column] = from_float<OUT>(sums.first);
  db[column] = from_float<OUT>(sums.second);
}
