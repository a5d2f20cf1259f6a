// The rows of a box and the pixels of an im2col tile, in the order in which they lie in shared memory.
#pragma once

#include <algorithm>

#include "engine.hpp"
#include "isa.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// Bytes of a row of the box in shared memory.
inline uint64_t row_in_shared(const TensorMap& map) { return map.box[0] * (map.strides[0] + map.gap); }

inline int elements_along(const TensorMap& map, int d) {
  const int stride = d == 0 ? 1 : static_cast<int>(map.element_strides[d]);  // of dimension 0 it is ignored
  return (static_cast<int>(map.box[d]) + stride - 1) / stride;
}

enum class TileMode : uint8_t {
  box,         // or the pixels of an im2col map
  four_rows,   // gather4 and scatter4
  along_w,     // im2col::w: pixels of one line of each image
  along_w_128  // im2col::w::128: as many as that
};

inline uint32_t box_bytes(const TensorMap& map) {
  uint64_t bytes = map.strides[0];
  if (map.im2col) return static_cast<uint32_t>(bytes * map.box[0] * map.pixels);
  for (int d = 0; d < map.rank; ++d) bytes *= static_cast<uint64_t>(elements_along(map, d));
  return static_cast<uint32_t>(bytes);
}

struct TilePlace {  // where a tile begins in its tensor
  const TensorMap* map;
  int32_t coordinates[5];
  uint16_t offsets[3];  // of the pixels of an im2col tile; along W: halo and offset
  TileMode mode;
  int32_t rows[4];  // of gather4 and scatter4
};

// Bytes of the tensor in a tile, which an mbarrier counts. In shared memory the gaps come to them.
inline uint32_t tile_bytes(const TilePlace& place) {
  const TensorMap& map = *place.map;
  const auto row = static_cast<uint32_t>(map.box[0] * map.strides[0]);
  return place.mode == TileMode::four_rows     ? 4 * row
         : place.mode == TileMode::along_w_128 ? 128 * row
                                               : box_bytes(map);
}

// The rows of an im2col tile are pixels: from the first one on along the second dimension, and from the end
// of the bounding box on at the start of its next line. Offsets shift them all.
template <class F>
void each_pixel(const TilePlace& place, int64_t begin, int64_t end, int64_t row_bytes, F f) {
  const TensorMap& map = *place.map;
  const uint32_t bytes = box_bytes(map);
  int64_t base[5];
  std::copy_n(place.coordinates, 5, base);
  for (uint32_t at = 0; at < bytes; at += static_cast<uint32_t>(row_bytes)) {
    uint64_t address = map.address + static_cast<uint64_t>(base[0] * static_cast<int64_t>(map.strides[0]));
    bool inside = begin < end;
    for (int d = 1; d < map.rank; ++d) {
      const int64_t position = base[d] + (d < map.rank - 1 ? place.offsets[d - 1] : 0);
      inside &= position >= 0 && position < static_cast<int64_t>(map.sizes[d]);
      address += static_cast<uint64_t>(position) * map.strides[d];
    }
    f(at, address, inside ? begin : 0, inside ? end : 0, row_bytes);
    for (int d = 1; d < map.rank; ++d) {
      base[d] += map.element_strides[d];
      if (d == map.rank - 1 || base[d] < static_cast<int64_t>(map.sizes[d]) + map.upper[d - 1]) break;
      base[d] = map.lower[d - 1];
    }
  }
}

// Four rows of a matrix, each from the same column on.
template <class F>
void each_of_four(const TilePlace& place, int64_t begin, int64_t end, int64_t row_bytes, F f) {
  const TensorMap& map = *place.map;
  const int64_t column = int64_t{place.coordinates[0]} * static_cast<int64_t>(map.strides[0]);
  for (uint32_t k = 0; k < 4; ++k) {
    const int64_t row = place.rows[k];
    const bool inside = begin < end && row >= 0 && row < static_cast<int64_t>(map.sizes[1]);
    f(k * static_cast<uint32_t>(row_bytes),
      map.address + static_cast<uint64_t>(column) + static_cast<uint64_t>(row) * map.strides[1],
      inside ? begin : 0, inside ? end : 0, row_bytes);
  }
}

// Pixels along the second dimension, and behind the end of the bounding box those of the next image: the
// coordinates between stay. An offset shifts the box and the first pixel.
template <class F>
void each_along_w(const TilePlace& place, int64_t begin, int64_t end, int64_t row_bytes, F f) {
  const TensorMap& map = *place.map;
  const int last = map.rank - 1;
  const int64_t shift = static_cast<int16_t>(place.offsets[1]);
  int64_t at[5];
  std::copy_n(place.coordinates, 5, at);
  at[1] += shift;
  const uint32_t bytes = tile_bytes(place);
  for (uint32_t to = 0; to < bytes; to += static_cast<uint32_t>(row_bytes)) {
    uint64_t address = map.address + static_cast<uint64_t>(at[0] * static_cast<int64_t>(map.strides[0]));
    bool inside = begin < end;
    for (int d = 1; d <= last; ++d) {
      inside &= at[d] >= 0 && at[d] < static_cast<int64_t>(map.sizes[d]);
      address += static_cast<uint64_t>(at[d]) * map.strides[d];
    }
    f(to, address, inside ? begin : 0, inside ? end : 0, row_bytes);
    at[1] += map.element_strides[1];
    if (at[1] < static_cast<int64_t>(map.sizes[1]) + map.upper[0] + shift) continue;
    at[1] = map.lower[0] + shift;
    at[last] += map.element_strides[last];
  }
}

inline uint32_t bytes_in_shared(const TilePlace& place) {
  const auto unit = static_cast<uint32_t>(place.map->strides[0]);
  return tile_bytes(place) / unit * (unit + place.map->gap);
}

template <class F>
void each_dense_row(const TilePlace& place, F f) {
  const TensorMap& map = *place.map;
  const int64_t element = static_cast<int64_t>(map.strides[0]), row_elements = elements_along(map, 0);
  const int64_t row_bytes = row_elements * element;
  const int64_t begin = std::clamp<int64_t>(-int64_t{place.coordinates[0]}, 0, row_elements) * element;
  const int64_t end =
      std::clamp<int64_t>(static_cast<int64_t>(map.sizes[0]) - place.coordinates[0], 0, row_elements) *
      element;
  if (place.mode == TileMode::four_rows) return each_of_four(place, begin, end, row_bytes, f);
  if (place.mode != TileMode::box) return each_along_w(place, begin, end, row_bytes, f);
  if (map.im2col) return each_pixel(place, begin, end, row_bytes, f);
  const uint32_t bytes = box_bytes(map);
  int index[5] = {};
  for (uint32_t at = 0; at < bytes; at += static_cast<uint32_t>(row_bytes)) {
    uint64_t address = map.address + static_cast<uint64_t>(place.coordinates[0] * element);
    bool inside = begin < end;
    for (int d = 1; d < map.rank; ++d) {
      const int64_t position = place.coordinates[d] + int64_t{index[d]} * map.element_strides[d];
      inside &= position >= 0 && position < static_cast<int64_t>(map.sizes[d]);
      address += static_cast<uint64_t>(position) * map.strides[d];
    }
    f(at, address, inside ? begin : 0, inside ? end : 0, row_bytes);
    for (int d = 1; d < map.rank && ++index[d] == elements_along(map, d); ++d) index[d] = 0;
  }
}

// Calls f(offset in the tile, global address, first byte inside, last byte inside + 1, bytes of the row) for
// every row of the box. Where units have gaps behind them in shared memory, each of them is a row.
template <class F>
void each_row(const TilePlace& place, F f) {
  const uint32_t gap = place.map->gap;
  if (!gap) return each_dense_row(place, f);
  const auto unit = static_cast<int64_t>(place.map->strides[0]);
  each_dense_row(place, [&](uint32_t at, uint64_t address, int64_t begin, int64_t end, int64_t row_bytes) {
    for (int64_t k = 0; k < row_bytes; k += unit)
      f(static_cast<uint32_t>((at + k) / unit * (unit + gap)), address + static_cast<uint64_t>(k), 0,
        begin <= k && k < end ? unit : 0, unit + gap);
  });
}

}  // namespace workbench::emulator::WORKBENCH_ISA
