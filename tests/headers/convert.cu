#include "tile/convert.cuh"

// wide = narrow as float, narrowed = x as TYPE. all: (THREADS)
extern "C" __global__ void convert(const TYPE* narrow, float* wide, const float* x, TYPE* narrowed) {
  wide[threadIdx.x] = to_float(narrow[threadIdx.x]);
  narrowed[threadIdx.x] = from_float<TYPE>(x[threadIdx.x]);
}

// what 4 bytes hold, as float, and back. words, again: (THREADS), x: (THREADS, 4 / sizeof(TYPE))
extern "C" __global__ void convert_words(const unsigned* words, float* x, unsigned* again) {
  constexpr int HELD = 4 / sizeof(TYPE);
  float held[HELD];
  unpack<TYPE>(words[threadIdx.x], held);
  for (int i = 0; i < HELD; ++i) x[threadIdx.x * HELD + i] = held[i];
  again[threadIdx.x] = packed<TYPE>(held);
}

#ifdef PAIRS
// two neighbours of x: (2 THREADS) as TYPE, in one register. pairs: (THREADS)
extern "C" __global__ void convert_pairs(const float* x, unsigned* pairs) {
  pairs[threadIdx.x] = pair_from_float<TYPE>(x[2 * threadIdx.x], x[2 * threadIdx.x + 1]);
}
#endif
