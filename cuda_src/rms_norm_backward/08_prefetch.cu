// gradient of rms norm, of which g = w dy, n = x scale, scale = 1 / sqrt(mean_j x^2 + eps):
// dx = scale (g - n mean_j(g n)), dw = sum_r dy n.
// x, dy, dx: (rows, columns), rows ldx (of the first two) and ldy elements apart; w, dw: (columns).
// partial: (clusters, PLACES), scratch.
//
// stage 8, prefetch: blocks are persistent. a block, or a cluster of BLOCKS blocks as in stage 5, takes one
// row after the other. bulk copies bring the next STAGES rows of x and of dy to shared memory while
// threads work on the present row in their registers.
//
// what it gains: loads go on while a block adds up and stores. they take no registers.
//
// what limits it: device memory, while rows have at least some tens of kilobytes. shorter rows are too little
// work for a block.
#include "tile/cluster_reduce.cuh"
#include "tile/gradient_row.cuh"
#include "tile/row_prefetch.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>, COUNT = VECTORS * WIDTH;
using Ahead = RowPrefetch<IN, WIDTH, VECTORS, THREADS, BLOCKS, STAGES>;
constexpr int PLACES = BLOCKS * Ahead::PART;  // for sums, of which those behind the last column are empty

extern "C" __global__ void __cluster_dims__(BLOCKS) __launch_bounds__(THREADS, RESIDENT)
    rms_norm_backward_prefetch(const IN* __restrict__ x, const IN* __restrict__ w, const IN* __restrict__ dy,
                               OUT* __restrict__ dx, float* __restrict__ partial, int rows, int columns,
                               long long ldx, long long ldy, float eps) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Barrier full[2][STAGES];
  __shared__ RowScratch<TwoSums, THREADS> scratch[2];  // alternating: a fast warp may be one row ahead
  __shared__ ClusterInbox<BLOCKS> inbox;
  ClusterReductions<BLOCKS> cluster(inbox);
  Ahead of_x(memory, full[0], x, rows, columns, ldx);
  Ahead of_dy(memory + STAGES * Ahead::PART * sizeof(IN), full[1], dy, rows, columns, ldx);
  const IN outside = from_float<IN>(0.f);
  const float share = 1.f / columns;
  float sums[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] = Sum::identity();

  for (int turn = 0; of_x.more(); of_x.next(), of_dy.next(), turn ^= 1) {
    Vector<IN, WIDTH> held[VECTORS], more[VECTORS];
    of_x.read(held, outside);
    of_dy.read(more, outside);
    TwoSums::Value whole = TwoSums::identity();
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
      add_uncentred_sums(whole, held[i], more[i],
                         load_row<WIDTH, true>(w, of_x.column(i), columns, true, outside));
    whole = row_reduce<TwoSums, THREADS, THREADS>(whole, scratch[turn]);
    of_x.refill();
    of_dy.refill();
    whole = cluster.reduce<TwoSums>(whole);
    const float scale = rsqrtf(whole.first * share + eps);
    const RowGradient gradient = {0.f, scale, 0.f, whole.second * scale * share};
    OUT* const to = dx + of_x.row * ldy;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      if (!of_x.in_row(i)) continue;
      const int column = of_x.column(i);
      store_vector(to + column,
                   norm_gradients<OUT>(held[i], more[i], load_vector<WIDTH>(w + column), gradient, i, sums));
    }
  }
  keep_sums<THREADS, WIDTH>(partial + static_cast<long long>(blockIdx.x) * Ahead::PART, sums, threadIdx.x,
                            columns - blockIdx.x % BLOCKS * Ahead::PART);
}

extern "C" __global__ void __launch_bounds__(ADDERS)
    rms_norm_backward_combine(const float* __restrict__ partial, OUT* __restrict__ dw, int columns,
                              int parts) {
  __shared__ float scratch[ADDERS];
  const int place = blockIdx.x * ADDED + threadIdx.x % ADDED, column = kept_column<THREADS, WIDTH>(place);
  const bool found = column < columns;
  const float sum = add_up_kept<Sum, ADDED, PLACES>(partial, place, found ? parts : 0, scratch);
  if (found && threadIdx.x < ADDED) dw[column] = from_float<OUT>(sum);
}
