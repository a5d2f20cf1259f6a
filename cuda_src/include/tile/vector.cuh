// several consecutive elements that move as one: 16 bytes are the widest load or store of a thread.
#pragma once

constexpr int VECTOR_BYTES = 16;

// the alignment makes the compiler use one instruction; an address that is not a multiple of it is a fault
template <class Element, int COUNT>
struct alignas(COUNT * sizeof(Element)) Vector {
  static_assert(COUNT * sizeof(Element) <= VECTOR_BYTES, "a thread moves at most 16 bytes at once");
  Element x[COUNT];
};

template <int COUNT, class Element>
__device__ __forceinline__ Vector<Element, COUNT> load_vector(const Element* from) {
  return *reinterpret_cast<const Vector<Element, COUNT>*>(from);
}

// ld.global.nc.L1::no_allocate: the same, 16 bytes of what nobody writes and is read only once. it takes no
// room in the L1, and, as measured on an H200, is the first to leave the L2 again
template <int COUNT, class Element>
__device__ __forceinline__ Vector<Element, COUNT> load_vector_once(const Element* from) {
  static_assert(COUNT * sizeof(Element) == VECTOR_BYTES, "what is read only once is read 16 bytes at a time");
  uint4 bits;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(from));
  return reinterpret_cast<const Vector<Element, COUNT>&>(bits);
}

template <int COUNT, class Element>
__device__ __forceinline__ void store_vector(Element* to, const Vector<Element, COUNT>& v) {
  *reinterpret_cast<Vector<Element, COUNT>*>(to) = v;
}

// the first `valid` of COUNT elements, zero for the others. `aligned`: `from` is a multiple of the vector's
// size
template <int COUNT, class Element>
__device__ __forceinline__ Vector<Element, COUNT> load_tail(const Element* from, int valid, bool aligned) {
  if (aligned && valid >= COUNT) return load_vector<COUNT>(from);
  Vector<Element, COUNT> v;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) v.x[i] = i < valid ? from[i] : Element(0.f);
  return v;
}

// stores the first `valid` of COUNT elements. `aligned` as above
template <int COUNT, class Element>
__device__ __forceinline__ void store_tail(Element* to, const Vector<Element, COUNT>& v, int valid,
                                           bool aligned) {
  if (aligned && valid >= COUNT) {
    store_vector(to, v);
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (i < valid) to[i] = v.x[i];
  }
}
