// y[r, c] = x[r, c] w[c] / sqrt(mean_j x[r, j]^2 + eps). x, y: (rows, columns), rows ldx and ldy elements
// apart; w: (columns).
//
// stage 7, prefetch: blocks are persistent. a block, or a cluster of BLOCKS blocks, takes one row after the
// other. bulk copies bring the next STAGES rows to shared memory while threads work on the present row in
// their registers. weights are the same for all rows, and come from the L1.
//
// what it gains: loads go on while a block computes and stores, however large it is.
//
// what limits it: device memory. a row of less than a few tens of kilobytes is too little work for a block.
#include "tile/cluster_reduce.cuh"
#include "tile/norm_row.cuh"
#include "tile/row_prefetch.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __cluster_dims__(BLOCKS) __launch_bounds__(THREADS, RESIDENT)
    rms_norm_prefetch(const IN* __restrict__ x, const IN* __restrict__ w, OUT* __restrict__ y, int rows,
                      int columns, long long ldx, long long ldy, float eps) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Barrier full[STAGES];
  __shared__ RowScratch<Sum, THREADS> scratch[2];
  __shared__ ClusterScratch<Sum, BLOCKS> others[2];
  if constexpr (BLOCKS > 1) cluster_started();
  RowPrefetch<IN, WIDTH, VECTORS, THREADS, BLOCKS, STAGES> ahead(memory, full, x, rows, columns, ldx);
  const IN outside = from_float<IN>(0.f);

  for (int turn = 0; ahead.more(); ahead.next(), turn ^= 1) {
    Vector<IN, WIDTH> v[VECTORS];
    ahead.read(v, outside);
    float squares = row_reduce<Sum, THREADS, THREADS>(sum_squares(v), scratch[turn]);
    ahead.refill();
    squares = cluster_reduce<Sum, BLOCKS>(squares, others[turn]);
    const float scale = rsqrtf(squares / columns + eps);
    OUT* to = y + ahead.row * ldy;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
      if (ahead.in_row(i))
        store_vector(to + ahead.column(i), scaled<OUT>(v[i], scale, load_vector<WIDTH>(w + ahead.column(i))));
  }
}
