// c[n] = sum_k a[k] B[n, k]. a: (K), B: (N, K), rows ldb elements apart, c: (N). partial: (splits, N),
// scratch.
//
// stage 4, split k: where rows are few, several warps share one. warp (n, s) multiplies the s-th part of k of
// row n, which has `part` elements, and stores its sum in `partial`. a second kernel adds up the parts in a
// fixed order, so that the result is the same every time. with one part per row this is stage 3, and there is
// nothing to add up.
//
// what it gains: enough warps are at work, whatever the shape of B.
//
// what limits it: device memory. for a small B, the second launch, some 3 us.

#include "split_k.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    matvec_parts(const IN* __restrict__ a, const IN* __restrict__ B, float* __restrict__ partial,
                 OUT* __restrict__ c, int N, int K, int ldb, int part) {
  multiply_part(a, B, partial, c, N, K, ldb, part);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    matvec_finish(const float* __restrict__ partial, OUT* __restrict__ c, int N, int splits) {
  add_parts(partial, c, N, splits);
}
