// the dot product of a vector, which begins at a multiple of 16 bytes, with a row that begins anywhere.
#pragma once
#include "tile/dot.cuh"

// how a row is taken: `inner` vectors that lie at multiples of 16 bytes, from element `left` on, and fewer
// than two vectors of elements around them, `edges`, one by one. of the vector as many elements, from its
// first on, lie in whole vectors. WHOLE: the row begins at a multiple of 16 bytes and has no edges
template <bool WHOLE, class Element>
struct RowDot {
  static constexpr int WIDTH = VECTOR_BYTES / sizeof(Element);
  const Element *a, *row;
  int left, inner, edges;

  __device__ __forceinline__ RowDot(const Element* a, const Element* row, int length) : a(a), row(row) {
    if constexpr (WHOLE) {
      left = edges = 0, inner = length / WIDTH;
    } else {
      const int before = -static_cast<int>(reinterpret_cast<size_t>(row) / sizeof(Element)) & (WIDTH - 1);
      left = min(before, length);
      inner = max(0, length / WIDTH - (before > 0));
      edges = length - inner * WIDTH;
    }
  }

  // what one of MEMBERS threads has of the products of inner vectors `first` to `end`, of which it takes
  // every MEMBERS-th. LOADS loads of the row, and
  // those of the vector for them, are in flight before the first is used. with ONCE, nobody reads
  // the row again
  template <int MEMBERS, int LOADS, bool ONCE>
  __device__ __forceinline__ float vectors(int first, int end, int member) const {
    float sums[LOADS] = {};
    const Element* const from = row + left;
#pragma unroll 1
    for (int v = first + member; v < end; v += MEMBERS * LOADS) {
      Chunk<Element> y[LOADS];
      OfVector x[LOADS];
#pragma unroll
      for (int u = 0; u < LOADS; ++u)
        if (v + u * MEMBERS < end) {
          const Element* const at = from + (v + u * MEMBERS) * WIDTH;
          if constexpr (ONCE)
            y[u] = load_vector_once<WIDTH>(at);
          else
            y[u] = load_vector<WIDTH>(at);
        }
#pragma unroll
      for (int u = 0; u < LOADS; ++u)
        if (v + u * MEMBERS < end) x[u].load(a + (v + u * MEMBERS) * WIDTH, left);
#pragma unroll
      for (int u = 0; u < LOADS; ++u)
        if (v + u * MEMBERS < end) add_products(sums[u], x[u].elements(left), y[u]);
    }
#pragma unroll
    for (int u = 1; u < LOADS; ++u) sums[0] += sums[u];
    return sums[0];
  }

  // what one of MEMBERS threads has of the elements around them. these are loaded here, and multiplied by
  // products(): after vectors(), whose loads then need not wait for them
  template <int MEMBERS>
  struct Edges {
    static constexpr int MOST = WHOLE ? 0 : (2 * WIDTH - 1 + MEMBERS - 1) / MEMBERS;
    Element x[MOST + 1], y[MOST + 1];

    __device__ __forceinline__ Edges(const RowDot& dot, int member) {
#pragma unroll
      for (int i = 0; i < MOST; ++i) {
        const int e = i * MEMBERS + member, k = e < dot.left ? e : e + dot.inner * WIDTH;
        x[i] = y[i] = Element(0.f);
        if (e < dot.edges) x[i] = dot.a[k], y[i] = dot.row[k];
      }
    }
    __device__ __forceinline__ float products() const {
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < MOST; ++i) sum += to_float(x[i]) * to_float(y[i]);
      return sum;
    }
  };

 private:
  // the elements of the vector that belong to an inner vector: loaded first, all of a loop, and shifted later
  struct OfVector {
    Chunk<Element> low, high;

    __device__ __forceinline__ void load(const Element* from, int left) {
      low = load_vector<WIDTH>(from);
      if (!WHOLE && left) high = load_vector<WIDTH>(from + WIDTH);
    }
    __device__ __forceinline__ Chunk<Element> elements(int left) const {
      if constexpr (WHOLE) return low;
      return shifted(low, high, left * static_cast<unsigned>(sizeof(Element)));
    }
  };
};
