// mma.sync of 8-, 6- and 4-bit floats, as .kind names them, with and without factors for blocks of K
// (sm_120a). A factor is one byte of a register that some threads of a quad hold.
#include "fragment.hpp"
#include "tensor_product.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

enum Element { kOfE4m3, kOfE5m2, kOfE2m3, kOfE3m2, kOfE2m1 };
constexpr const char* kNames[] = {".e4m3", ".e5m2", ".e2m3", ".e3m2", ".e2m1"};

// Values of bytes: those of 6 bits lie at the bottom, those of 4 bits two bits above it.
float value_of(Element element, uint32_t byte) {
  switch (element) {
    case kOfE4m3:
      return decode(byte, kE4m3);
    case kOfE5m2:
      return decode(byte, kE5m2);
    case kOfE2m3:
      return small_float(byte & 63, 2, 3);
    case kOfE3m2:
      return small_float(byte & 63, 3, 2);
    default:
      return small_float(byte >> 2 & 15, 2, 1);
  }
}
const float* values_of(int element) {
  static const auto all = [] {
    std::array<std::array<float, 256>, 5> tables{};
    for (int e = 0; e < 5; ++e)
      for (uint32_t k = 0; k < 256; ++k)
        tables[static_cast<size_t>(e)][k] = value_of(static_cast<Element>(e), k);
    return tables;
  }();
  return all[static_cast<size_t>(element)].data();
}

struct ByteCode {  // of an element whose type is known when it is executed
  static constexpr int kPacked = 4;
  static float unpack(uint32_t cell, int i) { return static_cast<float>(cell >> 8 * i & 255); }
};
struct Packed4 {
  static constexpr int kPacked = 8;
  static float unpack(uint32_t cell, int i) { return small_float(cell >> 4 * i & 15, 2, 1); }
};

// variant: element of A, of B, factors of a row (0: none), whether these are ue4m3
constexpr int kTypeOfB = 3, kFactors = 6, kFine = 1 << 10, kMask = 7;

constexpr uint32_t kRows = 16, kColumns = 8;
constexpr int kMostBlocks = 4;

// The factors of a row of A, or a column of B: of the lane that holds them, from a byte on.
void read_factors(const Warp& warp, const Operand* operands, int count, bool fine, bool of_a,
                  float (&factors)[kRows][kMostBlocks]) {
  const uint32_t* cells = source_cells<uint32_t>(warp, operands[0]);
  const uint32_t byte = uniform(warp, operands[1]) & 0xffff, thread = uniform(warp, operands[2]) & 0xffff;
  const uint32_t threads = of_a ? 2 : 4, step = count == 1 ? 1 : count == 2 ? 2 : 4;
  if (byte > 3 || byte % step) warp.fault(FaultKind::bad_operand, 0, 0, Space::none, byte);
  if (thread >= threads) warp.fault(FaultKind::bad_operand, 0, 0, Space::none, thread);
  for (uint32_t row = 0; row < (of_a ? kRows : kColumns); ++row) {
    const uint32_t lane = row % 8 * 4 + (of_a ? 2 * thread + row / 8 : thread);
    for (int k = 0; k < count; ++k)
      factors[row][k] = scale_value(cells[lane] >> 8 * (byte + static_cast<uint32_t>(k)) & 255, fine);
  }
}

// d, a, b, c{, factors of a, byte, thread, factors of b, byte, thread}
template <class Code, int K, class Sums>
void multiply(Warp& warp, const Instruction& instruction) {
  constexpr int kD = kAccumulatorRegisters<Sums, kRows, kColumns>, kA = kFragmentRegisters<Code, kRows, K>,
                kB = kFragmentRegisters<Code, kColumns, K>;
  const Operand *a_at = instruction.operands + kD, *c_at = a_at + kA + kB;
  alignas(64) float a[kRows][K], b[K][kColumns], d[kRows][kColumns];
  read_a<Code>(warp, a_at, a);
  read_b<Code>(warp, a_at + kA, b);
  Sums::read(warp, c_at, d);
  if constexpr (Code::kPacked == 4) {
    const float *of_a = values_of(instruction.variant & kMask),
                *of_b = values_of(instruction.variant >> kTypeOfB & kMask);
    for (auto& row : a)
      for (float& value : row) value = of_a[static_cast<int>(value)];
    for (auto& row : b)
      for (float& value : row) value = of_b[static_cast<int>(value)];
  }
  const int blocks = instruction.variant >> kFactors & kMask;
  if (!blocks) {
    add_product(a, b, d, 0, DensePlaces());
    return Sums::write(warp, instruction.operands, d);
  }
  float of_a[kRows][kMostBlocks], of_b[kRows][kMostBlocks];
  const bool fine = (instruction.variant & kFine) != 0;
  read_factors(warp, c_at + kD, blocks, fine, true, of_a);
  read_factors(warp, c_at + kD + 3, blocks, fine, false, of_b);
  for (uint32_t r = 0; r < kRows; ++r)
    for (uint32_t n = 0; n < kColumns; ++n) {
      float sum = 0;
      for (int block = 0; block < blocks; ++block) {
        float part = 0;
        for (int k = block * (K / blocks); k < (block + 1) * (K / blocks); ++k) part += a[r][k] * b[k][n];
        sum += part * (of_a[r][block] * of_b[n][block]);
      }
      d[r][n] += sum;
    }
  Sums::write(warp, instruction.operands, d);
}

const std::string kFactorOperands = "w6";

void add_packed(Table& table, const std::string& kind, const std::string& vector, int factors,
                const char* type) {
  const bool fine = type[3] == '4';
  table.add_aligned("mma.sync.aligned.m16n8k64.row.col.kind::" + kind + ".block_scale" + vector +
                        ".f32.e2m1.e2m1.f32" + type,
                    "W4w4w2f4" + kFactorOperands, multiply<Packed4, 64, Accumulator<float>>,
                    factors << kFactors | (fine ? kFine : 0));
}

}  // namespace

void add_block_scaled_operations(Table& table) {
  const std::string byte_shape = "mma.sync.aligned.m16n8k32.row.col.kind::";
  for (int a = 0; a < 5; ++a)
    for (int b = 0; b < 5; ++b) {
      const std::string types = std::string(kNames[a]) + kNames[b];
      const int variant = a | b << kTypeOfB;
      table.add_aligned(byte_shape + "f8f6f4.f32" + types + ".f32", "W4w4w2f4",
                        multiply<ByteCode, 32, Accumulator<float>>, variant);
      table.add_aligned(byte_shape + "f8f6f4.f16" + types + ".f16", "W2w4w2w2",
                        multiply<ByteCode, 32, HalfAccumulator>, variant);
      for (const char* vector : {"", ".scale_vec::1X"})
        table.add_aligned(byte_shape + "mxf8f6f4.block_scale" + vector + ".f32" + types + ".f32.ue8m0",
                          "W4w4w2f4" + kFactorOperands, multiply<ByteCode, 32, Accumulator<float>>,
                          variant | 1 << kFactors);
    }
  add_packed(table, "mxf4", "", 2, ".ue8m0");
  add_packed(table, "mxf4", ".scale_vec::2X", 2, ".ue8m0");
  add_packed(table, "mxf4nvf4", ".scale_vec::2X", 2, ".ue8m0");
  add_packed(table, "mxf4nvf4", ".scale_vec::4X", 4, ".ue8m0");
  add_packed(table, "mxf4nvf4", ".scale_vec::4X", 4, ".ue4m3");
}

}  // namespace workbench::emulator::WORKBENCH_ISA
