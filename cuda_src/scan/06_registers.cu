// y[r, c] = sum_{j <= c} x[r, j]. x, y: (rows, columns), rows ldx and ldy elements apart.
//
// stage 6, registers: GROUP threads share a row, as many as can hold it in their registers. each of them
// holds VECTORS vectors. a short row has some lanes of a warp, a long row has a block. in each round, the
// threads load one vector each, and these vectors lie side by side.
//
// what it gains: all loads of a row are in flight before the first is used. there is one barrier a row. where
// rows are short, no lanes are idle.
//
// what limits it: device memory, while the row fits in a block.
#include "tile/row_scan.cuh"

constexpr int ROWS = THREADS / GROUP, WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_registers(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                   long long ldy) {
  __shared__ RoundsScratch<VECTORS, GROUP, THREADS> scratch;
  const int row = blockIdx.x * ROWS + threadIdx.x / GROUP, member = threadIdx.x % GROUP;
  // without a row of its own a group reads the last one: all lanes have to take part in shuffles
  const int held = min(row, rows - 1);
  const IN* from = x + held * ldx;
  OUT* to = y + held * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);

  Vector<IN, WIDTH> v[VECTORS];
  walk.load(v, from, member, GROUP, from_float<IN>(0.f));
  float before[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) before[i] = sum_vector(v[i]);
  scan_rounds<GROUP, THREADS>(before, scratch);
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i)
    walk.store(to, walk.column(member + i * GROUP), summed<OUT>(v[i], before[i]));
}
