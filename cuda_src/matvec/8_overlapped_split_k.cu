// c[n] = sum_k a[k] B[n, k]. a: (K), B: (N, K), rows ldb elements apart, c: (N). partial: (splits, N),
// scratch.
//
// stage 8, overlapped split k: as stage 4, but the second kernel is launched programmatically. its blocks may
// start as soon as all blocks of the first kernel have started, and wait for its end before they read. sm_90.
//
// what it gains: the second launch costs no start of a kernel, and no end of one before it. 1024 x 65536 in bf16
// take 44.5 us on an H200, where stage 4 takes 46.0, and 35.1 back to back, where it takes 36.8.
//
// what limits it: device memory. blocks of the second kernel start where a multiprocessor has room beside the
// first.

#include "ptx/grid_dependency.cuh"
#include "split_k.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    matvec_parts_first(const IN* __restrict__ a, const IN* __restrict__ B, float* __restrict__ partial,
                       OUT* __restrict__ c, int N, int K, int ldb, int part) {
  grid_dependency_launch();
  multiply_part(a, B, partial, c, N, K, ldb, part);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    matvec_finish_overlapped(const float* partial, OUT* c, int N, int splits) {
  grid_dependency_wait();
  add_parts(partial, c, N, splits);
}
