// dx[r, c] = y[r, c] (dy[r, c] - sum_j y[r, j] dy[r, j]): gradient of softmax, of which y is the result.
// y, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart.
//
// stage 5, cluster: the BLOCKS blocks of a cluster share a row. they exchange their sums through distributed
// shared memory. with one block a row this is stage 4.
//
// what it gains: rows that do not fit into one block are read once, too.
//
// what limits it: device memory, while there are enough rows for all multiprocessors.
#include "tile/cluster_reduce.cuh"
#include "tile/gradient_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;
static_assert(BLOCKS == 1 || GROUP == THREADS, "a cluster takes one row");

extern "C" __global__ void __cluster_dims__(BLOCKS) __launch_bounds__(THREADS)
    softmax_backward_cluster(const IN* __restrict__ y, const IN* __restrict__ dy, OUT* __restrict__ dx,
                             int rows, int columns, long long ldx, long long ldy) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  __shared__ ClusterScratch<Sum, BLOCKS> others;
  if constexpr (BLOCKS > 1) cluster_started();
  const int row = blockIdx.x / BLOCKS * ROWS + threadIdx.x / GROUP;
  const int member = blockIdx.x % BLOCKS * GROUP + threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const int held = min(row, rows - 1);
  const IN *from = y + held * ldx, *more = dy + held * ldx;
  OUT* to = dx + held * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN outside = from_float<IN>(0.f);

  Vector<IN, WIDTH> a[VECTORS], b[VECTORS];
  walk.load(a, from, member, GROUP * BLOCKS, outside);
  walk.load(b, more, member, GROUP * BLOCKS, outside);
  float dot = row_reduce<Sum, GROUP, THREADS>(sum_products(a, b), scratch);
  dot = cluster_reduce<Sum, BLOCKS>(dot, others);
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i)
    walk.store(to, walk.column(member + i * GROUP * BLOCKS), softmax_gradient<OUT>(a[i], b[i], dot));
}
