// c[n] = sum_k a[k] B[n, k]. a: (K), B: (N, K), rows ldb elements apart, c: (N). partial: (N, blocks) and
// counters: (N) are scratch, and the counters are zero. both are unused where a block has whole rows.
//
// stage 7, shared rows: as many threads share a row as the device can spare for it. these are lanes of a
// warp, up to a whole block, or `blocks` blocks with a part of `part` vectors each. the last of these blocks
// to finish adds up the sums, always in the same order.
//
// what it gains: few long rows are read by the whole device, in one launch.
//
// what limits it: device memory. for few bytes, the launch. where several blocks share a row, the last block,
// which waits for the sums of the others.

#include "tile/last_block.cuh"
#include "tile/row_dot.cuh"
#include "tile/row_reduce.cuh"

static_assert(THREADS % GROUP == 0 && (GROUP <= WARP || GROUP == THREADS), "a group is lanes or a block");
static_assert(!SHARED || GROUP == THREADS, "several blocks share a row with all their threads");

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    matvec_shared_rows(const IN* __restrict__ a, const IN* __restrict__ B, OUT* __restrict__ c,
                       float* partial, unsigned* counters, int N, int K, int ldb, int blocks, int part) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  const int member = threadIdx.x % GROUP, block = blockIdx.x % blocks;
  const int n = blockIdx.x / blocks * (THREADS / GROUP) + threadIdx.x / GROUP;
  // without a row of its own a group reads the last one: nobody may miss the barrier
  const RowDot<EVEN, IN> dot(a, B + static_cast<long long>(min(n, N - 1)) * ldb, K);
  const RowDot<EVEN, IN>::Edges<GROUP> edges(dot, member);
  const int first = SHARED ? block * part : 0, end = SHARED ? min(first + part, dot.inner) : dot.inner;
  float sum = dot.vectors<GROUP, IN_FLIGHT, READ_ONCE>(first, end, member);
  if (block == 0) sum += edges.products();
  sum = row_reduce<Sum, GROUP, THREADS>(sum, scratch);
  if constexpr (SHARED) {
    float* const sums = partial + static_cast<long long>(n) * blocks;
    if (threadIdx.x == 0) sums[block] = sum;
    if (!last_block(counters + n, blocks) || threadIdx.x >= WARP) return;
    sum = 0.f;
    for (int b = threadIdx.x; b < blocks; b += WARP) sum += sums[b];
    sum = warp_sum(sum);
  }
  if (member == 0 && n < N) c[n] = from_float<OUT>(sum);
}
