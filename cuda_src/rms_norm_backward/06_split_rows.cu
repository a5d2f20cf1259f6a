// gradient of rms norm, of which g = w dy, n = x scale, scale = 1 / sqrt(mean_j x^2 + eps):
// dx = scale (g - n mean_j(g n)), dw = sum_r dy n.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw: (columns).
// states: (rows, parts, 2), scratch.
//
// stage 6, split rows: a row of any length is split over `parts` blocks. of its part, each block stores the
// sums of x^2 and of g x. a block of the second kernel takes `part` vectors of columns, of all rows. it first
// combines the parts of each row. then its groups of GROUP threads take rows in turn, write dx and add up dw.
//
// what it gains: few rows, such as one of 2^26 columns, keep all multiprocessors busy. no two blocks add up
// dw of the same columns.
//
// what limits it: device memory. both rows are read twice and one is written, so the speed is at most 3/5 of
// that of a kernel that reads once.
#include "tile/gradient_row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>, AT_ONCE = THREADS / GROUP;
constexpr int ROWS = 256;  // of which a block has the states at once

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_backward_parts(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                            TwoSums::Value* __restrict__ states, int columns, long long ldx, int parts,
                            int part) {
  __shared__ RowScratch<TwoSums, THREADS> scratch;
  const int row = blockIdx.x / parts;
  const long long at = row * ldx;
  const RowPart<WIDTH, EVEN> walk(x + at, columns, blockIdx.x % parts, part);
  const IN outside = from_float<IN>(0.f);
  Running<TwoSums> sums;
  for (int i = walk.first + threadIdx.x; i < walk.end; i += THREADS * VECTORS) {
    GradientRow<VECTORS, WIDTH, EVEN, IN> held;
    held.load(walk, x + at, dy + at, i, THREADS);
    Vector<IN, WIDTH> weights[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u) weights[u] = walk.load(w, walk.column(i + u * THREADS), outside);
    TwoSums::Value found = TwoSums::identity();
#pragma unroll
    for (int u = 0; u < VECTORS; ++u) add_uncentred_sums(found, held.x[u], held.dy[u], weights[u]);
    sums.add(found);
  }
  const TwoSums::Value sum = row_reduce<TwoSums, THREADS, THREADS>(sums.value(), scratch);
  if (threadIdx.x == 0) states[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_backward_gradients(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                                const TwoSums::Value* __restrict__ states, OUT* __restrict__ dx,
                                OUT* __restrict__ dw, int rows, int columns, long long ldx, long long ldy,
                                int parts, int part, float eps) {
  __shared__ RowGradient of_rows[ROWS];
  __shared__ RowScratch<TwoSums, THREADS> scratch;
  __shared__ GroupScratch<Sum, GROUP, THREADS, WIDTH> groups;
  const int group = threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  const RowPart<WIDTH, EVEN> walk(w, columns, blockIdx.x, part);
  const IN outside = from_float<IN>(0.f);
  for (int first = walk.first; first < walk.end; first += GROUP) {
    const int column = walk.column(first + member);
    const auto weights = walk.load(w, column, outside);
    Sum::Value sums[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sums[j] = Sum::identity();
    for (int from = 0; from < rows; from += ROWS) {
      const int many = min(ROWS, rows - from);
      if (first == walk.first || rows > ROWS) {  // otherwise the states are there already
        __syncthreads();
        combine_parts<TwoSums, SHARE, THREADS>(states + static_cast<long long>(from) * parts, many, parts,
                                               scratch, [&](int row, TwoSums::Value state) {
                                                 const float scale = rsqrtf(state.first / columns + eps);
                                                 of_rows[row] = {0.f, scale, 0.f,
                                                                 state.second * scale / columns};
                                               });
        __syncthreads();
      }
#pragma unroll UNROLL
      for (int r = group; r < many; r += AT_ONCE) {
        const long long row = from + r;
        RowGradient gradient = of_rows[r];
        gradient.mean = gradient.of_g = 0.f;
        const auto v = walk.load(x + row * ldx, column, outside),
                   d = walk.load(dy + row * ldx, column, outside);
        walk.store(dx + row * ldy, column, norm_gradients<OUT>(v, d, weights, gradient, 0, sums));
      }
    }
    add_up_groups<Sum, GROUP, THREADS>(sums, groups);
    if (group == 0) {
      Vector<OUT, WIDTH> sum;
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) sum.x[j] = from_float<OUT>(sums[j]);
      walk.store(dw, column, sum);
    }
  }
}
