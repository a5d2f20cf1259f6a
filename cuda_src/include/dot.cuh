// the dot product of two vectors by one warp or by several, 16 bytes a load.
#pragma once
#include "convert.cuh"
#include "vector.cuh"
#include "warp.cuh"

// sum of a[i] b[i], i < length, in every lane. LOADS loads of each are in flight before the first is used.
// `aligned`: a and b are multiples of 16 bytes; otherwise elements are loaded one by one. where `turns` warps
// share the work, each takes every turns-th stretch, from that of its turn on, and has the sum of these. with
// ONCE, nobody reads b again
template <int LOADS, bool ONCE = false, class Element>
__device__ __forceinline__ float warp_dot(const Element* a, const Element* b, int length, bool aligned,
                                          int lane, int turn = 0, int turns = 1) {
  constexpr int WIDTH = VECTOR_BYTES / sizeof(Element), STRETCH = LOADS * WARP;
  const int vectors = aligned ? length / WIDTH : 0, whole = vectors / STRETCH * STRETCH;
  float sum = 0.f;

  const auto load_b = [&](int v) {
    if constexpr (ONCE)
      return load_vector_once<WIDTH>(b + static_cast<long long>(v) * WIDTH);
    else
      return load_vector<WIDTH>(b + static_cast<long long>(v) * WIDTH);
  };
  const auto load_a = [&](int v) { return load_vector<WIDTH>(a + static_cast<long long>(v) * WIDTH); };
  const auto add = [&](const Vector<Element, WIDTH>& x, const Vector<Element, WIDTH>& y) {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum += to_float(x.x[i]) * to_float(y.x[i]);
  };
  for (int v = turn * STRETCH + lane; v < whole; v += turns * STRETCH) {
    Vector<Element, WIDTH> x[LOADS], y[LOADS];
#pragma unroll
    for (int u = 0; u < LOADS; ++u) y[u] = load_b(v + u * WARP);
#pragma unroll
    for (int u = 0; u < LOADS; ++u) x[u] = load_a(v + u * WARP);
#pragma unroll
    for (int u = 0; u < LOADS; ++u) add(x[u], y[u]);
  }
  const int first = turn * WARP + lane, step = turns * WARP;
  for (int v = whole + first; v < vectors; v += step) add(load_a(v), load_b(v));
  for (int k = vectors * WIDTH + first; k < length; k += step) sum += to_float(a[k]) * to_float(b[k]);
  return warp_sum(sum);
}
