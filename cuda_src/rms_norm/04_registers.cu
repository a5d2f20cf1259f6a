// y[r, c] = x[r, c] w[c] / sqrt(mean_j x[r, j]^2 + eps). x, y: (rows, columns), rows ldx and ldy elements
// apart; w: (columns).
//
// stage 4, registers: GROUP threads share a row, as many as can hold it in their registers. each of them
// holds VECTORS vectors. a short row has some lanes of a warp, a long row has a block.
//
// what it gains: there is one read and one write, which is the least possible. all loads of a thread are in
// flight before the first is used.
//
// what limits it: device memory, while the row fits in a block. blocks that hold long rows are large, and few
// fit on a multiprocessor. so while they store, few others load.
#include "tile/norm_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS, ROW_RESIDENT<THREADS, VECTORS, EVEN>)
    rms_norm_registers(const IN* __restrict__ x, const IN* __restrict__ w, OUT* __restrict__ y, int rows,
                       int columns, long long ldx, long long ldy, float eps) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  const int row = blockIdx.x * ROWS + threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const int held = min(row, rows - 1);
  const IN* from = x + held * ldx;
  OUT* to = y + held * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN outside = from_float<IN>(0.f);

  Vector<IN, WIDTH> v[VECTORS];
  walk.load(v, from, member, GROUP, outside);
  const RowVectors<VECTORS, WIDTH, EVEN, IN> weights(walk, w, member, GROUP, outside);
  const float squares = row_reduce<Sum, GROUP, THREADS>(sum_squares(v), scratch);
  const float scale = rsqrtf(squares / columns + eps);
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP);
    walk.store(to, column, scaled<OUT>(v[i], scale, weights[i]));
  }
}
