// vectors by words of 4 bytes: their elements as floats, which takes one instruction for each of 16 bits,
// where compilers first move it to a register of its own; and vectors that are loaded or filled.
#pragma once
#include "tile/convert.cuh"
#include "tile/vector.cuh"

template <int COUNT>
struct Floats {
  float x[COUNT];

  template <class Element>
  __device__ __forceinline__ explicit Floats(const Vector<Element, COUNT>& v) {
    constexpr int EACH = sizeof(unsigned) / sizeof(Element);
    if constexpr (COUNT % EACH == 0) {
#pragma unroll
      for (int i = 0; i < COUNT / EACH; ++i)
        unpack<Element>(reinterpret_cast<const unsigned*>(&v)[i],
                        reinterpret_cast<float (&)[EACH]>(x[i * EACH]));
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) x[i] = to_float(v.x[i]);
    }
  }
};

// a vector where it lies inside of its array, and else one of elements `other`
template <int COUNT, class Element>
__device__ __forceinline__ Vector<Element, COUNT> load_if(bool inside, const Element* from, Element other) {
  if constexpr (COUNT * sizeof(Element) % sizeof(unsigned) == 0) {
    using Words = Vector<unsigned, COUNT * sizeof(Element) / sizeof(unsigned)>;
    unsigned equal;
    if constexpr (sizeof(Element) == sizeof(unsigned))
      equal = reinterpret_cast<const unsigned&>(other);
    else
      equal = reinterpret_cast<const unsigned short&>(other) * 0x10001u;
    Words v;
#pragma unroll
    for (int i = 0; i < sizeof(Words) / sizeof(unsigned); ++i) v.x[i] = equal;
    if (inside) v = *reinterpret_cast<const Words*>(from);
    return reinterpret_cast<const Vector<Element, COUNT>&>(v);
  } else {
    Vector<Element, COUNT> v;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) v.x[i] = other;
    if (inside) v = load_vector<COUNT>(from);
    return v;
  }
}
