// y[r, c] = sum_{j <= c} x[r, j]. x, y: (rows, columns), rows ldx and ldy elements apart.
// partial: (rows, parts), scratch.
//
// stage 5, split rows: a row is split over `parts` blocks. each stores the sum of its part in memory. in a
// second kernel, each block adds up the sums of the parts before its own, and scans its part.
//
// what it gains: few rows, such as one of 2^28 columns, keep all multiprocessors busy.
//
// what limits it: device memory, with two reads and one write. so the speed is at most 2/3 of that of a copy.
#include "tile/row_reduce.cuh"
#include "tile/row_scan.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_parts(const IN* __restrict__ x, float* __restrict__ partial, int columns, long long ldx, int parts,
               int part) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  const IN* from = x + blockIdx.x / parts * ldx;
  const RowPart<WIDTH, EVEN> mine(from, columns, blockIdx.x % parts, part);
  float sum = 0.f;
  for (int i = mine.first + threadIdx.x; i < mine.end; i += THREADS * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
    mine.load(v, from, i, THREADS, from_float<IN>(0.f));
    float sums[VECTORS * WIDTH];
    sum += scan_vectors(v, sums);
  }
  sum = row_reduce<Sum, THREADS, THREADS>(sum, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_rest(const IN* __restrict__ x, const float* __restrict__ partial, OUT* __restrict__ y, int columns,
              long long ldx, long long ldy, int parts, int part) {
  __shared__ RowScratch<Sum, THREADS> reduction;
  __shared__ ScanScratch<THREADS> scratch[2];  // alternating: a fast warp may be one iteration ahead
  const int row = blockIdx.x / parts, index = blockIdx.x % parts;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  const RowPart<WIDTH, EVEN> mine(from, columns, index, part);
  float carry = 0.f;
  for (int i = threadIdx.x; i < index; i += THREADS)
    carry += partial[static_cast<long long>(row) * parts + i];
  carry = row_reduce<Sum, THREADS, THREADS>(carry, reduction);
  int buffer = 0;
  for (int start = mine.first; start < mine.end; start += THREADS * VECTORS, buffer ^= 1) {
    const int i = start + threadIdx.x * VECTORS;
    Vector<IN, WIDTH> v[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u) v[u] = mine.load(from, mine.column(i + u), from_float<IN>(0.f));
    float sums[VECTORS * WIDTH], total;
    const float own = scan_vectors(v, sums);
    const float before = carry + block_scan_before<THREADS>(own, total, scratch[buffer]);
#pragma unroll
    for (int u = 0; u < VECTORS; ++u)
      mine.store(to, mine.column(i + u), sums_after<OUT, WIDTH>(before, sums, u));
    carry += total;
  }
}
