// wide = narrow as float, narrowed = x as TYPE. all: (THREADS)
#include "convert.cuh"

extern "C" __global__ void convert(const TYPE* narrow, float* wide, const float* x, TYPE* narrowed) {
  wide[threadIdx.x] = to_float(narrow[threadIdx.x]);
  narrowed[threadIdx.x] = from_float<TYPE>(x[threadIdx.x]);
}
