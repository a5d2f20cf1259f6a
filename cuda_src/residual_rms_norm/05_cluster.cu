// s[r, c] = x[r, c] + residual[r, c]; y[r, c] = s[r, c] w[c] / sqrt(mean_j s[r, j]^2 + eps), of s as it is
// stored. x, residual, s, y: (rows, columns), rows ldx (of the first two) and ldy elements apart; w:
// (columns).
//
// stage 5, cluster: the BLOCKS blocks of a cluster share a row, each with its vectors in registers. they
// exchange the sum of squares through distributed shared memory. with one block a row this is stage 4.
//
// what it gains: rows that do not fit into one block are read once, too. several small blocks hold a long
// row, and a multiprocessor has several of them at different points of their work.
//
// what limits it: device memory, while there are enough rows for all multiprocessors.
#include "tile/cluster_reduce.cuh"
#include "tile/norm_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;
static_assert(BLOCKS == 1 || GROUP == THREADS, "a cluster takes one row");

extern "C" __global__ void __cluster_dims__(BLOCKS) __launch_bounds__(THREADS, 1)
    residual_rms_norm_cluster(const IN* __restrict__ x, const IN* __restrict__ residual,
                              const IN* __restrict__ w, IN* __restrict__ s, OUT* __restrict__ y, int rows,
                              int columns, long long ldx, long long ldy, float eps) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  __shared__ ClusterScratch<Sum, BLOCKS> others;
  if constexpr (BLOCKS > 1) cluster_started();
  const int row = blockIdx.x / BLOCKS * ROWS + threadIdx.x / GROUP;
  const int member = blockIdx.x % BLOCKS * GROUP + threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const int held = min(row, rows - 1);
  const IN *from = x + held * ldx, *more = residual + held * ldx;
  IN* sums = s + held * ldy;
  OUT* to = y + held * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN outside = from_float<IN>(0.f);

  Vector<IN, WIDTH> v[VECTORS];
  walk.load(v, from, member, GROUP * BLOCKS, outside);
  const RowVectors<VECTORS, WIDTH, EVEN, IN> weights(walk, w, member, GROUP * BLOCKS, outside);
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP * BLOCKS);
    v[i] = added(v[i], walk.load(more, column, outside));
    if (row < rows) walk.store(sums, column, v[i]);
  }
  float squares = row_reduce<Sum, GROUP, THREADS>(sum_squares(v), scratch);
  squares = cluster_reduce<Sum, BLOCKS>(squares, others);
  const float scale = rsqrtf(squares / columns + eps);
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP * BLOCKS);
    walk.store(to, column, scaled<OUT>(v[i], scale, weights[i]));
  }
}
