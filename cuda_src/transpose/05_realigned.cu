// y[c, r] = x[r, c]. x: (rows, columns), rows ldx elements apart; y: (columns, rows), rows ldy elements
// apart.
//
// stage 5, realigned: copies of 16 bytes bring vectors of x into shared memory as they lie, wherever rows
// begin. from there a thread gathers the elements of a vector of y, and stores it at a multiple of 16 bytes.
// where rows of y do not begin at such multiples, the tile of a block begins WIDTH rows early. so it has all
// elements of the vectors that it stores. in shared memory, rows are one vector further apart than they are
// long, and one more vector is left free after every WIDTH rows. so lanes read from different banks. with
// RUN_OUT a tile has all rows, which are few, and its columns are one run of y. with RUN_IN it has all
// columns, which are few, and its rows are one run of x. a single row or column is copied.
//
// what it gains: each load and each store moves 16 bytes, for rows of any length. tiles are full even for few
// rows or columns.
//
// what limits it: each element takes a load from shared memory.
#include "ptx/cp_async.cuh"
#include "scheduler/tile_order.cuh"
#include "tile/row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN>, ROW_VECTORS = TILE_C / WIDTH + 1;
static_assert(TILE_C % WIDTH == 0, "a row of a tile has whole vectors");
static_assert(RUN_OUT || TILE_R % WIDTH == 0, "a column of a tile has whole vectors");

// a part of x in shared memory: `rows` rows from `first` on, of the columns from `column` on
struct Part {
  IN* memory;
  int first, rows, column, ldx;  // of ldx only what a vector does not hold matters

  // the place of the vector number `index` of a row, or of the run
  static __device__ __forceinline__ int vector(int row, int index) {
    return RUN_IN ? index + index / 8 : row * ROW_VECTORS + row / WIDTH + index;
  }
  __device__ __forceinline__ IN at(int row, int c) const {
    if constexpr (RUN_IN) {
      const int e = row * ldx + c;
      return memory[vector(0, e / WIDTH) * WIDTH + e % WIDTH];
    } else {
      const unsigned head = static_cast<unsigned>(first + row) * static_cast<unsigned>(ldx) % WIDTH;
      return memory[vector(row, 0) * WIDTH + head + c];
    }
  }

  __device__ __forceinline__ void load(const IN* x, int columns, long long step, long long total) const {
    const auto fetch = [&](int place, long long from) {
      const long long left = (total - from) * static_cast<long long>(sizeof(IN));
      cp_async<VECTOR_BYTES>(memory + place * WIDTH, x + from,
                             static_cast<int>(min(left, static_cast<long long>(VECTOR_BYTES))));
    };
    if constexpr (RUN_IN) {
      for (int v = threadIdx.x; v * WIDTH < rows * columns; v += THREADS)
        fetch(vector(0, v), static_cast<long long>(first) * columns + v * WIDTH);
    } else {
      for (int i = threadIdx.x; i < rows * ROW_VECTORS; i += THREADS) {
        const int r = i / ROW_VECTORS, v = i % ROW_VECTORS;
        const long long row = (first + r) * step;
        const long long from = (row + column) / WIDTH * WIDTH + v * WIDTH;
        if (from < row + min(column + TILE_C, columns)) fetch(vector(r, v), from);
      }
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    transpose_realigned(const IN* __restrict__ x, IN* __restrict__ y, int rows, int columns, long long ldx,
                        long long ldy, int tiles) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char memory[];
  // BAND rows of tiles are taken together, column by column: what they store lies side by side
  const Tile at = grouped_tile<BAND>(blockIdx.x, gridDim.x / tiles, tiles);
  const int c0 = at.column * TILE_C, r0 = at.row * TILE_R;
  const int first = RUN_OUT || ldy % WIDTH == 0 ? r0 : max(0, r0 - WIDTH);
  const Part tile{reinterpret_cast<IN*>(memory), first, min(rows, r0 + TILE_R) - first, c0,
                  static_cast<int>(ldx)};
  tile.load(x, columns, ldx, (rows - 1) * ldx + columns);

  const int width = min(TILE_C, columns - c0);
  if constexpr (RUN_OUT) {
    IN* const run = y + static_cast<long long>(c0) * rows;
    for (int e = threadIdx.x * WIDTH; e < width * rows; e += THREADS * WIDTH) {
      int c = e / rows, r = e % rows;
      Vector<IN, WIDTH> v;
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        v.x[j] = tile.at(r, min(c, width - 1));
        if (++r == rows) r = 0, ++c;
      }
      store_row<false>(run, e, width * rows, true, v);
    }
  } else {
    constexpr int DOWN = TILE_R / WIDTH;
    for (int i = threadIdx.x; i < width * DOWN; i += THREADS) {
      const int c = i / DOWN;
      IN* const column = y + (c0 + c) * ldy;
      const int r = r0 + i % DOWN * WIDTH - row_head<WIDTH>(column);  // the first row of the vector
      Vector<IN, WIDTH> v;
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) v.x[j] = tile.at(min(max(r + j - first, 0), tile.rows - 1), c);
      store_row<false>(column, r, rows, true, v);
    }
  }
}

// what needs no transposition: `count` elements side by side, COPIED vectors a thread
extern "C" __global__ void __launch_bounds__(THREADS)
    transpose_copy(const IN* __restrict__ x, IN* __restrict__ y, long long count) {
  const long long first = (static_cast<long long>(blockIdx.x) * THREADS * COPIED + threadIdx.x) * WIDTH;
  Vector<IN, WIDTH> v[COPIED];
#pragma unroll
  for (int u = 0; u < COPIED; ++u) {
    const long long at = first + u * THREADS * WIDTH;
    if (at + WIDTH <= count) v[u] = load_vector<WIDTH>(x + at);
  }
#pragma unroll
  for (int u = 0; u < COPIED; ++u) {
    const long long at = first + u * THREADS * WIDTH;
    if (at + WIDTH <= count)
      store_vector(y + at, v[u]);
    else
      for (long long i = at; i < count; ++i) y[i] = x[i];
  }
}
