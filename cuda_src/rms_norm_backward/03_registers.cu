// gradient of rms norm, of which g = w dy, n = x scale, scale = 1 / sqrt(mean_j x^2 + eps):
// dx = scale (g - n mean_j(g n)), dw = sum_r dy n.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw: (columns).
// states: (rows) scratch: how rows were normalised.
//
// stage 3, registers: GROUP threads share a row, as many as can hold x and dy in their registers. each of
// them holds VECTORS vectors of 16 bytes of x and as many of dy.
//
// what it gains: x and dy are read once for dx. all loads of a thread are in flight at once.
//
// what limits it: x and dy are read once more for dw.
#include "tile/gradient_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_backward_registers(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                                OUT* __restrict__ dx, float* __restrict__ states, int rows, int columns,
                                long long ldx, long long ldy, float eps) {
  __shared__ RowScratch<TwoSums, THREADS> scratch;
  const int row = blockIdx.x * ROWS + threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const long long at = min(row, rows - 1);
  OUT* const to = dx + at * ldy;
  const RowWalk<WIDTH, EVEN> walk(x + at * ldx, columns);
  const IN outside = from_float<IN>(0.f);

  GradientRow<VECTORS, WIDTH, EVEN, IN> held;
  held.load(walk, x + at * ldx, dy + at * ldx, member, GROUP);
  TwoSums::Value whole = TwoSums::identity();
#pragma unroll
  for (int i = 0; i < VECTORS; ++i)
    add_uncentred_sums(whole, held.x[i], held.dy[i], walk.load(w, walk.column(member + i * GROUP), outside));
  whole = row_reduce<TwoSums, GROUP, THREADS>(whole, scratch);
  const float scale = rsqrtf(whole.first / columns + eps);
  const RowGradient gradient = {0.f, scale, 0.f, whole.second * scale / columns};
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP);
    walk.store(to, column,
               norm_gradient<OUT>(held.x[i], held.dy[i], walk.load(w, column, outside), gradient));
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
