// Which bytes of a tensor the rows of a tile are: boxes partly outside, and pixels of an im2col tile.
#include <vector>

#include "check.hpp"
#include "tensor_walk.hpp"

using namespace workbench::emulator;
using namespace workbench::emulator::baseline_isa;

namespace {

struct Copied {
  uint32_t at;
  uint64_t first, last;  // bytes of the tensor that are copied: none where both are 0

  bool operator==(const Copied& other) const {
    return at == other.at && first == other.first && last == other.last;
  }
};

std::vector<Copied> rows_of(const TilePlace& place) {
  std::vector<Copied> rows;
  each_row(place, [&](uint32_t at, uint64_t address, int64_t begin, int64_t end, int64_t) {
    const auto from = address + static_cast<uint64_t>(begin), to = address + static_cast<uint64_t>(end);
    rows.push_back(begin < end ? Copied{at, from, to} : Copied{at, 0, 0});
  });
  return rows;
}

// 3 images of 2 rows of 4 pixels of 8 floats
TensorMap images() {
  TensorMap map{};
  map.address = 4096;
  map.rank = 4;
  const uint64_t sizes[] = {8, 4, 2, 3}, strides[] = {4, 32, 128, 256};
  for (int d = 0; d < 4; ++d) {
    map.sizes[d] = sizes[d];
    map.strides[d] = strides[d];
    map.element_strides[d] = 1;
  }
  return map;
}

uint64_t pixel(uint64_t image, uint64_t row, uint64_t column) {
  return 4096 + image * 256 + row * 128 + column * 32;
}

}  // namespace

TEST(boxes_are_cut_at_the_tensor) {
  TensorMap map = images();
  const uint32_t box[] = {8, 3, 1, 2};
  std::copy_n(box, 4, map.box);
  map.element_strides[1] = 2;
  CHECK(box_bytes(map) == 2 * 2 * 32);
  const std::vector<Copied> found = rows_of({&map, {4, 3, 1, 2}, {}, TileMode::box, {}});
  CHECK((found == std::vector<Copied>{
                      {0, pixel(2, 1, 3) + 16, pixel(2, 1, 3) + 32}, {32, 0, 0}, {64, 0, 0}, {96, 0, 0}}));
  const std::vector<Copied> before = rows_of({&map, {-4, -1, 0, 0}, {}, TileMode::box, {}});
  CHECK((before[0] == Copied{0, 0, 0}));
  CHECK((before[1] == Copied{32, pixel(0, 0, 1), pixel(0, 0, 1) + 16}));
}

TEST(pixels_run_through_their_bounding_box_and_on) {
  TensorMap map = images();
  map.im2col = true;
  map.box[0] = 8, map.pixels = 8;
  map.lower[0] = -1,
  map.upper[0] = -1;  // columns -1 to 2: with the offsets 1 to 4, of which the last is outside
  map.lower[1] = 0, map.upper[1] = -1;  // one row: with the offset the second
  CHECK(box_bytes(map) == 8 * 32);
  const std::vector<Copied> found = rows_of({&map, {0, 1, 0, 1}, {2, 1}, TileMode::box, {}});
  const auto at = [&](uint32_t row, uint64_t image, uint64_t column) {
    return Copied{row * 32, pixel(image, 1, column), pixel(image, 1, column) + 32};
  };
  CHECK((found == std::vector<Copied>{at(0, 1, 3),
                                      {32, 0, 0},
                                      at(2, 2, 1),
                                      at(3, 2, 2),
                                      at(4, 2, 3),
                                      {160, 0, 0},
                                      {192, 0, 0},
                                      {224, 0, 0}}));  // images end
}

TEST(packed_elements_are_copied_in_units) {
  const struct {
    int type;
    uint64_t unit, gap, in_row;  // bytes of global memory, behind them in shared memory, and units of a box
  } kinds[] = {{13, 1, 0, 64}, {14, 8, 8, 8}, {15, 12, 4, 8}};
  for (const auto& kind : kinds) {
    TensorMap map{};
    map.element_type = kind.type;
    map.address = 4096;
    map.rank = 2;
    map.sizes[0] = 256, map.sizes[1] = 3;
    map.box[0] = 128, map.box[1] = 2;
    map.strides[1] = 512;
    map.element_strides[0] = map.element_strides[1] = 1;
    count_units(map);
    const auto units = static_cast<int32_t>(kind.in_row);
    const TilePlace place{&map, {units, 2}, {}, TileMode::box, {}};  // the second half of the last row
    CHECK(tile_bytes(place) == 2 * kind.in_row * kind.unit);
    CHECK(bytes_in_shared(place) == 2 * kind.in_row * (kind.unit + kind.gap));
    const std::vector<Copied> found = rows_of(place);
    CHECK(found.size() == (kind.gap ? 2 * kind.in_row : 2));
    for (size_t i = 0; i < found.size(); ++i) {
      const uint64_t bytes = kind.gap ? kind.unit : kind.in_row,
                     first = 4096 + 2 * 512 + kind.in_row * kind.unit;
      const uint64_t from = first + i * bytes, shared = i * (bytes + kind.gap);
      CHECK(found[i].at == shared);
      CHECK(i < found.size() / 2 ? found[i].first == from && found[i].last == from + bytes : !found[i].last);
    }
  }
}
