// rotation of pairs of elements that a thread holds in two vectors.
#pragma once
#include "tile/row.cuh"

// two vectors of a row, with 2 WIDTH elements of WIDTH pairs
template <int WIDTH, class Element>
struct Pairs {
  Vector<Element, WIDTH> v[2];

  // element `which` of pair i: where PACKED, pairs are neighbours, else each vector has one of both
  template <bool PACKED>
  __device__ __forceinline__ Element& at(int i, int which) {
    const int place = PACKED ? 2 * i + which : which * WIDTH + i;
    return v[place / WIDTH].x[place % WIDTH];
  }
};

// where the pairs from number `pair` on lie in a row of `half` of them: load or store both vectors
template <bool PACKED, int WIDTH, bool WHOLE, class Element>
__device__ __forceinline__ Pairs<WIDTH, Element> load_pairs(const Element* row, int pair, int half) {
  const Element *first = row, *second = PACKED ? row : row + half;
  const int column = PACKED ? 2 * pair : pair, next = PACKED ? column + WIDTH : column;
  const int columns = PACKED ? 2 * half : half;
  const Element zero = from_float<Element>(0.f);
  return {load_row<WIDTH, WHOLE>(first, column, columns, row_head<WIDTH>(first) == 0, zero),
          load_row<WIDTH, WHOLE>(second, next, columns, row_head<WIDTH>(second) == 0, zero)};
}

template <bool PACKED, bool WHOLE, int WIDTH, class Element>
__device__ __forceinline__ void store_pairs(Element* row, int pair, int half,
                                            const Pairs<WIDTH, Element>& p) {
  Element *first = row, *second = PACKED ? row : row + half;
  const int column = PACKED ? 2 * pair : pair, next = PACKED ? column + WIDTH : column;
  const int columns = PACKED ? 2 * half : half;
  store_row<WHOLE>(first, column, columns, row_head<WIDTH>(first) == 0, p.v[0]);
  store_row<WHOLE>(second, next, columns, row_head<WIDTH>(second) == 0, p.v[1]);
}

// (u, v) -> (u cos - v sin, u sin + v cos)
template <bool PACKED, int WIDTH, class Element>
__device__ __forceinline__ Pairs<WIDTH, Element> rotated(Pairs<WIDTH, Element> p,
                                                         const Vector<Element, WIDTH>& cos,
                                                         const Vector<Element, WIDTH>& sin) {
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    const float u = to_float(p.template at<PACKED>(i, 0)), v = to_float(p.template at<PACKED>(i, 1));
    const float c = to_float(cos.x[i]), s = to_float(sin.x[i]);
    p.template at<PACKED>(i, 0) = from_float<Element>(u * c - v * s);
    p.template at<PACKED>(i, 1) = from_float<Element>(u * s + v * c);
  }
  return p;
}
