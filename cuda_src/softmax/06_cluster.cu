// y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r). x, y: (rows, columns), rows ldx and ldy elements
// apart.
//
// stage 6, cluster: the BLOCKS blocks of a cluster share a row, each with its vectors in registers. they
// exchange their maxima and sums through distributed shared memory. with one block a row this is stage 5.
//
// what it gains: rows that do not fit into one block are read once, too. several small blocks hold a long
// row, and a multiprocessor has several of them at different points of their work.
//
// what limits it: device memory, while there are enough rows for all multiprocessors.
#include "tile/cluster_reduce.cuh"
#include "tile/softmax_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;
static_assert(BLOCKS == 1 || GROUP == THREADS, "a cluster takes one row");

extern "C" __global__ void __cluster_dims__(BLOCKS) __launch_bounds__(THREADS)
    softmax_cluster(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                    long long ldy) {
  __shared__ RowScratch<ExpSum, THREADS> scratch;
  __shared__ ClusterScratch<ExpSum, BLOCKS> others;
  if constexpr (BLOCKS > 1) cluster_started();
  const int row = blockIdx.x / BLOCKS * ROWS + threadIdx.x / GROUP;
  const int member = blockIdx.x % BLOCKS * GROUP + threadIdx.x % GROUP;
  const int held = min(row, rows - 1);
  const IN* from = x + held * ldx;
  OUT* to = y + held * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);

  Vector<IN, WIDTH> v[VECTORS];
  walk.load(v, from, member, GROUP * BLOCKS, from_float<IN>(-infinity()));
  const HeldExps<VECTORS, WIDTH> own(v);
  const ExpSum::Value state = row_reduce<ExpSum, GROUP, THREADS>(own.state, scratch);
  const float scale = own.scale(cluster_reduce<ExpSum, BLOCKS>(state, others));
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i)
    walk.store(to, walk.column(member + i * GROUP * BLOCKS), own.probabilities<OUT>(i, scale));
}
