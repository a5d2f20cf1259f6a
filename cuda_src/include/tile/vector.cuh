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

// the 16 bytes that begin `bytes` bytes, 0 to 15, behind the beginning of two neighbouring vectors
template <int COUNT, class Element>
__device__ __forceinline__ Vector<Element, COUNT> shifted(const Vector<Element, COUNT>& low,
                                                          const Vector<Element, COUNT>& high,
                                                          unsigned bytes) {
  static_assert(COUNT * sizeof(Element) == VECTOR_BYTES, "what begins anywhere is read 16 bytes at a time");
  const auto &l = reinterpret_cast<const Vector<unsigned, 4>&>(low),
             &h = reinterpret_cast<const Vector<unsigned, 4>&>(high);
  unsigned word[8] = {l.x[0], l.x[1], l.x[2], l.x[3], h.x[0], h.x[1], h.x[2], h.x[3]};
  Vector<unsigned, 4> v;
#pragma unroll
  for (int i = 0; i < 6; ++i) word[i] = bytes & 8 ? word[i + 2] : word[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) word[i] = bytes & 4 ? word[i + 1] : word[i];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    v.x[i] = sizeof(Element) % 4 ? __funnelshift_r(word[i], word[i + 1], (bytes & 3) * 8) : word[i];
  return reinterpret_cast<const Vector<Element, COUNT>&>(v);
}

// 16 bytes from anywhere: of the two vectors at multiples of 16 bytes in which they lie, of which the second
// one is read even where they begin at such a multiple
template <int COUNT, class Element>
__device__ __forceinline__ Vector<Element, COUNT> load_vector_anywhere(const Element* from) {
  const size_t at = reinterpret_cast<size_t>(from);
  const auto* const whole =
      reinterpret_cast<const Vector<Element, COUNT>*>(at & ~static_cast<size_t>(VECTOR_BYTES - 1));
  return shifted(whole[0], whole[1], at & (VECTOR_BYTES - 1));
}

template <int COUNT, class Element>
__device__ __forceinline__ void store_vector(Element* to, const Vector<Element, COUNT>& v) {
  *reinterpret_cast<Vector<Element, COUNT>*>(to) = v;
}

// makes all but the first `valid` elements zero
template <int COUNT, class Element>
__device__ __forceinline__ void keep_first(Vector<Element, COUNT>& v, int valid) {
  static_assert(COUNT * sizeof(Element) % sizeof(unsigned) == 0, "elements are cleared a word at a time");
  unsigned* const word = reinterpret_cast<unsigned*>(&v);
#pragma unroll
  for (int i = 0; i < COUNT * sizeof(Element) / 4; ++i) {
    const int bits = valid * 8 * static_cast<int>(sizeof(Element)) - 32 * i;
    word[i] &= bits >= 32 ? ~0u : bits > 0 ? (1u << bits) - 1 : 0u;
  }
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
