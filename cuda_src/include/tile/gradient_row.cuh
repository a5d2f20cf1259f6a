// gradients of softmax and of norms, of parts of a row that a thread holds in registers.
#pragma once
#include "tile/row.cuh"
#include "tile/row_reduce.cuh"

// two sums at once
struct TwoSums {
  struct Value {
    float first, second;
  };
  static constexpr bool COMMUTES = true;
  static __device__ __forceinline__ Value identity() { return {0.f, 0.f}; }
  static __device__ __forceinline__ Value combine(Value a, Value b) {
    return {a.first + b.first, a.second + b.second};
  }
};

// sum of a b over COUNT vectors; elements outside of the row have to be 0
template <int COUNT, int WIDTH, class Element>
__device__ __forceinline__ float sum_products(const Vector<Element, WIDTH> (&a)[COUNT],
                                              const Vector<Element, WIDTH> (&b)[COUNT]) {
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum += to_float(a[i].x[j]) * to_float(b[i].x[j]);
  return sum;
}

// y (dy - dot)
template <class Out, int WIDTH, class Element>
__device__ __forceinline__ Vector<Out, WIDTH> softmax_gradient(const Vector<Element, WIDTH>& y,
                                                               const Vector<Element, WIDTH>& dy, float dot) {
  Vector<Out, WIDTH> dx;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) dx.x[j] = from_float<Out>(to_float(y.x[j]) * (to_float(dy.x[j]) - dot));
  return dx;
}

// what the gradient of a norm needs of a row: how it was normalised, the mean of g = w dy, and that of g
// times the normalised elements
struct RowGradient {
  float mean, scale, of_g, of_products;

  __device__ __forceinline__ float normalised(float x) const { return (x - mean) * scale; }
  __device__ __forceinline__ float dx(float x, float g) const {
    return scale * (g - of_g - normalised(x) * of_products);
  }
};

// sums of w dy and of w dy (x - mean) scale over a vector
template <int WIDTH, class Element>
__device__ __forceinline__ void add_gradient_sums(TwoSums::Value& sums, const Vector<Element, WIDTH>& x,
                                                  const Vector<Element, WIDTH>& dy,
                                                  const Vector<Element, WIDTH>& w, float mean, float scale) {
#pragma unroll
  for (int j = 0; j < WIDTH; ++j) {
    const float g = to_float(w.x[j]) * to_float(dy.x[j]);
    sums.first += g;
    sums.second += g * ((to_float(x.x[j]) - mean) * scale);
  }
}

template <class Out, int WIDTH, class Element>
__device__ __forceinline__ Vector<Out, WIDTH> norm_gradient(const Vector<Element, WIDTH>& x,
                                                            const Vector<Element, WIDTH>& dy,
                                                            const Vector<Element, WIDTH>& w,
                                                            RowGradient row) {
  Vector<Out, WIDTH> dx;
#pragma unroll
  for (int j = 0; j < WIDTH; ++j)
    dx.x[j] = from_float<Out>(row.dx(to_float(x.x[j]), to_float(w.x[j]) * to_float(dy.x[j])));
  return dx;
}
