// a row of a matrix as vectors of up to 16 bytes. rows may start anywhere: vectors lie at multiples of their
// size, so that the first and the last one of a row may be parts.
#pragma once
#include "tile/floats.cuh"

#ifndef ROW_VECTOR_BYTES
#define ROW_VECTOR_BYTES VECTOR_BYTES  // of the vectors that rows are whole numbers of
#endif

// elements in the widest vector that both types have: ROW_VECTOR_BYTES of the larger one
template <class In, class Out = In>
constexpr int ROW_WIDTH = ROW_VECTOR_BYTES / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));

// blocks of BLOCK threads that a multiprocessor has room for at least, if a thread holds COUNT vectors of a
// row, MOST or fewer: 1,024 threads, with 64 registers each. one block loads while another one adds up. more
// vectors, and rows that are not whole vectors, would spill
template <int BLOCK, int COUNT, bool WHOLE, int AT_MOST = 4>
constexpr int ROW_RESIDENT = WHOLE && COUNT <= AT_MOST ? 1024 / BLOCK : 1;

// elements of the first vector that lie before the row
template <int WIDTH, class Element>
__device__ __forceinline__ int row_head(const Element* row) {
  return static_cast<int>(reinterpret_cast<size_t>(row) / sizeof(Element) % WIDTH);
}

// the elements of a row from `column` on, which may be below 0; `other` for those outside of it. `aligned`:
// column 0 of `row` is `head` elements after a multiple of the vector's size, and `column` is a multiple less
// `head`. WHOLE: rows start at multiples of the vector's size and consist of whole vectors. without the
// second way to load, which takes registers and keeps loads apart, a kernel moves up to twice as many bytes a
// second
template <int WIDTH, bool WHOLE, class Element>
__device__ __forceinline__ Vector<Element, WIDTH> load_row(const Element* row, int column, int columns,
                                                           bool aligned, Element other) {
  if constexpr (WHOLE) {
    return load_if<WIDTH>(column < columns, row + column, other);
  } else {
    const bool whole = aligned && column >= 0 && column <= columns - WIDTH;
    Vector<Element, WIDTH> v = load_if<WIDTH>(whole, row + column, other);
    if (whole || columns <= 0 || column >= columns) return v;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {  // without branches: all loads are in flight
      const Element x = row[min(max(column + i, 0), columns - 1)];
      if (column + i >= 0 && column + i < columns) v.x[i] = x;
    }
    return v;
  }
}

// st.global.v4 or .v2: stores a vector to device memory, where another branch stores single elements. of a
// plain store compilers would make several there, of 2 or 4 bytes
template <int COUNT, class Element>
__device__ __forceinline__ void store_whole(Element* to, const Vector<Element, COUNT>& v) {
  if constexpr (COUNT * sizeof(Element) == sizeof(uint4)) {
    const auto& bits = reinterpret_cast<const uint4&>(v);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(bits.x), "r"(bits.y), "r"(bits.z),
                 "r"(bits.w)
                 : "memory");
  } else if constexpr (COUNT * sizeof(Element) == sizeof(uint2)) {
    const auto& bits = reinterpret_cast<const uint2&>(v);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(bits.x), "r"(bits.y) : "memory");
  } else {
    store_vector(to, v);
  }
}

// stores those that lie in the row
template <bool WHOLE, int WIDTH, class Element>
__device__ __forceinline__ void store_row(Element* row, int column, int columns, bool aligned,
                                          const Vector<Element, WIDTH>& v) {
  if constexpr (WHOLE) {
    if (column < columns) store_vector(row + column, v);
  } else if (aligned && column >= 0 && column <= columns - WIDTH) {
    store_whole(row + column, v);
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
      if (column + i >= 0 && column + i < columns) row[column + i] = v.x[i];
  }
}

// one walk of a group of threads over a row: member 0 takes the first vector, member 1 the second, ... and
// each goes on `members` vectors further
template <int WIDTH, bool WHOLE>
struct RowWalk {
  int head, limit;  // the walk goes as far as this column

  template <class Element>
  __device__ __forceinline__ RowWalk(const Element* row, int columns)
      : head(WHOLE ? 0 : row_head<WIDTH>(row)), limit(columns) {}

  __device__ __forceinline__ int column(int vector) const { return vector * WIDTH - head; }

  // the vector at `column` of this row, or of another one of as many columns
  template <class Element>
  __device__ __forceinline__ Vector<Element, WIDTH> load(const Element* row, int column,
                                                         Element other) const {
    return load_row<WIDTH, WHOLE>(row, column, limit, aligned(row), other);
  }

  // COUNT vectors, the first with the number `first`, the others `step` further each. whole ones are loaded
  // first, without a branch: all are in flight. a row has at most two that are not
  template <int COUNT, class Element>
  __device__ __forceinline__ void load(Vector<Element, WIDTH> (&v)[COUNT], const Element* row, int first,
                                       int step, Element other) const {
    bool parts = false;
    const bool to_vectors = aligned(row);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int at = column(first + i * step);
      const bool whole = WHOLE ? at < limit : to_vectors && at >= 0 && at <= limit - WIDTH;
      parts |= !WHOLE && !whole && at < limit;
      v[i] = load_if<WIDTH>(whole, row + at, other);
    }
    if (WHOLE || !parts) return;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int at = column(first + i * step);
      if (!to_vectors || at < 0 || at > limit - WIDTH)
        v[i] = load_row<WIDTH, false>(row, at, limit, false, other);
    }
  }

  template <class Element>
  __device__ __forceinline__ void store(Element* row, int column, const Vector<Element, WIDTH>& v) const {
    store_row<WHOLE>(row, column, limit, aligned(row), v);
  }

 private:
  template <class Element>
  __device__ __forceinline__ bool aligned(const Element* row) const {
    return WHOLE || row_head<WIDTH>(row) == head;
  }
};

// the vectors of another row that a thread takes as it walks: COUNT, the first with the number `first`, the
// others `step` further each. few of them are loaded at once, so that they are on their way while threads
// reduce; more would take too many registers, and are loaded where they are used
template <int COUNT, int WIDTH, bool WHOLE, class Element>
class RowVectors {
  static constexpr bool AT_ONCE = COUNT <= 2;
  const RowWalk<WIDTH, WHOLE>& walk;
  const Element* row;
  int first, step;
  Element other;
  Vector<Element, WIDTH> held[AT_ONCE ? COUNT : 1];

 public:
  __device__ __forceinline__ RowVectors(const RowWalk<WIDTH, WHOLE>& walk, const Element* row, int first,
                                        int step, Element other)
      : walk(walk), row(row), first(first), step(step), other(other) {
    if constexpr (AT_ONCE) walk.load(held, row, first, step, other);
  }

  __device__ __forceinline__ Vector<Element, WIDTH> operator[](int i) const {
    if constexpr (AT_ONCE)
      return held[i];
    else
      return walk.load(row, walk.column(first + i * step), other);
  }
};

// the part number `index` of a row that is split into parts of `part` vectors each
template <int WIDTH, bool WHOLE>
struct RowPart : RowWalk<WIDTH, WHOLE> {
  int first, end;  // vectors

  template <class Element>
  __device__ __forceinline__ RowPart(const Element* row, int columns, int index, int part)
      : RowWalk<WIDTH, WHOLE>(row, columns),
        first(index * part),
        end(min((index + 1) * part, (columns + this->head + WIDTH - 1) / WIDTH)) {
    this->limit = min(columns, this->column(end));
  }
};
