// y[r, c] = sum_{j <= c} x[r, j]. x, y: (rows, columns), rows ldx and ldy elements apart.
//
// stage 2, a warp a row: lanes take neighbouring elements, 32 at a time, and add them up by shuffles. the
// warp carries the sum so far on to the next 32.
//
// what it gains: a load needs few transactions, and 32 times as many threads work.
//
// what limits it: each element costs a tree of shuffles, which is ten instructions. a lane loads one element
// at a time.
#include "tile/row_scan.cuh"

constexpr int ROWS = THREADS / WARP;
static_assert(THREADS % WARP == 0, "THREADS has to be a multiple of 32: a warp takes a row");

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_warp_row(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                  long long ldy) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  float carry = 0.f;
  for (int c = lane; c - lane < columns; c += WARP) {  // all lanes, as often
    const float sum = carry + warp_scan(c < columns ? to_float(from[c]) : 0.f);
    if (c < columns) to[c] = from_float<OUT>(sum);
    carry = __shfl_sync(ALL_LANES, sum, WARP - 1);
  }
}
