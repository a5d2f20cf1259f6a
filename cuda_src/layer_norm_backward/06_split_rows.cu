// gradient of layer norm, of which g = w dy, n = (x - mean) scale, scale = 1 / sqrt(variance + eps):
// dx = scale (g - mean_j g - n mean_j(g n)), dw = sum_r dy n, db = sum_r dy.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw, db: (columns).
// states: (rows, parts, 5), scratch.
//
// stage 6, split rows: a row of any length is split over `parts` blocks, each of which stores moments, and
// sums of g and g (x - mean), of its part. a block of the second kernel takes `part` vectors of columns of
// all rows: it combines the parts of each row, and then its groups of GROUP threads take rows alternately,
// write dx and add up dw and db.
//
// what it gains: few rows, one of 2^26 columns say, keep all multiprocessors busy; no block has dw and db of
// columns that another one has, too.
//
// what limits it: device memory, with two reads of both rows and one write: at most 3/5 of the speed of a
// kernel that reads once.
#include "tile/gradient_row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>, AT_ONCE = THREADS / GROUP;
constexpr int STEP = AT_ONCE * UNROLL;  // rows that a block loads at once
constexpr int ROWS = 256;               // of which it has the states
static_assert(ROWS % STEP == 0, "groups of a block times UNROLL have to be a power of two, at most 256");

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_parts(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                              GradientMoments::Value* __restrict__ states, int length, long long ldx,
                              int parts, int part) {
  __shared__ RowScratch<GradientMoments, THREADS> scratch;
  const int row = blockIdx.x / parts;
  const IN *from = x + row * ldx, *more = dy + row * ldx;
  const RowPart<WIDTH, EVEN> walk(from, length, blockIdx.x % parts, part);
  const int columns = walk.limit;  // of the part
  const IN outside = from_float<IN>(0.f);
  GradientMoments::Value state = GradientMoments::identity();
  for (int i = walk.first + threadIdx.x; i < walk.end; i += THREADS * VECTORS) {
    GradientRow<VECTORS, WIDTH, EVEN, IN> held;
    held.load(walk, from, more, i, THREADS);
    Vector<IN, WIDTH> weights[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u) weights[u] = walk.load(w, walk.column(i + u * THREADS), outside);
    state = GradientMoments::combine(
        state, gradient_moments(held, weights, walk.column(i), THREADS * WIDTH, columns));
  }
  state = row_reduce<GradientMoments, THREADS, THREADS>(state, scratch);
  if (threadIdx.x == 0) states[blockIdx.x] = state;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_gradients(const IN* __restrict__ x, const IN* __restrict__ w,
                                  const IN* __restrict__ dy,
                                  const GradientMoments::Value* __restrict__ states, OUT* __restrict__ dx,
                                  OUT* __restrict__ dw, OUT* __restrict__ db, int rows, int columns,
                                  long long ldx, long long ldy, int parts, int part, float eps) {
  __shared__ RowGradient of_rows[ROWS];
  __shared__ RowScratch<GradientMoments, THREADS> scratch;
  __shared__ GroupScratch<TwoSums, GROUP, THREADS, WIDTH> groups;
  const int group = threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  const RowPart<WIDTH, EVEN> walk(w, columns, blockIdx.x, part);
  const IN outside = from_float<IN>(0.f);
  for (int first = walk.first; first < walk.end; first += GROUP) {
    const int column = walk.column(first + member);
    const auto weights = walk.load(w, column, outside);
    TwoSums::Value sums[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sums[j] = TwoSums::identity();
    GradientRow<UNROLL, WIDTH, EVEN, IN> next;
    const auto load = [&](int from) {
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        const long long row = min(from + group + u * AT_ONCE, rows - 1);
        next.x[u] = walk.load(x + row * ldx, column, outside);
        next.dy[u] = walk.load(dy + row * ldx, column, outside);
      }
    };
    load(0);  // before the states of these rows are there
    for (int from = 0; from < rows; from += STEP) {
      if (from % ROWS == 0 &&
          (first == walk.first || rows > ROWS)) {  // otherwise the states are there already
        __syncthreads();
        combine_parts<GradientMoments, SHARE, THREADS>(
            states + static_cast<long long>(from) * parts, min(ROWS, rows - from), parts, scratch,
            [&](int row, GradientMoments::Value state) {
              const float scale = rsqrtf(state.x.squares / columns + eps);
              of_rows[row] = {state.x.mean, scale, state.of_g / columns, state.of_products * scale / columns};
            });
        __syncthreads();
      }
      const auto held = next;
      if (from < rows - STEP) load(from + STEP);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        const int row = from + group + u * AT_ONCE;
        if (row >= rows) continue;
        const RowGradient gradient = of_rows[row % ROWS];
        walk.store(dx + row * ldy, column, norm_gradient<OUT>(held.x[u], held.dy[u], weights, gradient));
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
          const float g = to_float(held.dy[u].x[j]);
          sums[j] = TwoSums::combine(sums[j], {g * gradient.normalised(to_float(held.x[u].x[j])), g});
        }
      }
    }
    add_up_groups<TwoSums, GROUP, THREADS>(sums, groups);
    if (group == 0) {
      Vector<OUT, WIDTH> of_w, of_b;
#pragma unroll
      for (int j = 0; j < WIDTH; ++j)
        of_w.x[j] = from_float<OUT>(sums[j].first), of_b.x[j] = from_float<OUT>(sums[j].second);
      walk.store(dw, column, of_w);
      walk.store(db, column, of_b);
    }
  }
}
