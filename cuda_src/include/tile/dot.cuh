// the dot product of two vectors by one warp or by several, 16 bytes a load.
#pragma once
#include "tile/convert.cuh"
#include "tile/vector.cuh"
#include "tile/warp.cuh"

template <class Element>
using Chunk = Vector<Element, VECTOR_BYTES / sizeof(Element)>;

// adds x[i] y[i] to sum
__device__ __forceinline__ void add_products(float& sum, const Chunk<float>& x, const Chunk<float>& y) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += x.x[i] * y.x[i];
}
__device__ __forceinline__ void add_products(float& sum, const Chunk<__half>& x, const Chunk<__half>& y) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += to_float(x.x[i]) * to_float(y.x[i]);
}
// two of bf16 in a register are floats but for a shift or a mask: an instruction each, where the compiler
// takes them apart with two
__device__ __forceinline__ void add_products(float& sum, const Chunk<__nv_bfloat16>& x,
                                             const Chunk<__nv_bfloat16>& y) {
  const auto& a = reinterpret_cast<const Vector<unsigned, 4>&>(x);
  const auto& b = reinterpret_cast<const Vector<unsigned, 4>&>(y);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum += __uint_as_float(a.x[i] << 16) * __uint_as_float(b.x[i] << 16);
    sum += __uint_as_float(a.x[i] & 0xffff0000u) * __uint_as_float(b.x[i] & 0xffff0000u);
  }
}

// sum of a[i] b[i], i < length, in every lane. LOADS loads of each are in flight before the first is used.
// `aligned`: a and b are multiples of 16 bytes; otherwise elements are loaded one by one. where `turns` warps
// share the work, each takes every turns-th stretch, from that of its turn on, and has the sum of these. with
// ONCE, nobody reads b again
template <int LOADS, bool ONCE = false, class Element>
__device__ __forceinline__ float warp_dot(const Element* a, const Element* b, int length, bool aligned,
                                          int lane, int turn = 0, int turns = 1) {
  constexpr int WIDTH = VECTOR_BYTES / sizeof(Element), STRETCH = LOADS * WARP;
  const int vectors = aligned ? length / WIDTH : 0, whole = vectors / STRETCH * STRETCH;
  float sums[LOADS] = {};

  const auto load_b = [](const Element* from) {
    if constexpr (ONCE)
      return load_vector_once<WIDTH>(from);
    else
      return load_vector<WIDTH>(from);
  };
  const int step = turns * STRETCH, start = turn * STRETCH + lane;
  const Element *pa = a + start * WIDTH, *pb = b + start * WIDTH;
#pragma unroll 1
  for (int v = start; v < whole; v += step, pa += step * WIDTH, pb += step * WIDTH) {
    Chunk<Element> x[LOADS], y[LOADS];
#pragma unroll
    for (int u = 0; u < LOADS; ++u) y[u] = load_b(pb + u * WARP * WIDTH);
#pragma unroll
    for (int u = 0; u < LOADS; ++u) x[u] = load_vector<WIDTH>(pa + u * WARP * WIDTH);
#pragma unroll
    for (int u = 0; u < LOADS; ++u) add_products(sums[u], x[u], y[u]);
  }
  // what is left: less than a stretch of vectors, less than a vector of elements. rolled up, as it is rare
  const int first = turn * WARP + lane, next = turns * WARP;
#pragma unroll 1
  for (int v = whole + first; v < vectors; v += next)
    add_products(sums[0], load_vector<WIDTH>(a + v * WIDTH), load_b(b + v * WIDTH));
#pragma unroll 1
  for (int k = vectors * WIDTH + first; k < length; k += next) sums[0] += to_float(a[k]) * to_float(b[k]);
#pragma unroll
  for (int u = 1; u < LOADS; ++u) sums[0] += sums[u];
  return warp_sum(sums[0]);
}
