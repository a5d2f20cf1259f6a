#include "sparse.hpp"

#include "lanes.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

template <class F>
void each_sparse_chunk(const SparseShape& shape, int selector, F f) {
  for (int row = 0; row < kSparseRows; ++row)
    for (int chunk = 0; chunk < shape.chunks(); ++chunk) f(row, chunk, shape.place(row, chunk, selector));
}

MetadataProblem problem_of(uint32_t bits, const SparseShape& shape, bool ordered) {
  const uint32_t first = bits & 3, second = bits >> 2;
  if (shape.bits == 32) return bits == 0b0100 || bits == 0b1110 ? kSound : kNoElement;
  if (first == second) return kTwice;
  return ordered && first > second ? kOutOfOrder : kSound;
}

}  // namespace

int selector_of(const Warp& warp, const Operand& selector, const SparseShape& shape) {
  const uint32_t value = source_cells<uint32_t>(warp, selector)[0];
  if (value >= shape.selectors())
    warp.finding(FaultKind::sparse_metadata, 0, value, Space::none, kNoSelector, shape.selectors());
  return static_cast<int>(value % shape.selectors());
}

void check_metadata(const Warp& warp, const Operand& metadata, int selector, const SparseShape& shape,
                    bool ordered, int first_row) {
  const uint32_t* cells = source_cells<uint32_t>(warp, metadata);
  bool found = false;
  each_sparse_chunk(shape, selector, [&](int row, int chunk, MetadataPlace at) {
    if (found) return;
    const uint32_t bits = cells[at.lane] >> at.shift & 15;
    const MetadataProblem problem = problem_of(bits, shape, ordered);
    if (problem == kSound || undefined_bits(warp, metadata, at.lane, false) >> at.shift & 15) return;
    found = true;
    const int elements = shape.chunk_elements();
    const int64_t where = (int64_t{first_row + row} << 8 | chunk * elements) << 8 | elements;
    warp.finding(FaultKind::sparse_metadata, at.lane, bits, Space::none, problem, where);
  });
}

void find_places(const uint32_t* metadata, int selector, const SparseShape& shape, SparsePlaces& places) {
  const int elements = shape.chunk_elements(), stored = elements / 2;
  each_sparse_chunk(shape, selector, [&](int row, int chunk, MetadataPlace at) {
    const uint32_t bits = metadata[at.lane] >> at.shift & 15;
    for (int i = 0; i < stored; ++i) {
      const int which = stored == 1 ? 0 : i * 2 / stored;  // of the two places that are taken
      const int place = static_cast<int>(bits >> (2 * which) & 3);
      const int within = stored == 1 ? place / 2 : place * elements / 4 + i % (elements / 4);
      places.k[row][chunk * stored + i] = static_cast<uint8_t>(chunk * elements + within);
    }
  });
}

void undefined_rows(const Warp& warp, const Operand& metadata, int selector, const SparseShape& shape,
                    uint32_t* origins) {
  each_sparse_chunk(shape, selector, [&](int row, int, MetadataPlace at) {
    if (undefined_bits(warp, metadata, at.lane, false) >> at.shift & 15)
      origins[row] = origin_in_register(warp, metadata, at.lane);
  });
}

}  // namespace workbench::emulator::WORKBENCH_ISA
