// C[m, n] = sum_k A[m, k] B[k, n]. A: (M, K), B: (K, N), C: (M, N).
//
// stage 1, naive: one thread computes one element of C.
//
// what limits it: FILL IN.

#include "tile/convert.cuh"  // to_float, from_float

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y)
    matmul_naive(const IN* A, const IN* B, IN* C, int M, int N, int K) {
  // FILL IN: IN is the element type, a block has BLOCK_X by BLOCK_Y threads
}
