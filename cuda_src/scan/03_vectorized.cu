// y[r, c] = sum_{j <= c} x[r, j]. x, y: (rows, columns), rows ldx and ldy elements apart.
//
// stage 3, vectorized: a lane loads and stores 16 bytes at a time. it first adds up the elements of its
// vector. then the lanes add up their sums by shuffles.
//
// what it gains: one tree of shuffles serves 8 elements of a lane (4 of fp32). one instruction moves 16
// bytes.
//
// what limits it: each row has only one warp, and this warp waits for each load.
#include "tile/row_scan.cuh"

constexpr int ROWS = THREADS / WARP, WIDTH = ROW_WIDTH<IN, OUT>;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_vectorized(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                    long long ldy) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  float carry = 0.f;
  for (int i = lane; walk.column(i - lane) < columns; i += WARP) {
    const Vector<IN, WIDTH> v[1] = {walk.load(from, walk.column(i), from_float<IN>(0.f))};
    float sums[WIDTH];
    const float own = scan_vectors(v, sums), upto = warp_scan(own);
    const float others = __shfl_up_sync(ALL_LANES, upto, 1);
    const float before = carry + (lane > 0 ? others : 0.f);
    walk.store(to, walk.column(i), sums_after<OUT, WIDTH>(before, sums, 0));
    carry += __shfl_sync(ALL_LANES, upto, WARP - 1);
  }
}
