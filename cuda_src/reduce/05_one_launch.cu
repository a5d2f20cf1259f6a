// y = the sum of x, or its maximum if MAXIMUM. x: (rows, columns), rows ldx elements apart. y: (rows) if x is
// reduced along the columns, (columns) if it is reduced along the rows, (1) if all elements are reduced.
// partial and counters: scratch, the counters zero. they are not used if no element of y is shared by blocks.
//
// stage 5, one launch: as many threads share a row as the device has for it: some lanes of a warp, a block,
// or several blocks. where blocks share an element of y, the last of them to finish combines what all have
// stored, in a fixed order. along the rows, ACROSS lanes lie side by side, and the other lanes have the next
// rows.
//
// what it gains: there is no second launch. for few bytes, its start would take most of the time. all lanes
// work, however short rows are.
//
// what limits it: device memory. if there are few bytes, the launch.
#include "tile/last_block.cuh"
#include "tile/reduce_ops.cuh"

using Op = ReduceOp<MAXIMUM>;
constexpr int ROWS = THREADS / ACROSS, WIDTH = ROW_WIDTH<IN>;
// blocks of a multiprocessor at least, so that one loads while another adds up. of whole vectors compilers
// keep so few in registers that 2,048 threads fit
constexpr int RESIDENT = EVEN ? 0 : 1024 / THREADS;
static_assert(GROUP <= WARP || GROUP == THREADS, "a row belongs to some lanes, or to a block");
static_assert(!SHARED || GROUP == THREADS, "whole blocks share a row");

// the part number `part` of a row of `columns` elements: whole vectors first, without another way to load,
// then those at the ends of the row that are not
__device__ __forceinline__ float part_of_row(const IN* from, int columns, int part, int vectors,
                                             RowScratch<Op, THREADS>& scratch) {
  const RowPart<WIDTH, EVEN> mine(from, columns, part, vectors);
  const IN outside = from_float<IN>(Op::identity());
  const int begin = mine.first + (mine.column(mine.first) < 0), end = (mine.limit + mine.head) / WIDTH;
  float value = Op::identity();
  for (int i = begin + threadIdx.x % GROUP; i < end; i += GROUP * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u)
      v[u] = load_row<WIDTH, true>(from - mine.head, (i + u * GROUP) * WIDTH, end * WIDTH, true, outside);
    value = reduced<Op>(value, v);
  }
  if constexpr (!EVEN)
    for (int i = threadIdx.x % GROUP; i < 2; i += GROUP) {
      const bool there = i == 0 ? mine.first < begin : begin <= end;
      const Vector<IN, WIDTH> v[1] = {load_row<WIDTH, false>(from, mine.column(i == 0 ? mine.first : end),
                                                             there ? mine.limit : 0, false, outside)};
      value = reduced<Op>(value, v);
    }
  return row_reduce<Op, GROUP, THREADS>(value, scratch);
}

// along the columns, or ALL. partial: a value a block, of which `parts` share a row
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    reduce_groups(const IN* __restrict__ x, OUT* __restrict__ y, float* partial, unsigned* counters, int rows,
                  int columns, long long ldx, long long total, int parts, int vectors) {
  __shared__ RowScratch<Op, THREADS> scratch, second;
  const int row = blockIdx.x / parts * (THREADS / GROUP) + threadIdx.x / GROUP;
  const int held = min(row, rows - 1);  // nobody may miss the barrier
  const int length = static_cast<int>(min(static_cast<long long>(columns), total - held * ldx));
  float value = part_of_row(x + held * ldx, length, SHARED ? blockIdx.x % parts : 0, vectors, scratch);
  if constexpr (SHARED) {
    const int sharers = ALL ? gridDim.x : parts, first = ALL ? 0 : row * parts;
    if (threadIdx.x == 0) partial[blockIdx.x] = value;
    if (!last_block(counters + (ALL ? 0 : row), sharers)) return;
    value = Op::identity();
#pragma unroll 4
    for (int i = threadIdx.x; i < sharers; i += THREADS) value = Op::combine(value, partial[first + i]);
    value = row_reduce<Op, THREADS, THREADS>(value, second);
  }
  if (threadIdx.x % GROUP == 0 && row < rows) y[ALL ? 0 : row] = from_float<OUT>(value);
}

// combines what the threads have of their columns, those of a vector each: ACROSS lanes lie side by side
template <class Out>
__device__ __forceinline__ void over_threads(const float (&value)[WIDTH], Out* y, int columns, int tile) {
  __shared__ float partial[ROWS][ACROSS * WIDTH];
  const int lane = threadIdx.x % ACROSS, warp = threadIdx.x / ACROSS;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) partial[warp][j * ACROSS + lane] = value[j];
  __syncthreads();
  // each thread adds up some columns of the tile, its neighbours the next ones
  for (int c = threadIdx.x; c < ACROSS * WIDTH; c += THREADS) {
    const int place = c % WIDTH * ACROSS + c / WIDTH, at = tile * ACROSS * WIDTH + c;
    float sum = Op::identity();
#pragma unroll 8
    for (int w = 0; w < ROWS; ++w) sum = Op::combine(sum, partial[w][place]);
    if (at < columns) y[at] = from_float<Out>(sum);
  }
}

// along the rows. partial: (parts, columns). block (tile, part) has `height` rows
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_tiles(const IN* __restrict__ x, OUT* __restrict__ y, float* partial, unsigned* counters, int rows,
                 int columns, long long ldx, int tiles, int parts, int height) {
  const int tile = blockIdx.x % tiles, part = blockIdx.x / tiles, first = part * height;
  const int lane = threadIdx.x % ACROSS, warp = threadIdx.x / ACROSS, column = (tile * ACROSS + lane) * WIDTH;
  const int last = min(rows, first + height);
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
  if constexpr (SHARED) {
    over_threads(value, partial + static_cast<long long>(part) * columns, columns, tile);
    __syncthreads();  // all threads have stored before one counts for them
    if (!last_block(counters + tile, parts)) return;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      value[j] = Op::identity();
      if (column + j < columns)
#pragma unroll 4
        for (int p = warp; p < parts; p += ROWS)
          value[j] = Op::combine(value[j], partial[static_cast<long long>(p) * columns + column + j]);
    }
  }
  over_threads(value, y, columns, tile);
}
