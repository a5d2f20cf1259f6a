// dx[r, c] = y[r, c] (dy[r, c] - sum_j y[r, j] dy[r, j]): gradient of softmax, of which y is the result.
// y, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart.
//
// stage 4, registers: GROUP threads share a row, as many as can hold both y and dy in their registers. each
// of them holds VECTORS vectors of y and as many of dy.
//
// what it gains: there is one read and one write, which is the least possible. all loads of a thread are in
// flight at once.
//
// what limits it: device memory, while the row fits in a block.
#include "tile/gradient_row.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_backward_registers(const IN* __restrict__ y, const IN* __restrict__ dy, OUT* __restrict__ dx,
                               int rows, int columns, long long ldx, long long ldy) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  const int row = blockIdx.x * ROWS + threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const int held = min(row, rows - 1);
  const IN *from = y + held * ldx, *more = dy + held * ldx;
  OUT* to = dx + held * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  const IN outside = from_float<IN>(0.f);

  Vector<IN, WIDTH> a[VECTORS], b[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP);
    a[i] = walk.load(from, column, outside);
    b[i] = walk.load(more, column, outside);
  }
  float dot = row_reduce<Sum, GROUP, THREADS>(sum_products(a, b), scratch);
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP);
    walk.store(to, column, softmax_gradient<OUT>(a[i], b[i], dot));
  }
}
