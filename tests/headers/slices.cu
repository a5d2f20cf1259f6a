// slice: (threads). which slice of k each step of a block's tile number `item` takes
#include "tile/slices.cuh"

extern "C" __global__ void order(unsigned* slice, int item, int steps) {
  slice[threadIdx.x] = there_and_back(item, steps).slice(threadIdx.x);
}
