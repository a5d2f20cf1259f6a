// y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r). x, y: (rows, columns), rows ldx and ldy elements
// apart.
//
// stage 5, registers: GROUP threads share a row, as many as can hold it in their registers. each of them
// holds VECTORS vectors. a short row has some lanes of a warp, a long row has a block.
//
// what it gains: there is one read of the row and one write, which is the least possible. all loads of a
// thread are in flight before the first is used.
//
// what limits it: device memory, while the row fits in a block. blocks that hold long rows are large, and few
// fit on a multiprocessor. so while they store, few others load.
#include "tile/softmax_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS, ROW_RESIDENT<THREADS, VECTORS, EVEN>)
    softmax_registers(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                      long long ldy) {
  __shared__ RowScratch<ExpSum, THREADS> scratch;
  const int row = blockIdx.x * ROWS + threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const int held = min(row, rows - 1);
  const IN* from = x + held * ldx;
  OUT* to = y + held * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN masked = from_float<IN>(-infinity());

  Vector<IN, WIDTH> v[VECTORS];
  walk.load(v, from, member, GROUP, masked);
  const HeldExps<VECTORS, WIDTH> own(v);
  const float scale = own.scale(row_reduce<ExpSum, GROUP, THREADS>(own.state, scratch));
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i)
    walk.store(to, walk.column(member + i * GROUP), own.probabilities<OUT>(i, scale));
}
