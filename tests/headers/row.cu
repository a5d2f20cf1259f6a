// TYPE, N are given
#include "tile/row.cuh"

// y + to = x + from, `columns` elements, by the 32 threads of a block, N elements at once; how many vectors
// of each were aligned for both, in `together`. block b copies the part number b of `part` vectors
extern "C" __global__ void copy(const TYPE* x, TYPE* y, unsigned* together, int from, int to, int columns,
                                int part) {
  const RowPart<N> mine(x + from, columns, blockIdx.x, part);
  const bool aligned = mine.aligned(y + to);
  for (int i = mine.first + threadIdx.x; i < mine.end; i += 32)
    store_row(y + to, mine.column(i), mine.limit, aligned,
              load_row<N>(x + from, mine.column(i), mine.limit, true, from_float<TYPE>(7.f)));
  if (blockIdx.x == 0 && threadIdx.x == 0) together[0] = aligned, together[1] = ROW_WIDTH<TYPE, float>;
}

// y[t] = the vector of x from column t N - head on, with 7 outside of the row. y: (32, N)
extern "C" __global__ void loaded(const TYPE* x, TYPE* y, int from, int columns) {
  const RowWalk<N> walk(x + from, columns);
  store_vector(y + threadIdx.x * N,
               load_row<N>(x + from, walk.column(threadIdx.x), columns, true, from_float<TYPE>(7.f)));
}
