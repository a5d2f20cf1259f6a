// y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r). x, y: (rows, columns), rows ldx and ldy elements
// apart.
//
// stage 8, prefetch: blocks are persistent. a block, or a cluster of BLOCKS blocks, takes one row after the
// other. bulk copies bring the next STAGES rows to shared memory while threads work on the present row in
// their registers.
//
// what it gains: loads go on while a block computes and stores, however large it is.
//
// what limits it: device memory. a row of less than a few tens of kilobytes is too little work for a block.
#include "tile/cluster_reduce.cuh"
#include "tile/row_prefetch.cuh"
#include "tile/softmax_row.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>;

extern "C" __global__ void __cluster_dims__(BLOCKS) __launch_bounds__(THREADS, RESIDENT)
    softmax_prefetch(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns, long long ldx,
                     long long ldy) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Barrier full[STAGES];
  __shared__ RowScratch<ExpSum, THREADS> scratch[2];
  __shared__ ClusterScratch<ExpSum, BLOCKS> others[2];
  if constexpr (BLOCKS > 1) cluster_started();
  RowPrefetch<IN, WIDTH, VECTORS, THREADS, BLOCKS, STAGES> ahead(memory, full, x, rows, columns, ldx);

  for (int turn = 0; ahead.more(); ahead.next(), turn ^= 1) {
    Vector<IN, WIDTH> v[VECTORS];
    ahead.read(v, from_float<IN>(-infinity()));
    const HeldExps<VECTORS, WIDTH> own(v);
    const ExpSum::Value state = row_reduce<ExpSum, THREADS, THREADS>(own.state, scratch[turn]);
    ahead.refill();
    const float scale = own.scale(cluster_reduce<ExpSum, BLOCKS>(state, others[turn]));
    OUT* to = y + ahead.row * ldy;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
      if (ahead.in_row(i)) store_vector(to + ahead.column(i), own.probabilities<OUT>(i, scale));
  }
}
