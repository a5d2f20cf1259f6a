// s[r, c] = x[r, c] + residual[r, c]; y[r, c] = s[r, c] w[c] / sqrt(mean_j s[r, j]^2 + eps), of s as it is
// stored. x, residual, s, y: (rows, columns), rows ldx (of the first two) and ldy elements apart; w:
// (columns). states: (rows, parts), scratch.
//
// stage 6, split rows: a row of any length is split over `parts` blocks. each block stores the sum of squares
// of its part in memory. in a second kernel, every block combines the values of all parts of its row, and
// writes its part of the result.
//
// what it gains: few rows, such as one of 2^26 columns, keep all multiprocessors busy.
//
// what limits it: device memory. s is written and read again.
#include "tile/norm_row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS)
    residual_rms_norm_parts(const IN* __restrict__ x, const IN* __restrict__ residual, IN* __restrict__ s,
                            float* __restrict__ states, int length, long long ldx, long long ldy, int parts,
                            int part) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  const int row = blockIdx.x / parts;
  const IN *from = x + row * ldx, *more = residual + row * ldx;
  IN* sums = s + row * ldy;
  const RowPart<WIDTH, EVEN> walk(from, length, blockIdx.x % parts, part);
  const IN outside = from_float<IN>(0.f);
  float squares = 0.f;
  for (int i = walk.first + threadIdx.x; i < walk.end; i += THREADS * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
    walk.load(v, from, i, THREADS, outside);
#pragma unroll
    for (int u = 0; u < VECTORS; ++u) {
      const int column = walk.column(i + u * THREADS);
      v[u] = added(v[u], walk.load(more, column, outside));
      walk.store(sums, column, v[u]);
    }
    squares += sum_squares(v);
  }
  squares = row_reduce<Sum, THREADS, THREADS>(squares, scratch);
  if (threadIdx.x == 0) states[blockIdx.x] = squares;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    residual_rms_norm_scale(const IN* __restrict__ s, const IN* __restrict__ w,
                            const float* __restrict__ states, OUT* __restrict__ y, int length, long long ldy,
                            int parts, int part, float eps) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  const int block = gridDim.x - 1 - blockIdx.x;  // backwards: the L2 has what the first kernel read last
  const int row = block / parts;
  const IN* from = s + row * ldy;
  OUT* to = y + row * ldy;
  const RowPart<WIDTH, EVEN> walk(from, length, block % parts, part);
  const IN outside = from_float<IN>(0.f);
  const float* others = states + static_cast<long long>(row) * parts;
  float squares = 0.f;
  for (int i = threadIdx.x; i < parts; i += THREADS) squares += others[i];
  squares = row_reduce<Sum, THREADS, THREADS>(squares, scratch);
  const float scale = rsqrtf(squares / length + eps);
#pragma unroll 4
  for (int i = walk.first + threadIdx.x; i < walk.end; i += THREADS) {
    const int column = walk.column(i);
    walk.store(to, column,
               scaled<OUT>(walk.load(from, column, outside), scale, walk.load(w, column, outside)));
  }
}
