#include "tile/reduce_ops.cuh"

// y[t] = {sum, maximum} of x[t], that of the identity, and of four and of nothing. x: (threads, 4), y:
// (threads, 4)
extern "C" __global__ void both(const float* x, float* y) {
  const Vector<float, 4> v[1] = {load_vector<4>(x + threadIdx.x * 4)};
  float* to = y + threadIdx.x * 4;
  to[0] = reduced<ReduceOp<false>>(ReduceOp<false>::identity(), v);
  to[1] = reduced<ReduceOp<true>>(ReduceOp<true>::identity(), v);
  to[2] = MaxOrNan::combine(x[threadIdx.x * 4], 1.f);
  to[3] = MaxOrNan::combine(1.f, x[threadIdx.x * 4]);
}
