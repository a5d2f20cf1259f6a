// gradient of layer norm, of which g = w dy, n = (x - mean) scale, scale = 1 / sqrt(variance + eps):
// dx = scale (g - mean_j g - n mean_j(g n)), dw = sum_r dy n, db = sum_r dy.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw, db: (columns).
// partial: (blocks, PLACES, 2), scratch.
//
// stage 4, fused: groups of GROUP threads take rows one after the other. a short row has some lanes of a warp
// as its group, a long row has a block. a thread has the same columns of every row, so it adds up dw and db
// of these columns in registers. the groups of a block add up their sums, and the block stores them. a second
// kernel adds up what the blocks have stored.
//
// if registers are left, AHEAD is set, and the next row is loaded before the present one is used.
//
// rows that are not whole vectors of 16 bytes, and few that are long, are moved in narrower ones, down to
// single elements: neighbouring threads move neighbouring elements, and each has fewer columns.
//
// what it gains: x and dy are read once for all gradients.
//
// what limits it: device memory. the sums take registers, so where rows are long, few of them are in flight.
#include "tile/gradient_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>, COUNT = VECTORS * WIDTH,
              PLACES = GROUP * COUNT;  // for sums, of which those behind the last column are empty

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    layer_norm_backward_fused(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                              OUT* __restrict__ dx, TwoSums::Value* __restrict__ partial, int rows,
                              int columns, long long ldx, long long ldy, float eps) {
  __shared__ RowScratch<Sum, THREADS> statistics[2];  // alternating: a fast warp may be one row ahead
  __shared__ RowScratch<ThreeSums, THREADS> scratch[2];
  __shared__ GroupScratch<TwoSums, GROUP, THREADS, COUNT> groups;
  const int group = threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  const RowWalk<WIDTH, EVEN> walk(w, columns);  // of every row a thread has the same columns
  const IN outside = from_float<IN>(0.f);
  const float share = 1.f / columns;
  TwoSums::Value sums[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] = TwoSums::identity();

  GradientRow<VECTORS, WIDTH, EVEN, IN> held, next;
  const auto load = [&](GradientRow<VECTORS, WIDTH, EVEN, IN>& to, int first) {
    // without a row of its own a group reads the last one: all lanes have to take part in shuffles
    const long long row = min(first + group, rows - 1);
    to.load(walk, x + row * ldx, dy + row * ldx, member, GROUP);
  };
  const int step = gridDim.x * ROWS;
  if (AHEAD) load(next, blockIdx.x * ROWS);
  int buffer = 0;
  for (int first = blockIdx.x * ROWS; first < rows; first += step, buffer ^= 1) {
    if (AHEAD) {
      held = next;
      load(next, first < rows - step ? first + step : first);
    } else {
      load(held, first);
    }
    const float mean = row_reduce<Sum, GROUP, THREADS>(sum_elements(held.x), statistics[buffer]) * share;
    ThreeSums::Value part = ThreeSums::identity();
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int column = walk.column(member + i * GROUP);
      add_centred_sums<EVEN>(part, held.x[i], held.dy[i], walk.load(w, column, outside), mean, column,
                             columns);
    }
    const ThreeSums::Value whole = row_reduce<ThreeSums, GROUP, THREADS>(part, scratch[buffer]);
    const float scale = rsqrtf(whole.first * share + eps);
    const int row = first + group;
    if (row >= rows) continue;
    OUT* const to = dx + row * ldy;
    const RowGradient gradient = {mean, scale, whole.second * share, whole.third * scale * share};
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int column = walk.column(member + i * GROUP);
      walk.store(
          to, column,
          norm_gradients<OUT>(held.x[i], held.dy[i], walk.load(w, column, outside), gradient, i, sums));
    }
  }
  add_up_groups<TwoSums, GROUP, THREADS>(sums, groups);
  if (group == 0)
    keep_sums<GROUP, WIDTH>(partial + static_cast<long long>(blockIdx.x) * PLACES, sums, member, columns);
}

extern "C" __global__ void __launch_bounds__(ADDERS)
    layer_norm_backward_combine(const TwoSums::Value* __restrict__ partial, OUT* __restrict__ dw,
                                OUT* __restrict__ db, int columns, int parts) {
  __shared__ TwoSums::Value scratch[ADDERS];
  const int place = blockIdx.x * ADDED + threadIdx.x % ADDED, column = kept_column<GROUP, WIDTH>(place);
  const bool found = column < columns;
  const TwoSums::Value sum = add_up_kept<TwoSums, ADDED, PLACES>(partial, place, found ? parts : 0, scratch);
  if (!found || threadIdx.x >= ADDED) return;
  dw[column] = from_float<OUT>(sum.first);
  db[column] = from_float<OUT>(sum.second);
}
