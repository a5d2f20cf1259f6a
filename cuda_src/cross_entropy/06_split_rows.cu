// loss[r] = log sum_j e^(x[r, j]) - x[r, labels[r]], 0 where the label is below 0; lse[r]: that logarithm.
// x: (rows, columns), rows ldx elements apart; labels, loss, lse: (rows).
//
// states: (rows, parts, 2), scratch.
//
// stage 6, split rows: a row of any length is split over `parts` blocks. each block stores the maximum and
// the sum of its part in memory. in a second kernel, a warp combines the parts of a row.
//
// what it gains: few rows, such as one of 2^26 columns, keep all multiprocessors busy.
//
// what limits it: device memory. if there are few bytes, the second launch, which takes about 3 us.
#include "tile/cross_entropy.cuh"
#include "tile/softmax_row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN>, ROWS = THREADS / WARP;

extern "C" __global__ void __launch_bounds__(THREADS)
    cross_entropy_parts(const IN* __restrict__ x, float2* __restrict__ states, int columns, long long ldx,
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
    cross_entropy_combine(const IN* __restrict__ x, const int* __restrict__ labels, float* __restrict__ loss,
                          float* __restrict__ lse, const float2* __restrict__ states, int rows, long long ldx,
                          int parts) {
  const int row = blockIdx.x * ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const float2* others = states + static_cast<long long>(row) * parts;

  ExpSum::Value state = ExpSum::identity();
  for (int i = lane; i < parts; i += WARP) state = ExpSum::combine(state, {others[i].x, others[i].y});
  state = warp_reduce<ExpSum>(state);
  if (lane == 0) store_loss(&loss[row], &lse[row], x + row * ldx, labels[row], state);
}
