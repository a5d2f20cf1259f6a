// the dot product of two vectors by one warp, 16 bytes a load.
#pragma once
#include "convert.cuh"
#include "vector.cuh"
#include "warp.cuh"

// sum of a[i] b[i], i < length, in every lane. LOADS loads of each are in flight before the first is used.
// `aligned`: a and b are multiples of 16 bytes; otherwise elements are loaded one by one
template <int LOADS, class Element>
__device__ __forceinline__ float warp_dot(const Element* a, const Element* b, int length, bool aligned,
                                          int lane) {
  constexpr int WIDTH = VECTOR_BYTES / sizeof(Element);
  const int vectors = aligned ? length / WIDTH : 0;
  float sum = 0.f;

  const auto add = [&](const Vector<Element, WIDTH>& x, const Vector<Element, WIDTH>& y) {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum += to_float(x.x[i]) * to_float(y.x[i]);
  };
  int v = lane;
  for (; v + (LOADS - 1) * WARP < vectors; v += LOADS * WARP) {
    Vector<Element, WIDTH> x[LOADS], y[LOADS];
#pragma unroll
    for (int u = 0; u < LOADS; ++u)
      y[u] = load_vector<WIDTH>(b + static_cast<long long>(v + u * WARP) * WIDTH);
#pragma unroll
    for (int u = 0; u < LOADS; ++u)
      x[u] = load_vector<WIDTH>(a + static_cast<long long>(v + u * WARP) * WIDTH);
#pragma unroll
    for (int u = 0; u < LOADS; ++u) add(x[u], y[u]);
  }
  for (; v < vectors; v += WARP)
    add(load_vector<WIDTH>(a + static_cast<long long>(v) * WIDTH),
        load_vector<WIDTH>(b + static_cast<long long>(v) * WIDTH));
  for (int k = vectors * WIDTH + lane; k < length; k += WARP) sum += to_float(a[k]) * to_float(b[k]);
  return warp_sum(sum);
}
