// gradient of rms norm, of which g = w dy, n = x scale, scale = 1 / sqrt(mean_j x^2 + eps):
// dx = scale (g - n mean_j(g n)), dw = sum_r dy n.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw: (columns).
// partial: (blocks, columns), scratch.
//
// stage 5, cluster: the BLOCKS blocks of a cluster share long rows. they exchange their parts of a row's sums
// through distributed shared memory. every block keeps dw of its own columns. with one block a row this is
// stage 4.
//
// what it gains: rows that do not fit into one block are read once, too. several small blocks share a row and
// its sums, which leaves registers for the next row.
//
// what limits it: device memory, while there are enough rows for all clusters. each row waits for the slowest
// block of its cluster.
#include "tile/cluster_reduce.cuh"
#include "tile/gradient_row.cuh"

constexpr int ROWS = THREADS / GROUP, STEP = GROUP * BLOCKS, WIDTH = ROW_WIDTH<IN, OUT>,
              COUNT = VECTORS * WIDTH,
              PLACES = STEP * COUNT;  // for sums, of which those behind the last column are empty
static_assert(BLOCKS == 1 || GROUP == THREADS, "a cluster takes one row");

extern "C" __global__ void __cluster_dims__(BLOCKS) __launch_bounds__(THREADS, RESIDENT)
    rms_norm_backward_cluster(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                              OUT* __restrict__ dx, float* __restrict__ partial, int rows, int columns,
                              long long ldx, long long ldy, float eps) {
  __shared__ RowScratch<TwoSums, THREADS> scratch[2];  // alternating: a fast warp may be one row ahead
  __shared__ ClusterInbox<BLOCKS> inbox;
  __shared__ GroupScratch<Sum, GROUP, THREADS, COUNT> groups;
  ClusterReductions<BLOCKS> cluster(inbox);
  const int group = threadIdx.x / GROUP, member = cluster_rank_of<BLOCKS>() * GROUP + threadIdx.x % GROUP;
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
    to.load(walk, x + row * ldx, dy + row * ldx, member, STEP);
  };
  const int begin = blockIdx.x / BLOCKS * ROWS, step = gridDim.x / BLOCKS * ROWS;
  if (AHEAD) load(next, begin);
  int buffer = 0;
  for (int first = begin; first < rows; first += step, buffer ^= 1) {
    if (AHEAD) {
      held = next;
      load(next, first < rows - step ? first + step : first);
    } else {
      load(held, first);
    }
    TwoSums::Value whole = TwoSums::identity();
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
      add_uncentred_sums(whole, held.x[i], held.dy[i], walk.load(w, walk.column(member + i * STEP), outside));
    whole = row_reduce<TwoSums, GROUP, THREADS>(whole, scratch[buffer]);
    whole = cluster.reduce<TwoSums>(whole);
    const float scale = rsqrtf(whole.first * share + eps);
    const int row = first + group;
    if (row >= rows) continue;
    OUT* const to = dx + row * ldy;
    const RowGradient gradient = {0.f, scale, 0.f, whole.second * scale * share};
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int column = walk.column(member + i * STEP);
      walk.store(
          to, column,
          norm_gradients<OUT>(held.x[i], held.dy[i], walk.load(w, column, outside), gradient, i, sums));
    }
  }
  add_up_groups<Sum, GROUP, THREADS>(sums, groups);
  if (group == 0)
    keep_sums<STEP, WIDTH>(partial + static_cast<long long>(blockIdx.x / BLOCKS) * PLACES, sums, member,
                           columns);
}

extern "C" __global__ void __launch_bounds__(ADDERS)
    rms_norm_backward_combine(const float* __restrict__ partial, OUT* __restrict__ dw, int columns,
                              int parts) {
  __shared__ float scratch[ADDERS];
  const int place = blockIdx.x * ADDED + threadIdx.x % ADDED, column = kept_column<STEP, WIDTH>(place);
  const bool found = column < columns;
  const float sum = add_up_kept<Sum, ADDED, PLACES>(partial, place, found ? parts : 0, scratch);
  if (found && threadIdx.x < ADDED) dw[column] = from_float<OUT>(sum);
}
