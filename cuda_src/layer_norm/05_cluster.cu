// y[r, c] = (x[r, c] - mean_r) w[c] / sqrt(variance_r + eps) + b[c]. x, y: (rows, columns), rows ldx and ldy
// elements apart; w, b: (columns).
//
// stage 5, cluster: the BLOCKS blocks of a cluster share a row, each with its vectors in registers. they
// exchange mean and variance through distributed shared memory. with one block a row this is stage 4.
//
// what it gains: rows that do not fit into one block are read once, too. several small blocks hold a long
// row, and a multiprocessor has several of them at different points of their work.
//
// what limits it: device memory, while there are enough rows for all multiprocessors.
#include "tile/cluster_reduce.cuh"
#include "tile/norm_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;
static_assert(BLOCKS == 1 || GROUP == THREADS, "a cluster takes one row");

extern "C" __global__ void __cluster_dims__(BLOCKS) __launch_bounds__(THREADS)
    layer_norm_cluster(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ b,
                       OUT* __restrict__ y, int rows, int columns, long long ldx, long long ldy, float eps) {
  __shared__ MomentsScratch<THREADS> scratch;
  __shared__ ClusterScratch<Moments, BLOCKS> others;
  if constexpr (BLOCKS > 1) cluster_started();
  const int row = blockIdx.x / BLOCKS * ROWS + threadIdx.x / GROUP;
  const int member = blockIdx.x % BLOCKS * GROUP + threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const int held = min(row, rows - 1);
  const IN* from = x + held * ldx;
  OUT* to = y + held * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN outside = from_float<IN>(0.f);

  Vector<IN, WIDTH> v[VECTORS];
  walk.load(v, from, member, GROUP * BLOCKS, outside);
  const RowVectors<VECTORS, WIDTH, EVEN, IN> weights(walk, w, member, GROUP * BLOCKS, outside);
  const RowVectors<VECTORS, WIDTH, EVEN, IN> biases(walk, b, member, GROUP * BLOCKS, outside);
  Moments::Value state =
      held_moments<EVEN, GROUP, THREADS>(v, walk.column(member), GROUP * BLOCKS * WIDTH, columns, scratch);
  state = cluster_reduce<Moments, BLOCKS>(state, others);
  const float scale = rsqrtf(state.squares / columns + eps);
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP * BLOCKS);
    walk.store(to, column, standardized<OUT>(v[i], state.mean, scale, weights[i], biases[i]));
  }
}
