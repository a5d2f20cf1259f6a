// y[r, c] = (x[r, c] - mean_r) w[c] / sqrt(variance_r + eps) + b[c]. x, y: (rows, columns), rows ldx and ldy
// elements apart; w, b: (columns).
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
    layer_norm_registers(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ b,
                         OUT* __restrict__ y, int rows, int columns, long long ldx, long long ldy,
                         float eps) {
  __shared__ RowScratch<Sum, THREADS> scratch[2];
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
  const RowVectors<VECTORS, WIDTH, EVEN, IN> biases(walk, b, member, GROUP, outside);
  const Moments::Value state =
      row_moments<EVEN, GROUP, THREADS>(v, walk.column(member), GROUP * WIDTH, columns, scratch);
  const float scale = rsqrtf(state.squares / columns + eps);
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = walk.column(member + i * GROUP);
    walk.store(to, column, standardized<OUT>(v[i], state.mean, scale, weights[i], biases[i]));
  }
}
