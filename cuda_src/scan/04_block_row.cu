// y[r, c] = sum_{j <= c} x[r, j]. x, y: (rows, columns), rows ldx and ldy elements apart.
//
// stage 4, a block a row: the threads of a block share a row. each thread has VECTORS vectors that lie side
// by side.
//
// what it gains: a block has THREADS x VECTORS x 16 bytes of a row in flight, and needs one barrier for all
// of them.
//
// what limits it: few rows make few blocks. neighbouring threads load from addresses VECTORS vectors
// apart.
#include "tile/row_scan.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_block_row(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                   long long ldy) {
  __shared__ ScanScratch<THREADS> scratch[2];  // alternating: a fast warp may be one iteration ahead
  const int row = blockIdx.x;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  const RowWalk<WIDTH, EVEN> walk(from, columns);
  float carry = 0.f;
  int buffer = 0;
  for (int start = 0; walk.column(start) < columns; start += THREADS * VECTORS, buffer ^= 1) {
    const int i = start + threadIdx.x * VECTORS;
    Vector<IN, WIDTH> v[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u) v[u] = walk.load(from, walk.column(i + u), from_float<IN>(0.f));
    float sums[VECTORS * WIDTH], total;
    const float own = scan_vectors(v, sums);
    const float before = carry + block_scan_before<THREADS>(own, total, scratch[buffer]);
#pragma unroll
    for (int u = 0; u < VECTORS; ++u)
      walk.store(to, walk.column(i + u), sums_after<OUT, WIDTH>(before, sums, u));
    carry += total;
  }
}
