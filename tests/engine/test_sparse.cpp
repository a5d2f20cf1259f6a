// Where the metadata of a sparse matrix lies, and what it says of its elements.
#include <set>
#include <utility>

#include "check.hpp"
#include "sparse.hpp"

using namespace workbench::emulator;
using namespace workbench::emulator::baseline_isa;

namespace {

constexpr SparseShape kShapes[] = {{32, 8}, {32, 16}, {16, 16}, {16, 32},
                                   {8, 32}, {8, 64},  {4, 64},  {4, 128}};  // bits, depth

}  // namespace

TEST(metadata_fills_the_registers_of_the_lanes_that_the_selector_names) {
  for (const SparseShape& shape : kShapes) {
    CHECK(shape.threads() * static_cast<int>(shape.selectors()) == 4);
    for (int selector = 0; selector < static_cast<int>(shape.selectors()); ++selector) {
      std::set<std::pair<int, int>> used;
      for (int row = 0; row < kSparseRows; ++row)
        for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
          const MetadataPlace at = shape.place(row, chunk, selector);
          CHECK(at.lane / 4 == row % 8 && at.lane % 4 / shape.threads() == selector);
          CHECK(at.shift % 4 == 0 && at.shift < 32);
          used.insert({at.lane, at.shift});
        }
      CHECK(used.size() == static_cast<size_t>(8 * shape.threads() * 8));
    }
  }
}

TEST(every_stored_element_has_a_place_of_its_own) {
  for (const SparseShape& shape : kShapes)
    for (const uint32_t said : {0x44444444u, 0xeeeeeeeeu}) {  // the first places of every chunk, or the last
      uint32_t metadata[kLanes];
      for (uint32_t& lane : metadata) lane = said;
      SparsePlaces places;
      find_places(metadata, 0, shape, places);
      const int elements = shape.chunk_elements(), stored = elements / 2;
      for (int row = 0; row < kSparseRows; ++row)
        for (int k = 0; k < shape.depth / 2; ++k) {
          const int expected = k / stored * elements + k % stored + (said == 0x44444444u ? 0 : stored);
          CHECK(places.k[row][k] == expected);
        }
    }
}
