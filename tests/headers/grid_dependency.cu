// y = x + 1, between the calls of a kernel that others depend on, and that depends on others. x, y: (threads)
#include "ptx/grid_dependency.cuh"

extern "C" __global__ void next(const float* x, float* y) {
  grid_dependency_launch();
  grid_dependency_wait();
  y[threadIdx.x] = x[threadIdx.x] + 1;
}
