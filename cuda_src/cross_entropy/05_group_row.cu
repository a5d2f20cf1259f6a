// loss[r] = log sum_j e^(x[r, j]) - x[r, labels[r]], 0 where the label is below 0; lse[r]: that logarithm.
// x: (rows, columns), rows ldx elements apart; labels, loss, lse: (rows).
//
// stage 5, a group a row: GROUP threads share a row, as many as the row has work for. a short row has some
// lanes of a warp. a long row has a block, whose warps combine their pairs of maximum and sum through shared
// memory.
//
// what it gains: each page of the memory is read in longer runs. where rows are too few to fill the device
// with warps, there are enough threads. where rows are short, no lanes are idle.
//
// what limits it: device memory, if there are many rows.
#include "tile/cross_entropy.cuh"
#include "tile/softmax_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN>;

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_group_row(const IN* __restrict__ x, const int* __restrict__ labels,
                            float* __restrict__ loss, float* __restrict__ lse, int rows, int columns,
                            long long ldx) {
  __shared__ RowScratch<ExpSum, THREADS> scratch;
  const int row = blockIdx.x * ROWS + threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const IN* from = x + min(row, rows - 1) * ldx;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  // the label comes with the row, and its logit while the threads reduce: neither is waited for alone
  const bool stores = member == 0 && row < rows;
  const int label = stores ? labels[row] : -1;

  ExpSum::Value state = ExpSum::identity();
  for (int i = member; walk.column(i) < columns; i += GROUP * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
    walk.load(v, from, i, GROUP, from_float<IN>(-infinity()));
    state = ExpSum::combine(state, exp_sum(v));
  }
  const float logit = logit_of(from, label);
  state = row_reduce<ExpSum, GROUP, THREADS>(state, scratch);
  if (stores) store_loss(&loss[row], &lse[row], label, logit, state);
}
