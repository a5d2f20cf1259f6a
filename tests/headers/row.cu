// TYPE, N, EVEN are given
#include "tile/row.cuh"

// y + to = x + from, `columns` elements, by the 32 threads of a block, N elements at once; whether vectors of
// both are aligned where they begin alike, in `together`. block b copies the part number b of `part` vectors
extern "C" __global__ void copy(const TYPE* x, TYPE* y, unsigned* together, int from, int to, int columns,
                                int part) {
  const RowPart<N, EVEN> mine(x + from, columns, blockIdx.x, part);
  for (int i = mine.first + threadIdx.x; i < mine.end; i += 32)
    mine.store(y + to, mine.column(i), mine.load(x + from, mine.column(i), from_float<TYPE>(7.f)));
  if (blockIdx.x == 0 && threadIdx.x == 0)
    together[0] = row_head<N>(y + to) == mine.head, together[1] = ROW_WIDTH<TYPE, float>;
}

// y[t] = the vector of x from column t N - head on, with 7 outside of the row. y: (32, N)
extern "C" __global__ void loaded(const TYPE* x, TYPE* y, int from, int columns) {
  const RowWalk<N, EVEN> walk(x + from, columns);
  store_vector(y + threadIdx.x * N, walk.load(x + from, walk.column(threadIdx.x), from_float<TYPE>(7.f)));
}
