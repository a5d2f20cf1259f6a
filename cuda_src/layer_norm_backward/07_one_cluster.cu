// gradient of layer norm, of which g = w dy, n = (x - mean) scale, scale = 1 / sqrt(variance + eps):
// dx = scale (g - mean_j g - n mean_j(g n)), dw = sum_r dy n, db = sum_r dy.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw, db: (columns).
//
// stage 7, one cluster: the BLOCKS blocks of one cluster, or a single block, take all rows. each block adds
// up dw and db as in stage 4, and leaves these sums in its shared memory. then each block has a share of the
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
    layer_norm_backward_one_cluster(const IN* __restrict__ x, const IN* __restrict__ w,
                                    const IN* __restrict__ dy, OUT* __restrict__ dx, OUT* __restrict__ dw,
                                    OUT* __restrict__ db, int rows, int columns, long long ldx, long long ldy,
                                    float eps) {
  __shared__ RowScratch<Sum, THREADS> statistics[2];  // alternating: a fast warp may be one row ahead
  __shared__ RowScratch<ThreeSums, THREADS> scratch[2];
  __shared__ GroupScratch<TwoSums, GROUP, THREADS, COUNT> groups;
  __shared__ float kept[2][BLOCKS > 1 ? GROUP * COUNT : 1];  // of every column
  if constexpr (BLOCKS > 1) cluster_started();
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
    const float mean = row_reduce<Sum, GROUP, THREADS>(sum_elements(held.x), statistics[buffer]) * share;
    ThreeSums::Value part = ThreeSums::identity();
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int column = walk.column(member + i * GROUP);
      add_centred_sums<EVEN>(part, held.x[i], held.dy[i], weights[i], mean, column, columns);
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
      walk.store(to, column, norm_gradients<OUT>(held.x[i], held.dy[i], weights[i], gradient, i, sums));
    }
  }
  add_up_groups<TwoSums, GROUP, THREADS>(sums, groups);
  if constexpr (BLOCKS == 1) {
    if (group > 0) return;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      Vector<OUT, WIDTH> of_w, of_b;
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        of_w.x[j] = from_float<OUT>(sums[i * WIDTH + j].first);
        of_b.x[j] = from_float<OUT>(sums[i * WIDTH + j].second);
      }
      walk.store(dw, walk.column(member + i * GROUP), of_w);
      walk.store(db, walk.column(member + i * GROUP), of_b);
    }
    return;
  }
  if (group == 0)
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int column = walk.column(member + i / WIDTH * GROUP) + i % WIDTH;
      kept[0][column] = sums[i].first, kept[1][column] = sums[i].second;
    }
  cluster_sync();
  for (int column = blockIdx.x * THREADS + threadIdx.x; column < columns; column += BLOCKS * THREADS) {
    float of_w = 0.f, of_b = 0.f;
#pragma unroll
    for (int rank = 0; rank < BLOCKS; ++rank) {
      of_w += cluster_load(&kept[0][column], rank);
      of_b += cluster_load(&kept[1][column], rank);
    }
    dw[column] = from_float<OUT>(of_w), db[column] = from_float<OUT>(of_b);
  }
  cluster_sync();  // no block ends before the others have read
}
