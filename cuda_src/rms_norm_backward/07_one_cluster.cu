// gradient of rms norm, of which g = w dy, n = x scale, scale = 1 / sqrt(mean_j x^2 + eps):
// dx = scale (g - n mean_j(g n)), dw = sum_r dy n.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw: (columns).
//
// stage 7, one cluster: the BLOCKS blocks of one cluster, or a single block, take all rows. each block adds
// up dw as in stage 4, and leaves these sums in its shared memory. then each block has a share of the
// columns, and adds up the sums of all blocks for them. vectors are as narrow as in stage 4.
//
// what it gains: there is one launch instead of two. where a matrix is small, a second launch takes longer
// than the work. nothing is stored in between. the weights are loaded together with the first row.
//
// what limits it: a cluster has at most eight blocks, so at most eight multiprocessors work.
#include "tile/cluster_reduce.cuh"
#include "tile/gradient_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>, COUNT = VECTORS * WIDTH;

extern "C" __global__ void __cluster_dims__(BLOCKS) __launch_bounds__(THREADS, 1)
    rms_norm_backward_one_cluster(const IN* __restrict__ x, const IN* __restrict__ w,
                                  const IN* __restrict__ dy, OUT* __restrict__ dx, OUT* __restrict__ dw,
                                  int rows, int columns, long long ldx, long long ldy, float eps) {
  __shared__ RowScratch<TwoSums, THREADS> scratch[2];  // alternating: a fast warp may be one row ahead
  __shared__ GroupScratch<Sum, GROUP, THREADS, COUNT> groups;
  __shared__ float kept[1][BLOCKS > 1 ? GROUP * COUNT : 1];  // of every column
  if constexpr (BLOCKS > 1) cluster_started();
  const int group = threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  const RowWalk<WIDTH, EVEN> walk(w, columns);  // of every row a thread has the same columns
  const IN outside = from_float<IN>(0.f);
  const float share = 1.f / columns;
  float sums[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] = Sum::identity();

  GradientRow<VECTORS, WIDTH, EVEN, IN> held, next;
  const auto load = [&](GradientRow<VECTORS, WIDTH, EVEN, IN>& to, int first) {
    // without a row of its own a group reads the last one: all lanes have to take part in shuffles
    const long long row = min(first + group, rows - 1);
    to.load(walk, x + row * ldx, dy + row * ldx, member, GROUP);
  };
  constexpr int step = BLOCKS * ROWS;
  Vector<IN, WIDTH> weights[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) weights[i] = walk.load(w, walk.column(member + i * GROUP), outside);
  if (AHEAD) load(next, blockIdx.x * ROWS);
  int buffer = 0;
  for (int first = blockIdx.x * ROWS; first < rows; first += step, buffer ^= 1) {
    if (AHEAD) {
      held = next;
      load(next, first < rows - step ? first + step : first);
    } else {
      load(held, first);
    }
    TwoSums::Value whole = TwoSums::identity();
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) add_uncentred_sums(whole, held.x[i], held.dy[i], weights[i]);
    whole = row_reduce<TwoSums, GROUP, THREADS>(whole, scratch[buffer]);
    const float scale = rsqrtf(whole.first * share + eps);
    const int row = first + group;
    if (row >= rows) continue;
    OUT* const to = dx + row * ldy;
    const RowGradient gradient = {0.f, scale, 0.f, whole.second * scale * share};
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int column = walk.column(member + i * GROUP);
      walk.store(to, column, norm_gradients<OUT>(held.x[i], held.dy[i], weights[i], gradient, i, sums));
    }
  }
  add_up_groups<Sum, GROUP, THREADS>(sums, groups);
  if constexpr (BLOCKS == 1) {
    if (group > 0) return;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      Vector<OUT, WIDTH> of_w;
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) of_w.x[j] = from_float<OUT>(sums[i * WIDTH + j]);
      walk.store(dw, walk.column(member + i * GROUP), of_w);
    }
    return;
  }
  if (group == 0)
#pragma unroll
    for (int i = 0; i < COUNT; ++i) kept[0][walk.column(member + i / WIDTH * GROUP) + i % WIDTH] = sums[i];
  cluster_sync();
  for (int column = blockIdx.x * THREADS + threadIdx.x; column < columns; column += BLOCKS * THREADS) {
    float sum = 0.f;
#pragma unroll
    for (int rank = 0; rank < BLOCKS; ++rank) sum += cluster_load(&kept[0][column], rank);
    dw[column] = from_float<OUT>(sum);
  }
  cluster_sync();  // no block ends before the others have read
}
