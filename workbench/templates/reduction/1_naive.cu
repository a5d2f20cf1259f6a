// y[r] = sum_c x[r, c]. x: (rows, columns), y: (rows).
//
// stage 1, naive: one thread takes one row.
//
// what limits it: FILL IN.

#include "tile/convert.cuh"  // to_float, from_float

extern "C" __global__ void __launch_bounds__(THREADS)
    reduction_naive(const IN* x, float* y, int rows, int columns) {
  // FILL IN: IN is the element type of x, THREADS the threads of a block
}
