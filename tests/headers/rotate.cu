// TYPE, N, NEIGHBOURS, EVEN are given
#include "tile/rotate.cuh"

// y = the pairs of the row x, rotated by cos and sin, N pairs a thread. x, y: (2 half), cos, sin: (half)
extern "C" __global__ void rotate(const TYPE* x, const TYPE* cos, const TYPE* sin, TYPE* y, int half) {
  const int pair = threadIdx.x * N;
  const TYPE zero = from_float<TYPE>(0.f);
  const auto p = load_pairs<NEIGHBOURS, N, EVEN>(x, pair, half);
  store_pairs<NEIGHBOURS, EVEN>(y, pair, half,
                          rotated<NEIGHBOURS>(p, load_row<N, EVEN>(cos, pair, half, true, zero),
                                              load_row<N, EVEN>(sin, pair, half, true, zero)));
}
