// y = the sum of x, or its maximum if MAXIMUM. x: (rows, columns), rows ldx elements apart. y: (rows) if x is
// reduced along the columns, (columns) if it is reduced along the rows, (1) if all elements are reduced.
//
// stage 4, split: several blocks share one element of y. along the columns, each block has a part of the row.
// along the rows, it has some of the rows. if all elements are reduced, it has some of the stretches. a
// second kernel combines what the blocks store, in a fixed order, so the result is always the same.
//
// what it gains: enough blocks work, whatever the shape of y is.
//
// what limits it: device memory. if there are few bytes, the second launch, which takes about 3 us.
#include "tile/reduce_ops.cuh"

using Op = ReduceOp<MAXIMUM>;
constexpr int ROWS = THREADS / WARP, WIDTH = ROW_WIDTH<IN>;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes every other row");

// the part number `part` of a row of `columns` elements
__device__ __forceinline__ float part_of_row(const IN* from, int columns, int part, int vectors,
                                             RowScratch<Op, THREADS>& scratch) {
  const RowPart<WIDTH, EVEN> mine(from, columns, part, vectors);
  float value = Op::identity();
  for (int i = mine.first + threadIdx.x; i < mine.end; i += THREADS * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u)
      v[u] = mine.load(from, mine.column(i + u * THREADS), from_float<IN>(Op::identity()));
    value = reduced<Op>(value, v);
  }
  return row_reduce<Op, THREADS, THREADS>(value, scratch);
}

// partial: (rows, parts)
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_columns_parts(const IN* __restrict__ x, float* __restrict__ partial, int columns, long long ldx,
                         long long total, int parts, int vectors) {
  __shared__ RowScratch<Op, THREADS> scratch;
  const int row = blockIdx.x / parts;
  const int length = static_cast<int>(min(static_cast<long long>(columns), total - row * ldx));
  const float value = part_of_row(x + row * ldx, length, blockIdx.x % parts, vectors, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = value;
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

// partial: (parts, columns). block (tile, part) has `height` rows
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_rows_parts(const IN* __restrict__ x, float* __restrict__ partial, int rows, int columns,
                      long long ldx, int tiles, int height) {
  const int part = blockIdx.x / tiles, first = part * height;
  along_rows(x, partial + static_cast<long long>(part) * columns, first, min(rows, first + height), columns,
             ldx, blockIdx.x % tiles);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_rows_combine(const float* __restrict__ partial, OUT* __restrict__ y, int columns, int parts) {
  const int column = blockIdx.x * THREADS + threadIdx.x;
  if (column >= columns) return;
  float value = Op::identity();
  for (int p = 0; p < parts; ++p)
    value = Op::combine(value, partial[static_cast<long long>(p) * columns + column]);
  y[column] = from_float<OUT>(value);
}

// what the blocks have left: `parts` values a row. a block combines those of a row
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_combine(const float* __restrict__ partial, OUT* __restrict__ y, int parts) {
  __shared__ RowScratch<Op, THREADS> scratch;
  const int row = blockIdx.x;
  float value = Op::identity();
  for (int i = threadIdx.x; i < parts; i += THREADS)
    value = Op::combine(value, partial[static_cast<long long>(row) * parts + i]);
  value = row_reduce<Op, THREADS, THREADS>(value, scratch);
  if (threadIdx.x == 0) y[row] = from_float<OUT>(value);
}
