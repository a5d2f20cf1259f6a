// y[i] = x[i]^2. x, y: (n).
//
// stage 1, naive: one thread computes one element.
//
// what limits it: FILL IN.

#include "tile/convert.cuh"  // to_float, from_float

extern "C" __global__ void __launch_bounds__(THREADS) elementwise_naive(const IN* x, IN* y, int n) {
  // FILL IN: IN is the element type, THREADS the threads of a block
}
