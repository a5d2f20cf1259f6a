// a row of a matrix as vectors of up to 16 bytes. rows may start anywhere: vectors lie at multiples of their
// size, so that the first and the last one of a row may be parts.
#pragma once
#include "tile/convert.cuh"
#include "tile/vector.cuh"

// elements in the widest vector that both types have: 16 bytes of the larger one
template <class In, class Out = In>
constexpr int ROW_WIDTH = VECTOR_BYTES / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));

// elements of the first vector that lie before the row
template <int WIDTH, class Element>
__device__ __forceinline__ int row_head(const Element* row) {
  return static_cast<int>(reinterpret_cast<size_t>(row) / sizeof(Element) % WIDTH);
}

// the elements of a row from `column` on, which may be below 0; `other` for those outside of it. `aligned`:
// column 0 of `row` is `head` elements after a multiple of the vector's size, and `column` is a multiple less
// `head`
template <int WIDTH, class Element>
__device__ __forceinline__ Vector<Element, WIDTH> load_row(const Element* row, int column, int columns,
                                                           bool aligned, Element other) {
  if (aligned && column >= 0 && column <= columns - WIDTH) return load_vector<WIDTH>(row + column);
  Vector<Element, WIDTH> v;
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) v.x[i] = column + i >= 0 && column + i < columns ? row[column + i] : other;
  return v;
}

// stores those that lie in the row
template <int WIDTH, class Element>
__device__ __forceinline__ void store_row(Element* row, int column, int columns, bool aligned,
                                          const Vector<Element, WIDTH>& v) {
  if (aligned && column >= 0 && column <= columns - WIDTH) {
    store_vector(row + column, v);
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
      if (column + i >= 0 && column + i < columns) row[column + i] = v.x[i];
  }
}

// one walk of a group of threads over a row: member 0 takes the first vector, member 1 the second, ... and
// each goes on `members` vectors further
template <int WIDTH>
struct RowWalk {
  int head, columns;

  template <class Element>
  __device__ __forceinline__ RowWalk(const Element* row, int columns)
      : head(row_head<WIDTH>(row)), columns(columns) {}

  __device__ __forceinline__ int column(int vector) const { return vector * WIDTH - head; }

  // of this walk, along another row of as many columns
  template <class Element>
  __device__ __forceinline__ bool aligned(const Element* row) const {
    return row_head<WIDTH>(row) == head;
  }
};

// the part number `index` of a row that is split into parts of `part` vectors each
template <int WIDTH>
struct RowPart : RowWalk<WIDTH> {
  int first, end;  // vectors
  int limit;       // columns of the row that lie before the end of the part

  template <class Element>
  __device__ __forceinline__ RowPart(const Element* row, int columns, int index, int part)
      : RowWalk<WIDTH>(row, columns),
        first(index * part),
        end(min((index + 1) * part, (columns + this->head + WIDTH - 1) / WIDTH)),
        limit(min(columns, this->column(end))) {}
};
