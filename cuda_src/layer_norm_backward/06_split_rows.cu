// gradient of layer norm, of which g = w dy, n = (x - mean) scale, scale = 1 / sqrt(variance + eps):
// dx = scale (g - mean_j g - n mean_j(g n)), dw = sum_r dy n, db = sum_r dy.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw, db: (columns).
// states: (rows, parts, 5), scratch.
//
// stage 6, split rows: a row of any length is split over `parts` blocks. of its part, each block stores the
// moments, and the sums of g and of g (x - mean). a block of the second kernel takes `part` vectors of
// columns, of all rows. it first combines the parts of each row. then its groups of GROUP threads take rows
// in turn, write dx and add up dw and db.
//
// what it gains: few rows, such as one of 2^26 columns, keep all multiprocessors busy. no two blocks add up
// dw and db of the same columns.
//
// what limits it: device memory. both rows are read twice and one is written, so the speed is at most 3/5 of
// that of a kernel that reads once.
#include "tile/gradient_row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>, AT_ONCE = THREADS / GROUP;
constexpr int ROWS = 256;  // of which a block has the states at once

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_parts(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                              GradientMoments::Value* __restrict__ states, int length, long long ldx,
                              int parts, int vectors) {
  __shared__ GradientScratch<THREADS> scratch;
  const int row = blockIdx.x / parts;
  const long long at = row * ldx;
  const RowPart<WIDTH, EVEN> walk(x + at, length, blockIdx.x % parts, vectors);
  const int columns = walk.limit;  // of the part
  const IN outside = from_float<IN>(0.f);
  GradientMoments::Value state = GradientMoments::identity();
  for (int member = walk.first + threadIdx.x; member < walk.end; member += THREADS * VECTORS) {
    GradientRow<VECTORS, WIDTH, EVEN, IN> held;
    held.load(walk, x + at, dy + at, member, THREADS);
    Vector<IN, WIDTH> weights[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) weights[i] = walk.load(w, walk.column(member + i * THREADS), outside);
    const TwoSums::Value own = counted_sum<EVEN>(held.x, walk.column(member), THREADS * WIDTH, columns);
    const float mean = own.first > 0.f ? own.second / own.first : 0.f;
    ThreeSums::Value part = ThreeSums::identity();
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int column = walk.column(member + i * THREADS);
      add_centred_sums<EVEN>(part, held.x[i], held.dy[i], weights[i], mean, column, columns);
    }
    state = GradientMoments::combine(state, {{own.first, mean, part.first}, part.second, part.third});
  }
  state = reduce_states<THREADS>(state, scratch);
  if (threadIdx.x == 0) states[blockIdx.x] = state;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_backward_gradients(const IN* __restrict__ x, const IN* __restrict__ w,
                                  const IN* __restrict__ dy,
                                  const GradientMoments::Value* __restrict__ states, OUT* __restrict__ dx,
                                  OUT* __restrict__ dw, OUT* __restrict__ db, int rows, int columns,
                                  long long ldx, long long ldy, int parts, int part, float eps) {
  __shared__ RowGradient of_rows[ROWS];
  __shared__ GradientScratch<THREADS> scratch;
  __shared__ RowScratch<Sum, THREADS> statistics;
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
    for (int from = 0; from < rows; from += ROWS) {
      const int many = min(ROWS, rows - from);
      if (first == walk.first || rows > ROWS) {  // otherwise the states are there already
        bool infinite = false;
        __syncthreads();
        combine_parts<GradientMoments, SHARE, THREADS>(
            states + static_cast<long long>(from) * parts, many, parts, scratch,
            [&](int row, GradientMoments::Value state) {
              const float scale = rsqrtf(state.x.squares / columns + eps);
              of_rows[row] = {state.x.mean, scale, state.of_g / columns, state.of_products * scale / columns};
              infinite |= isinf(state.of_g);
            });
        if (__syncthreads_or(infinite))
          retake_infinite<THREADS>(of_rows, many, x + from * ldx, dy + from * ldx, w, columns, ldx,
                                   statistics);
      }
#pragma unroll UNROLL
      for (int r = group; r < many; r += AT_ONCE) {
        const long long row = from + r;
        const RowGradient gradient = of_rows[r];
        const auto v = walk.load(x + row * ldx, column, outside),
                   d = walk.load(dy + row * ldx, column, outside);
        walk.store(dx + row * ldy, column, norm_gradients<OUT>(v, d, weights, gradient, 0, sums));
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
