#include "shared_matrix.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

void find_runs(const SharedMatrix& layout, uint32_t first_row, uint32_t rows, uint32_t depth,
               std::vector<SharedRun>& runs) {
  runs.clear();
  constexpr uint32_t kLine = 128, kPiece = 16;
  uint32_t line = ~0u, pieces = 0;
  const auto flush = [&] {
    while (pieces) {
      const auto first = static_cast<uint32_t>(__builtin_ctz(pieces));
      const auto count = static_cast<uint32_t>(__builtin_ctz(~(pieces >> first)));
      runs.push_back({line * kLine + first * kPiece, count * kPiece});
      pieces &= ~(((1u << count) - 1) << first);
    }
  };
  each_chunk(layout, first_row, rows, depth, [&](uint32_t, uint32_t, uint32_t address) {
    if (address / kLine != line) {
      flush();
      line = address / kLine;
    }
    pieces |= 1u << address % kLine / kPiece;
  });
  flush();
}

}  // namespace

const std::vector<SharedRun>& runs_of(const SharedMatrix& layout, uint32_t first_row, uint32_t rows,
                                      uint32_t depth) {
  struct Known {
    uint64_t key[2] = {};
    std::vector<SharedRun> runs;
  };
  constexpr int kKeptBits = 8;
  static thread_local std::vector<Known> kept(size_t{1} << kKeptBits);
  const uint64_t key[2] = {uint64_t{layout.start} << 36 | uint64_t{layout.leading} << 18 | layout.stride,
                           uint64_t{first_row} << 48 | uint64_t{rows} << 32 | uint64_t{depth} << 16 |
                               uint64_t{layout.swizzle} << 8 | uint64_t{layout.element} << 4 |
                               (layout.wide_atom ? 4u : 0u) | (layout.transposed ? 3u : 1u)};
  Known& known = kept[(key[0] ^ key[1] * 31) * 0x9e3779b97f4a7c15u >> (64 - kKeptBits)];
  if (known.key[0] != key[0] || known.key[1] != key[1]) {
    find_runs(layout, first_row, rows, depth, known.runs);
    known.key[0] = key[0], known.key[1] = key[1];
  }
  return known.runs;
}

}  // namespace workbench::emulator::WORKBENCH_ISA
