// y = the sum of x, or its maximum if MAXIMUM. x: (rows, columns), rows ldx elements apart. y: (rows) if x is
// reduced along the columns, (columns) if it is reduced along the rows, (1) if all elements are reduced.
//
// stage 1, naive: one thread computes one element of y.
//
// what limits it: along the columns, neighbouring threads read addresses a row apart. if all elements are
// reduced, one thread does everything.
#include "tile/reduce_ops.cuh"

using Op = ReduceOp<MAXIMUM>;

// element i of y: `count` elements of x from first[i] = i * next on, `step` apart, and that for each of
// `runs` stretches `run` apart
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_naive(const IN* __restrict__ x, OUT* __restrict__ y, int outputs, long long next, int runs,
                 long long run, int count, long long step) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= outputs) return;
  Running<Op> value;
  for (int r = 0; r < runs; ++r)
    for (int c = 0; c < count; ++c) value.add(to_float(x[i * next + r * run + c * step]));
  y[i] = from_float<OUT>(value.value());
}
