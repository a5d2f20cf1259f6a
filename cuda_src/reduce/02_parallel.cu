// y = the sum of x, or its maximum if MAXIMUM. x: (rows, columns), rows ldx elements apart. y: (rows) if x is
// reduced along the columns, (columns) if it is reduced along the rows, (1) if all elements are reduced.
//
// stage 2, parallel: the lanes of a warp read neighbouring elements. along the columns, a warp shares a row.
// along the rows, each lane has a column; the warps of a block take rows in turn, and add up in shared
// memory. if all elements are reduced, a second kernel combines the values of the rows.
//
// what it gains: a load needs few transactions, 32 times as many threads work, and several of them work on
// one element of y.
//
// what limits it: a lane loads one element at a time, so few bytes are in flight.
#include "tile/reduce_ops.cuh"

using Op = ReduceOp<MAXIMUM>;
constexpr int ROWS = THREADS / WARP;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

// along the columns; of float for what is combined later, else of OUT
template <class Out>
__device__ __forceinline__ void along_columns(const IN* x, Out* y, int rows, int columns, long long ldx) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  float value = Op::identity();
  for (int c = lane; c < columns; c += WARP) value = Op::combine(value, to_float(from[c]));
  value = warp_reduce<Op>(value);
  if (lane == 0) y[row] = from_float<Out>(value);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_columns(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx) {
  along_columns(x, y, rows, columns, ldx);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_columns_partial(const IN* __restrict__ x, float* __restrict__ y, int rows, int columns,
                           long long ldx) {
  along_columns(x, y, rows, columns, ldx);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_rows(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx) {
  __shared__ float partial[ROWS][WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = blockIdx.x * WARP + lane;
  float value = Op::identity();
  if (column < columns)
    for (int r = warp; r < rows; r += ROWS) value = Op::combine(value, to_float(x[r * ldx + column]));
  partial[warp][lane] = value;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
#pragma unroll
  for (int w = 1; w < ROWS; ++w) value = Op::combine(value, partial[w][lane]);
  y[column] = from_float<OUT>(value);
}

// what the blocks have left: `parts` values a row. a warp combines those of a row
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_combine(const float* __restrict__ partial, OUT* __restrict__ y, int outputs, int parts) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= outputs) return;
  float value = Op::identity();
  for (int i = lane; i < parts; i += WARP)
    value = Op::combine(value, partial[static_cast<long long>(row) * parts + i]);
  value = warp_reduce<Op>(value);
  if (lane == 0) y[row] = from_float<OUT>(value);
}
