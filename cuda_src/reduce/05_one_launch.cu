// y = the sum, or the maximum where MAXIMUM, of x: (rows, columns), rows ldx elements apart, along the
// columns, (rows), along the rows, (columns), or of all, (1). partial and counters: scratch, the counters
// zero, unused where no element of y is shared by blocks.
//
// stage 5, one launch: as many threads share a row as the device has for it: some lanes, a block, or blocks.
// where blocks share an element of y, the last of them to finish combines what all have stored, in a fixed
// order. along the rows ACROSS lanes lie side by side, and the others have the next rows.
//
// what it gains: no second launch, whose start is most of the time for few bytes; all lanes are at work
// however short rows are.
//
// what limits it: device memory; for few bytes the launch.
#include "tile/last_block.cuh"
#include "tile/reduce_ops.cuh"

using Op = ReduceOp<MAXIMUM>;
constexpr int WIDTH = ROW_WIDTH<IN>;
static_assert(GROUP <= WARP || GROUP == THREADS, "a row belongs to some lanes, or to a block");
static_assert(!SHARED || GROUP == THREADS, "whole blocks share a row");

// along the columns, or of all the rows of a matrix that has `total` elements from its first to its last.
// `blocks` share a row, and have `part` vectors of it each. partial: a value a block
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_groups(const IN* __restrict__ x, OUT* __restrict__ y, float* partial, unsigned* counters, int rows,
                  int columns, long long ldx, long long total, int blocks, int part) {
  __shared__ RowScratch<Op, THREADS> scratch, second;
  const int member = threadIdx.x % GROUP, block = SHARED ? blockIdx.x % blocks : 0;
  const int row = blockIdx.x / blocks * (THREADS / GROUP) + threadIdx.x / GROUP;
  // without a row of its own a group reads the last one: nobody may miss the barrier
  const long long at = min(row, rows - 1) * ldx;
  const IN* const from = x + at;
  const int length = static_cast<int>(min(static_cast<long long>(columns), total - at));
  const RowPart<WIDTH, EVEN> mine(from, length, block, part);
  float value = Op::identity();
  for (int i = mine.first + member; i < mine.end; i += GROUP * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u)
      v[u] = mine.load(from, mine.column(i + u * GROUP), from_float<IN>(Op::identity()));
    value = reduced<Op>(value, v);
  }
  value = row_reduce<Op, GROUP, THREADS>(value, scratch);
  if constexpr (SHARED) {
    const int sharers = ALL ? gridDim.x : blocks, first = ALL ? 0 : row * blocks;
    if (threadIdx.x == 0) partial[blockIdx.x] = value;
    if (!last_block(counters + (ALL ? 0 : row), sharers)) return;
    value = Op::identity();
#pragma unroll 4
    for (int i = threadIdx.x; i < sharers; i += THREADS) value = Op::combine(value, partial[first + i]);
    value = row_reduce<Op, GROUP, THREADS>(value, second);
  }
  if (member == 0 && row < rows) y[ALL ? 0 : row] = from_float<OUT>(value);
}

// combines what the threads have of the columns of their vectors: the threads of a column are ACROSS apart.
// `store` is given the places of the columns, and their values
template <class Store>
__device__ __forceinline__ void over_threads(const float (&value)[WIDTH], float (&shared)[WIDTH][THREADS],
                                             Store store) {
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) shared[j][threadIdx.x] = value[j];
  __syncthreads();
  for (int c = threadIdx.x; c < ACROSS * WIDTH; c += THREADS) {
    float sum = Op::identity();
#pragma unroll 8
    for (int t = c / WIDTH; t < THREADS; t += ACROSS) sum = Op::combine(sum, shared[c % WIDTH][t]);
    store(c, sum);
  }
}

// along the rows. block (tile, part) has ACROSS vectors of columns and `height` rows. partial: (parts,
// columns)
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_tiles(const IN* __restrict__ x, OUT* __restrict__ y, float* partial, unsigned* counters, int rows,
                 int columns, long long ldx, int tiles, int parts, int height) {
  __shared__ float shared[WIDTH][THREADS];
  constexpr int DOWN = THREADS / ACROSS;
  const int tile = blockIdx.x % tiles, part = blockIdx.x / tiles, last = min(rows, (part + 1) * height);
  const int first = tile * ACROSS * WIDTH, column = first + threadIdx.x % ACROSS * WIDTH;
  const bool aligned = ldx % WIDTH == 0;
  float value[WIDTH];
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) value[j] = Op::identity();
  for (int r = part * height + threadIdx.x / ACROSS; r < last; r += DOWN * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u) {
      const int row = r + u * DOWN;
      v[u] = load_row<WIDTH, EVEN>(x + row * ldx, column, row < last ? columns : 0, aligned,
                                   from_float<IN>(Op::identity()));
    }
#pragma unroll
    for (int u = 0; u < VECTORS; ++u)
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) value[j] = Op::combine(value[j], to_float(v[u].x[j]));
  }
  const auto store = [&](int c, float sum) {
    if (first + c < columns) y[first + c] = from_float<OUT>(sum);
  };
  if constexpr (SHARED) {
    over_threads(value, shared, [&](int c, float sum) {
      if (first + c < columns) partial[static_cast<long long>(part) * columns + first + c] = sum;
    });
    __syncthreads();  // all threads have stored before one counts for them
    if (!last_block(counters + tile, parts)) return;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      value[j] = Op::identity();
      if (column + j < columns)
#pragma unroll 4
        for (int p = threadIdx.x / ACROSS; p < parts; p += DOWN)
          value[j] = Op::combine(value[j], partial[static_cast<long long>(p) * columns + column + j]);
    }
  }
  over_threads(value, shared, store);
}
