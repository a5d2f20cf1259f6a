// y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r). x, y: (rows, columns), rows ldx and ldy elements
// apart. states: (rows, parts, 2), scratch.
//
// stage 7, split rows: a row of any length is split over `parts` blocks. each block stores the maximum and
// the sum of its part in memory. in a second kernel, every block combines the values of all parts of its row,
// and writes the probabilities of its part. if a row has only one part, its block reads it twice.
//
// what it gains: few rows, such as one of 2^26 columns, keep all multiprocessors busy.
//
// what limits it: device memory, with two reads and one write. so the speed is at most 2/3 of that of a copy.
#include "tile/softmax_row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_parts(const IN* __restrict__ x, float2* __restrict__ states, int columns, long long ldx,
                  int parts, int part) {
  __shared__ RowScratch<ExpSum, THREADS> scratch;
  const IN* from = x + blockIdx.x / parts * ldx;
  const RowPart<WIDTH, EVEN> mine(from, columns, blockIdx.x % parts, part);
  ExpSum::Value state = ExpSum::identity();
  for (int i = mine.first + threadIdx.x; i < mine.end; i += THREADS * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
    mine.load(v, from, i, THREADS, from_float<IN>(-infinity()));
    state = ExpSum::combine(state, exp_sum(v));
  }
  state = row_reduce<ExpSum, THREADS, THREADS>(state, scratch);
  if (threadIdx.x == 0) states[blockIdx.x] = make_float2(state.max, state.sum);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_scale(const IN* __restrict__ x, const float2* __restrict__ states, OUT* __restrict__ y,
                  int columns, long long ldx, long long ldy, int parts, int part) {
  __shared__ RowScratch<ExpSum, THREADS> scratch;
  const int block = gridDim.x - 1 - blockIdx.x;  // backwards: the L2 has what the first kernel read last
  const int row = block / parts;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  const RowPart<WIDTH, EVEN> mine(from, columns, block % parts, part);
  ExpSum::Value state = ExpSum::identity();
  for (int i = threadIdx.x; i < parts; i += THREADS) {
    const float2 other = states[static_cast<long long>(row) * parts + i];
    state = ExpSum::combine(state, {other.x, other.y});
  }
  state = row_reduce<ExpSum, THREADS, THREADS>(state, scratch);
  const float base = ExpSum::base(state.max), scale = reciprocal_sum(state);
#pragma unroll 4
  for (int i = mine.first + threadIdx.x; i < mine.end; i += THREADS) {
    const auto v = mine.load(from, mine.column(i), from_float<IN>(-infinity()));
    mine.store(to, mine.column(i), probabilities<OUT>(v, base, scale));
  }
}
