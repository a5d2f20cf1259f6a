#include "tile/cross_entropy.cuh"

// of a row of one logit, x[t], with the maximum top[t] and the sum one: {loss, lse}. x, top, y: one a thread,
// y two
extern "C" __global__ void losses(const float* x, const int* labels, const float* top, const float* sum,
                                  float* y) {
  store_loss(&y[2 * threadIdx.x], &y[2 * threadIdx.x + 1], x + threadIdx.x, labels[threadIdx.x],
             {top[threadIdx.x], sum[threadIdx.x]});
}
