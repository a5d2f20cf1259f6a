// dx[r, c] = y[r, c] (dy[r, c] - sum_j y[r, j] dy[r, j]): gradient of softmax, of which y is the result.
// y, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart. sums: (rows, parts),
// scratch.
//
// stage 6, split rows: a row of any length is split over `parts` blocks. each block stores the sum of its
// part. in a second kernel, every block adds up the sums of all parts of its row, and writes the gradient of
// its part.
//
// what it gains: few rows, such as one of 2^26 columns, keep all multiprocessors busy.
//
// what limits it: device memory. both rows are read twice and one is written, so the speed is at most 3/5 of
// that of a kernel that reads once.
#include "tile/gradient_row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_backward_parts(const IN* __restrict__ y, const IN* __restrict__ dy, float* __restrict__ sums,
                           int columns, long long ldx, int parts, int part) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  const IN *from = y + blockIdx.x / parts * ldx, *more = dy + blockIdx.x / parts * ldx;
  const RowPart<WIDTH, EVEN> mine(from, columns, blockIdx.x % parts, part);
  const IN outside = from_float<IN>(0.f);
  Running<Sum> dot;
  for (int i = mine.first + threadIdx.x; i < mine.end; i += THREADS * VECTORS) {
    Vector<IN, WIDTH> a[VECTORS], b[VECTORS];
#pragma unroll
    for (int u = 0; u < VECTORS; ++u) {
      a[u] = mine.load(from, mine.column(i + u * THREADS), outside);
      b[u] = mine.load(more, mine.column(i + u * THREADS), outside);
    }
    dot.add(sum_products(a, b));
  }
  const float sum = row_reduce<Sum, THREADS, THREADS>(dot.value(), scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_backward_scale(const IN* __restrict__ y, const IN* __restrict__ dy,
                           const float* __restrict__ sums, OUT* __restrict__ dx, int columns, long long ldx,
                           long long ldy, int parts, int part) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  const int block = gridDim.x - 1 - blockIdx.x;  // backwards: the L2 has what the first kernel read last
  const int row = block / parts;
  const IN *from = y + row * ldx, *more = dy + row * ldx;
  OUT* to = dx + row * ldy;
  const RowPart<WIDTH, EVEN> mine(from, columns, block % parts, part);
  const IN outside = from_float<IN>(0.f);
  float dot = 0.f;
  for (int i = threadIdx.x; i < parts; i += THREADS) dot += sums[static_cast<long long>(row) * parts + i];
  dot = row_reduce<Sum, THREADS, THREADS>(dot, scratch);
#pragma unroll 4
  for (int i = mine.first + threadIdx.x; i < mine.end; i += THREADS) {
    const auto a = mine.load(from, mine.column(i), outside);
    const auto b = mine.load(more, mine.column(i), outside);
    mine.store(to, mine.column(i), softmax_gradient<OUT>(a, b, dot));
  }
}
