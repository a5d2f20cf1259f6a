// The metadata of a sparse A, of mma.sp and wgmma.mma_async.sp: where in its row each stored element belongs.
//
// Half of the elements of a row are stored. Four bits of metadata are about a chunk of the row, in which two
// places of four are taken: two bits for each, those of the first stored one lowest. A place is an element;
// of tf32 half of one, so that one element of two is stored (0b0100 or 0b1110); of 4-bit integers a pair.
#pragma once

#include "machine.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

constexpr int kSparseRows = 16;  // of a warp
constexpr int kMostStored = 64;  // elements of a row

struct MetadataPlace {
  int lane, shift;
};

// 16 rows of `depth` elements of `bits` bits, those that are not stored among them.
struct SparseShape {
  int bits, depth;

  bool in_bytes() const { return bits < 16; }  // a place has 8 bits, else 16
  int chunk_elements() const { return (in_bytes() ? 32 : 64) / bits; }
  int chunks() const { return depth / chunk_elements(); }
  // Of the four lanes that share rows l / 4 and l / 4 + 8, those that hold metadata; the selector says which.
  int threads() const { return chunks() / 4; }
  uint32_t selectors() const { return static_cast<uint32_t>(4 / threads()); }
  // A lane holds 8 chunks of one of its rows, or 4 chunks of the upper row and then the same of the lower.
  MetadataPlace place(int row, int chunk, int selector) const {
    const int first = row % 8 * 4 + selector * threads();
    return in_bytes() ? MetadataPlace{first + chunk / 8 * 2 + row / 8, chunk % 8 * 4}
                      : MetadataPlace{first + chunk / 4, row / 8 * 16 + chunk % 4 * 4};
  }
};

// By row and stored element: its place in the whole row.
struct SparsePlaces {
  uint8_t k[kSparseRows][kMostStored];
};

// The lanes that hold metadata, by the selector; one that there is not is a finding.
int selector_of(const Warp& warp, const Operand& selector, const SparseShape& shape);
// Metadata that PTX leaves undefined is a finding: one place twice, or with `ordered` the later one first.
// `first_row`: of the warp in A.
void check_metadata(const Warp& warp, const Operand& metadata, int selector, const SparseShape& shape,
                    bool ordered, int first_row);
// `metadata` has the register of each lane.
void find_places(const uint32_t* metadata, int selector, const SparseShape& shape, SparsePlaces& places);
// Sets the origins of rows whose metadata is undefined.
void undefined_rows(const Warp& warp, const Operand& metadata, int selector, const SparseShape& shape,
                    uint32_t* origins);

}  // namespace workbench::emulator::WORKBENCH_ISA
