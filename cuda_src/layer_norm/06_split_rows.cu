// y[r, c] = (x[r, c] - mean_r) w[c] / sqrt(variance_r + eps) + b[c]. x, y: (rows, columns), rows ldx and ldy
// elements apart; w, b: (columns).
// states: (rows, parts, 4), scratch.
//
// stage 6, split rows: a row of any length is split over `parts` blocks. each block stores the mean and the
// variance of its part in memory. in a second kernel, every block combines the values of all parts of its
// row, and writes its part of the result.
//
// what it gains: few rows, such as one of 2^26 columns, keep all multiprocessors busy.
//
// what limits it: device memory. the row is read twice, so the speed is at most 2/3 of that of a copy.
#include "tile/norm_row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_parts(const IN* __restrict__ x, float4* __restrict__ states, int length, long long ldx,
                     int parts, int part) {
  __shared__ RowScratch<Moments, THREADS> scratch;
  const int row = blockIdx.x / parts;
  const IN* from = x + row * ldx;
  const RowPart<WIDTH, EVEN> walk(from, length, blockIdx.x % parts, part);
  const int columns = walk.limit;  // of the part
  const IN outside = from_float<IN>(0.f);
  Moments::Value state = Moments::identity();
  for (int i = walk.first + threadIdx.x; i < walk.end; i += THREADS * VECTORS) {
    Vector<IN, WIDTH> v[VECTORS];
    walk.load(v, from, i, THREADS, outside);
    state = Moments::combine(state, moments<EVEN>(v, walk.column(i), THREADS * WIDTH, columns));
  }
  state = row_reduce<Moments, THREADS, THREADS>(state, scratch);
  if (threadIdx.x == 0) states[blockIdx.x] = make_float4(state.count, state.mean, state.squares, 0.f);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm_scale(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ b,
                     const float4* __restrict__ states, OUT* __restrict__ y, int length, long long ldx,
                     long long ldy, int parts, int part, float eps) {
  __shared__ RowScratch<Moments, THREADS> scratch;
  const int block = gridDim.x - 1 - blockIdx.x;  // backwards: the L2 has what the first kernel read last
  const int row = block / parts;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  const RowPart<WIDTH, EVEN> walk(from, length, block % parts, part);
  const IN outside = from_float<IN>(0.f);
  const float4* others = states + static_cast<long long>(row) * parts;
  Moments::Value state = Moments::identity();
  for (int i = threadIdx.x; i < parts; i += THREADS)
    state = Moments::combine(state, {others[i].x, others[i].y, others[i].z});
  state = row_reduce<Moments, THREADS, THREADS>(state, scratch);
  const float scale = rsqrtf(state.squares / length + eps);
#pragma unroll 4
  for (int i = walk.first + threadIdx.x; i < walk.end; i += THREADS) {
    const int column = walk.column(i);
    walk.store(to, column,
               standardized<OUT>(walk.load(from, column, outside), state.mean, scale,
                                 walk.load(w, column, outside), walk.load(b, column, outside)));
  }
}
