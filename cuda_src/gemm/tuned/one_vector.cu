// C[line] = sum_k S[line, k] x[k], which is C[m, n] = sum_k A[m, k] B[k, n] where m or n is 1. S is the
// operand with more rows. its rows lie along k, lds elements apart. elements of C are c_line apart, and x has
// no gaps: a column of a matrix is gathered first, by a kernel of its own. partial: (lines, blocks) and
// counters: (lines) are scratch, and the counters are zero. both are unused where a block has whole rows.
//
// stage 17 of simt, a branch of stage 1, one vector: a thread reads a row from its first multiple of 16 bytes
// on, and shifts the vector to match. the number of threads that share a row depends on how many rows there
// are: some lanes of a warp, a whole block, or `blocks` blocks with a part of `part` vectors each. the last
// of these blocks adds up the parts, always in the same order.
//
// what it gains: `few_vectors` shifts all of S, and computes eight products where one is needed. here S is
// not shifted, wherever its rows begin.
//
// what limits it: device memory. where there are few bytes, the launch.

#include "tile/last_block.cuh"
#include "tile/row_dot.cuh"
#include "tile/row_reduce.cuh"

static_assert(THREADS % GROUP == 0 && (GROUP <= WARP || GROUP == THREADS), "a group is lanes or a block");
static_assert(!SHARED || GROUP == THREADS, "several blocks share a row with all their threads");

// K elements that are x_k apart, without their gaps
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_gathered(const IN* __restrict__ x, IN* __restrict__ gathered, int K, int x_k) {
  const int k = blockIdx.x * THREADS + threadIdx.x;
  if (k < K) gathered[k] = x[static_cast<long long>(k) * x_k];
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    gemm_one_vector(const IN* __restrict__ S, const IN* __restrict__ x, OUT* __restrict__ C, float* partial,
                    unsigned* counters, int lines, int K, int lds, int c_line, int blocks, int part) {
  __shared__ RowScratch<Sum, THREADS> scratch;
  const int member = threadIdx.x % GROUP, block = blockIdx.x % blocks;
  const int line = blockIdx.x / blocks * (THREADS / GROUP) + threadIdx.x / GROUP;
  // without a row of its own a group reads the last one: nobody may miss the barrier
  const RowDot<EVEN, IN> dot(x, S + static_cast<long long>(min(line, lines - 1)) * lds, K);
  const RowDot<EVEN, IN>::Edges<GROUP> edges(dot, member);
  const int first = SHARED ? block * part : 0, end = SHARED ? min(first + part, dot.inner) : dot.inner;
  float sum = dot.vectors<GROUP, IN_FLIGHT, true>(first, end, member);
  if (block == 0) sum += edges.products();
  sum = row_reduce<Sum, GROUP, THREADS>(sum, scratch);
  if constexpr (SHARED) {
    float* const sums = partial + static_cast<long long>(line) * blocks;
    if (threadIdx.x == 0) sums[block] = sum;
    if (!last_block(counters + line, blocks) || threadIdx.x >= WARP) return;
    sum = 0.f;
    for (int b = threadIdx.x; b < blocks; b += WARP) sum += sums[b];
    sum = warp_sum(sum);
  }
  if (member == 0 && line < lines) C[static_cast<long long>(line) * c_line] = from_float<OUT>(sum);
}
