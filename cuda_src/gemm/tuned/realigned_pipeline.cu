// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N). A and B come as tensor maps
// of arrays whose rows are multiples of 16 bytes, as in fp32_pipeline. fp32, sm_90a.
//
// stage 13 of simt, a branch of stage 9, realigned pipeline: where rows of A or of B are no multiples of 16
// bytes, a first kernel copies the matrix to memory where its rows are such multiples.
//
// what it gains: every matrix can use TMA and warps that only multiply.
//
// what limits it: the copy reads the matrix once more and writes it. where the product is small, this takes
// longer than the product.

#include "fp32_pipeline.cu"
#include "tile/realign.cuh"

constexpr int COPY_THREADS = 256, COPY_EACH = 8;  // elements of a thread, a warp's width apart

// rows `ld` elements apart to rows `packed` elements apart
extern "C" __global__ void __launch_bounds__(COPY_THREADS)
    gemm_realign(const IN* __restrict__ from, IN* __restrict__ to, int rows, int columns, int ld,
                 int packed) {
  realign_rows<COPY_EACH, COPY_THREADS>(from, to, rows, columns, ld, packed);
}

// rows that become columns
extern "C" __global__ void __launch_bounds__(COPY_THREADS)
    gemm_turn(const IN* __restrict__ from, IN* __restrict__ to, int rows, int columns, int ld, int packed) {
  turn_rows<COPY_THREADS>(from, to, rows, columns, ld, packed);
}
