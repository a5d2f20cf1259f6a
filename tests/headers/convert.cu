#include "tile/convert.cuh"

// wide = narrow as float, narrowed = x as TYPE. all: (THREADS)
extern "C" __global__ void convert(const TYPE* narrow, float* wide, const float* x, TYPE* narrowed) {
  wide[threadIdx.x] = to_float(narrow[threadIdx.x]);
  narrowed[threadIdx.x] = from_float<TYPE>(x[threadIdx.x]);
}

#ifdef PAIRS
// two neighbours of x: (2 THREADS) as TYPE, in one register. pairs: (THREADS)
extern "C" __global__ void convert_pairs(const float* x, unsigned* pairs) {
  pairs[threadIdx.x] = pair_from_float<TYPE>(x[2 * threadIdx.x], x[2 * threadIdx.x + 1]);
}
#endif
