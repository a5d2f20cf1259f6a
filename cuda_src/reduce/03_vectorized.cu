// y = the sum of x, or its maximum if MAXIMUM. x: (rows, columns), rows ldx elements apart. y: (rows) if x is
// reduced along the columns, (columns) if it is reduced along the rows, (1) if all elements are reduced.
//
// stage 3, vectorized: a lane loads VECTORS vectors of 16 bytes before it uses the first. along the rows, a
// lane reduces all columns of its vector. if all elements are reduced, a matrix without padding counts as one
// long row, which is reduced in stretches.
//
// what it gains: one instruction loads 8 elements (4 of fp32), and enough bytes are in flight.
//
// what limits it: if y has few elements, few warps or blocks work.
#include "tile/reduce_ops.cuh"

using Op = ReduceOp<MAXIMUM>;
constexpr int ROWS = THREADS / WARP, WIDTH = ROW_WIDTH<IN>;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

// along the columns, or of all the rows of a matrix that has `total` elements from its first to its last
template <class Out>
__device__ __forceinline__ void along_columns(const IN* x, Out* y, int rows, int columns, long long ldx,
                                              long long total) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  const int length = static_cast<int>(min(static_cast<long long>(columns), total - row * ldx));
  const RowWalk<WIDTH, EVEN> walk(from, length);
  float value = Op::identity();
  for (int i = lane; walk.column(i) < length; i += WARP * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u)
      v[u] = walk.load(from, walk.column(i + u * WARP), from_float<IN>(Op::identity()));
    value = reduced<Op>(value, v);
  }
  value = warp_reduce<Op>(value);
  if (lane == 0) y[row] = from_float<Out>(value);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_columns(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                   long long total) {
  along_columns(x, y, rows, columns, ldx, total);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_columns_partial(const IN* __restrict__ x, float* __restrict__ y, int rows, int columns,
                           long long ldx, long long total) {
  along_columns(x, y, rows, columns, ldx, total);
}

// along the rows `first` to `last`: each lane has the WIDTH columns of a vector, the warps take rows
// alternately
template <class Out>
__device__ __forceinline__ void along_rows(const IN* x, Out* y, int first, int last, int columns,
                                           long long ldx, int tile) {
  __shared__ float partial[ROWS][WARP * WIDTH];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = (tile * WARP + lane) * WIDTH;
  const bool aligned = ldx % WIDTH == 0;
  const IN outside = from_float<IN>(Op::identity());
  float value[WIDTH];
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) value[j] = Op::identity();
  for (int r = first + warp; r < last; r += ROWS * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u) {
      const int row = r + u * ROWS;
      v[u] = load_row<WIDTH, EVEN>(x + row * ldx, column, row < last ? columns : 0, aligned, outside);
    }
#pragma unroll
    for (int u = 0; u < VECTORS; ++u)
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) value[j] = Op::combine(value[j], to_float(v[u].x[j]));
  }
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) partial[warp][j * WARP + lane] = value[j];
  __syncthreads();
  // each thread adds up some columns of the tile, its neighbours the next ones
  for (int c = threadIdx.x; c < WARP * WIDTH; c += THREADS) {
    const int place = c % WIDTH * WARP + c / WIDTH, at = tile * WARP * WIDTH + c;
    float sum = Op::identity();
#pragma unroll
    for (int w = 0; w < ROWS; ++w) sum = Op::combine(sum, partial[w][place]);
    if (at < columns) y[at] = from_float<Out>(sum);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_rows(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx) {
  along_rows(x, y, 0, rows, columns, ldx, blockIdx.x);
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
