// tcgen05.cp and tcgen05.shift, which one thread issues: from shared to tensor memory, and within it.
#include "shared_matrix.hpp"
#include "tensor_memory.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

enum CopyShape { k128x256b, k4x256b, k128x128b, k64x128b_02_13, k64x128b_01_23, k32x128b };

struct CopyForm {
  uint32_t rows, words;  // of the source, 32 bits each
  uint8_t bands;
  uint16_t lanes;
};
constexpr CopyForm kForms[] = {{128, 8, 0xff, kAllOfBand}, {4, 8, 0x55, 1},
                               {128, 4, 0xff, kAllOfBand}, {64, 4, 0xff, kAllOfBand},
                               {64, 4, 0xff, kAllOfBand},  {32, 4, 0xff, kAllOfBand}};

// Calls f(lane) for the lanes that a row of the source goes to.
template <class F>
void each_lane(int shape, uint32_t row, F f) {
  switch (shape) {
    case k4x256b:
      return f(row * 32);
    case k64x128b_02_13:
      f(row);
      return f(row + 64);
    case k64x128b_01_23:
      f(row / 32 * 64 + row % 32);
      return f(row / 32 * 64 + row % 32 + 32);
    case k32x128b:
      for (uint32_t slab = 0; slab < 4; ++slab) f(row + 32 * slab);
      return;
    default:
      return f(row);
  }
}

uint32_t tensor_address(const Warp& warp, const Operand& operand, int lane) {
  uint64_t addresses[kLanes];
  read_addresses(warp, operand, addresses);
  const auto address = static_cast<uint32_t>(addresses[lane]) & 0x3fffffff;
  if (tensor_lane(address) >= kTensorLanes)
    warp.fault(FaultKind::tensor_bounds, lane, address, Space::tensor, 1, kBeyondMemory);
  return address;
}

SharedMatrix source_of(const Warp& warp, int lane, uint64_t descriptor) {
  const auto refuse = [&](TensorDescriptorProblem problem, uint64_t value) {
    warp.fault(FaultKind::tensor_descriptor, lane, descriptor, Space::shared, problem,
               static_cast<int64_t>(value));
  };
  const uint64_t mode = descriptor >> 61;
  if ((descriptor >> 46 & 7) != 1) refuse(kMatrixVersion, descriptor >> 46 & 7);
  if (mode == 3 || mode == 5 || mode == 7) refuse(kMatrixSwizzle, mode);
  constexpr uint32_t kSwizzles[8] = {0, 128, 128, 0, 64, 0, 32, 0};
  SharedMatrix matrix;
  matrix.start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
  matrix.leading = static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4;
  matrix.stride = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
  matrix.swizzle = kSwizzles[mode];
  matrix.wide_atom = mode == 1;
  return matrix;
}

// Elements of 4 or 6 bits, 16 of them one after the other, each to 8 bits with zeros above it.
void spread(const uint8_t* from, uint32_t bits, uint8_t* to) {
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t bit = i * bits;
    uint32_t word = from[bit / 8];
    if (bit % 8 + bits > 8) word |= uint32_t{from[bit / 8 + 1]} << 8;
    to[i] = static_cast<uint8_t>(word >> bit % 8 & ((1u << bits) - 1));
  }
}

void copy_to(Warp& warp, const Instruction& instruction, int lane, Block& block) {  // [address], descriptor
  TensorUnit& unit = TensorUnit::of(warp);
  const int shape = instruction.flags >> kTensorKindShift & kTensorKindMask;
  const auto bits = static_cast<uint32_t>(instruction.flags >> kTensorVariantShift & kTensorVariantMask);
  const CopyForm& form = kForms[shape];
  const uint32_t address = tensor_address(warp, instruction.operands[0], lane);
  const SharedMatrix source =
      source_of(warp, lane, source_cells<uint64_t>(warp, instruction.operands[1])[lane]);
  const uint32_t bytes = form.words * 4, chunks = bytes / 16;
  const uint32_t number = unit.issue(warp, lane, TensorUse::copied);
  std::vector<SharedRun> runs;
  for (uint32_t row = 0; row < form.rows; ++row)
    for (uint32_t k = 0; k < chunks; ++k) runs.push_back({source.chunk(row, k * 16), 16});
  const bool unwritten = unit.read_shared(warp, lane, block, runs, number);
  const TensorRegion region{form.bands, form.lanes, tensor_column(address), form.words};
  if (!unit.use(warp, lane, block, region, number, true)) return;
  unit.note_written(block, region);
  TensorMemory& memory = unit.memory(block);
  for (uint32_t row = 0; row < form.rows; ++row)
    for (uint32_t k = 0; k < chunks; ++k) {
      const uint32_t from = source.chunk(row, k * 16);
      uint8_t piece[16];
      if (bits)
        spread(block.shared.data() + from, bits, piece);
      else
        std::memcpy(piece, block.shared.data() + from, sizeof piece);
      const uint32_t origin = unwritten ? origin_in_shared(warp, block, from, bits ? 2 * bits : 16) : 0;
      each_lane(shape, row, [&](uint32_t to) {
        const uint32_t column = tensor_column(address) + k * 4;
        std::memcpy(&memory.cell(to, column), piece, sizeof piece);
        for (uint32_t c = column; origin && c < column + 4; ++c) unit.note_undefined(block, to, c, origin);
      });
    }
}

template <class F>
void each_block(Warp& warp, const Instruction& instruction, F f) {
  for_lanes(warp.active, [&](int l) {
    TensorUnit& unit = TensorUnit::of(warp);
    unit.require_group(warp, instruction, l);
    f(l, *warp.block);
    if (instruction.flags & kTensorPair) f(l, unit.peer(warp, l));
  });
}

void copy(Warp& warp, const Instruction& instruction) {
  each_block(warp, instruction, [&](int lane, Block& block) { copy_to(warp, instruction, lane, block); });
}

// Rows move down by one: 32 bytes of the lanes of a warp, but for the last.
void shift(Warp& warp, const Instruction& instruction) {  // [address]
  each_block(warp, instruction, [&](int lane, Block& block) {
    TensorUnit& unit = TensorUnit::of(warp);
    const uint32_t address = tensor_address(warp, instruction.operands[0], lane);
    const uint32_t first = tensor_lane(address), column = tensor_column(address);
    constexpr uint32_t kShifted = 8;  // columns
    if (first % kLanes) warp.fault(FaultKind::tensor_bounds, lane, address, Space::tensor, kLanes, kOddLane);
    const TensorRegion region{0xff, kAllOfBand, column, kShifted};
    const uint32_t number = unit.issue(warp, lane, TensorUse::shifted);
    if (!unit.use(warp, lane, block, region, number, true)) return;
    TensorMemory& memory = unit.memory(block);
    for (uint32_t to = first; to + 1 < kTensorLanes; ++to)
      std::memcpy(&memory.cell(to, column), &memory.cell(to + 1, column), kShifted * sizeof(uint32_t));
  });
}

}  // namespace

void add_tensor_copies(Table& table) {
  table.add("tcgen05.cp", "ad", copy);
  table.of_unit(make_tensor_unit, Proxy::async);
  table.add("tcgen05.shift", "a", shift);
  table.of_unit(make_tensor_unit, Proxy::async);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
