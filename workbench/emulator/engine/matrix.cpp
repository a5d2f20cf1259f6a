// ldmatrix, stmatrix and mma.sync. A fragment is spread over the lanes: lane l holds, of row l / 4 of an 8x8
// tile, the elements that fit into 32 bits from column l % 4 on.
#include "matrix.hpp"

#include "memory.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr int kGeneric = 1, kTransposed = 2, kCountShift = 4;

// The rows of n 8x8 tiles of 16 bits lie where lanes 0 to 8n - 1 point.
void tile_rows(Warp& warp, const Operand& operand, int variant, Access access, uint8_t** pointer) {
  uint64_t address[kLanes];
  read_addresses(warp, operand, address);
  const int rows = 8 * (variant >> kCountShift);
  warp.set_active(rows == kLanes ? ~0u : (1u << rows) - 1);
  if (variant & kGeneric)
    resolve_generic(warp, address, 16, access, pointer);
  else
    resolve_shared(warp, address, 16, access, pointer);
  warp.set_active(~0u);
}

void load_tiles(Warp& warp, const Instruction& instruction) {
  const int n = instruction.variant >> kCountShift;
  uint8_t* row[kLanes];
  tile_rows(warp, instruction.operands[n], instruction.variant, Access::read, row);
  for (int tile = 0; tile < n; ++tile) {
    uint32_t values[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      if (instruction.variant & kTransposed) {
        uint16_t low, high;
        std::memcpy(&low, row[tile * 8 + l % 4 * 2] + l / 4 * 2, 2);
        std::memcpy(&high, row[tile * 8 + l % 4 * 2 + 1] + l / 4 * 2, 2);
        values[l] = low | static_cast<uint32_t>(high) << 16;
      } else {
        std::memcpy(&values[l], row[tile * 8 + l / 4] + l % 4 * 4, 4);
      }
    }
    write_cells(warp, instruction.operands[tile], values);
  }
  if (__builtin_expect(warp.read_unwritten, 0)) {
    uint64_t address[kLanes];
    read_addresses(warp, instruction.operands[n], address);
    loaded_undefined_tiles(warp, instruction, instruction.variant & kGeneric ? Space::none : Space::shared,
                           address, n, (instruction.variant & kTransposed) != 0);
  }
}

void store_tiles(Warp& warp, const Instruction& instruction) {
  const int n = instruction.variant >> kCountShift;
  uint8_t* row[kLanes];
  tile_rows(warp, instruction.operands[0], instruction.variant, Access::write, row);
  for (int tile = 0; tile < n; ++tile) {
    const uint32_t* values = source_cells<uint32_t>(warp, instruction.operands[1 + tile]);
    for (int l = 0; l < kLanes; ++l) {
      if (instruction.variant & kTransposed) {
        const uint16_t low = static_cast<uint16_t>(values[l]), high = static_cast<uint16_t>(values[l] >> 16);
        std::memcpy(row[tile * 8 + l % 4 * 2] + l / 4 * 2, &low, 2);
        std::memcpy(row[tile * 8 + l % 4 * 2 + 1] + l / 4 * 2, &high, 2);
      } else {
        std::memcpy(row[tile * 8 + l / 4] + l % 4 * 4, &values[l], 4);
      }
    }
  }
}

// ---- mma.sync.m16n8kK: D = A B + C

// E is the element, K the depth; P elements share a 32-bit register.
template <class E, int K>
struct Shape {
  static constexpr int P = E::kPacked;
  static constexpr int kRegistersA = K * 16 / (kLanes * P), kRegistersB = K * 8 / (kLanes * P);
};

template <class E, int K, class T>
void read_a(const Warp& warp, const Operand* operands, T (&a)[16][K]) {
  using S = Shape<E, K>;
  for (int q = 0; q < S::kRegistersA; ++q) {
    const uint32_t* cells = source_cells<uint32_t>(warp, operands[q]);
    for (int i = 0; i < S::P; ++i) {
      T values[kLanes];
      for (int l = 0; l < kLanes; ++l) values[l] = E::unpack(cells[l], i);
      for (int l = 0; l < kLanes; ++l) a[q % 2 * 8 + l / 4][q / 2 * 4 * S::P + l % 4 * S::P + i] = values[l];
    }
  }
}

template <class E, int K, class T>
void read_b(const Warp& warp, const Operand* operands, T (&b)[K][8]) {
  using S = Shape<E, K>;
  for (int q = 0; q < S::kRegistersB; ++q) {
    const uint32_t* cells = source_cells<uint32_t>(warp, operands[q]);
    for (int i = 0; i < S::P; ++i) {
      T values[kLanes];
      for (int l = 0; l < kLanes; ++l) values[l] = E::unpack(cells[l], i);
      for (int l = 0; l < kLanes; ++l) b[q * 4 * S::P + l % 4 * S::P + i][l / 4] = values[l];
    }
  }
}

// The accumulator: 32-bit elements in 4 registers, or halves in 2.
template <class T>
struct Accumulator {
  static constexpr int kRegisters = 4;
  static void read(const Warp& warp, const Operand* operands, T (&c)[16][8]) {
    for (int q = 0; q < 4; ++q) {
      const T* cells = source_cells<T>(warp, operands[q]);
      for (int l = 0; l < kLanes; ++l) c[q / 2 * 8 + l / 4][l % 4 * 2 + q % 2] = cells[l];
    }
  }
  static void write(const Warp& warp, const Operand* operands, const T (&d)[16][8]) {
    for (int q = 0; q < 4; ++q)
      write_lanes<T>(warp, operands[q], [&](int l) { return d[q / 2 * 8 + l / 4][l % 4 * 2 + q % 2]; });
  }
};
struct HalfAccumulator {
  static constexpr int kRegisters = 2;
  static void read(const Warp& warp, const Operand* operands, float (&c)[16][8]) {
    for (int q = 0; q < 2; ++q) {
      const Source<f16x2> cells(warp, operands[q]);
      for (int l = 0; l < kLanes; ++l) {
        c[q * 8 + l / 4][l % 4 * 2] = cells[l].low;
        c[q * 8 + l / 4][l % 4 * 2 + 1] = cells[l].high;
      }
    }
  }
  static void write(const Warp& warp, const Operand* operands, const float (&d)[16][8]) {
    for (int q = 0; q < 2; ++q)
      write_lanes<f16x2>(warp, operands[q], [&](int l) {
        return f16x2{f16(d[q * 8 + l / 4][l % 4 * 2]), f16(d[q * 8 + l / 4][l % 4 * 2 + 1])};
      });
  }
};

template <class EA, class EB, int K, class Acc>
void multiply(Warp& warp, const Instruction& instruction) {
  const Operand* operands = instruction.operands;
  const int a_at = Acc::kRegisters, b_at = a_at + Shape<EA, K>::kRegistersA,
            c_at = b_at + Shape<EB, K>::kRegistersB;
  alignas(64) float a[16][K], b[K][8], d[16][8];
  read_a<EA, K>(warp, operands + a_at, a);
  read_b<EB, K>(warp, operands + b_at, b);
  Acc::read(warp, operands + c_at, d);
  typedef float Row __attribute__((vector_size(32)));
  for (int r = 0; r < 16; ++r) {
    Row sum = {}, c;
    for (int k = 0; k < K; ++k) {
      Row row;
      std::memcpy(&row, b[k], sizeof row);
      sum += row * a[r][k];
    }
    std::memcpy(&c, d[r], sizeof c);
    c += sum;
    std::memcpy(d[r], &c, sizeof c);
  }
  Acc::write(warp, operands, d);
}

constexpr int kSaturate = 1;

// Integers: products and sums wrap, or with .satfinite the result of the exact sum is clamped.
template <class EA, class EB, int K>
void multiply_integers(Warp& warp, const Instruction& instruction) {
  using Acc = Accumulator<int32_t>;
  const Operand* operands = instruction.operands;
  const int a_at = Acc::kRegisters, b_at = a_at + Shape<EA, K>::kRegistersA,
            c_at = b_at + Shape<EB, K>::kRegistersB;
  int32_t a[16][K], b[K][8], d[16][8];
  read_a<EA, K>(warp, operands + a_at, a);
  read_b<EB, K>(warp, operands + b_at, b);
  Acc::read(warp, operands + c_at, d);
  for (int r = 0; r < 16; ++r)
    for (int n = 0; n < 8; ++n) {
      int64_t sum = d[r][n];
      for (int k = 0; k < K; ++k) sum += a[r][k] * b[k][n];
      if (instruction.variant & kSaturate)
        sum = sum < INT32_MIN ? INT32_MIN : sum > INT32_MAX ? INT32_MAX : sum;
      d[r][n] = static_cast<int32_t>(sum);
    }
  Acc::write(warp, operands, d);
}

// mma.sync.m8n8k4 in f64: one element of A and of B a lane, two of C
void multiply_f64(Warp& warp, const Instruction& instruction) {
  const Operand* operands = instruction.operands;
  const double *a = source_cells<double>(warp, operands[2]), *b = source_cells<double>(warp, operands[3]);
  double d[2][kLanes];
  for (int i = 0; i < 2; ++i) {
    const double* c = source_cells<double>(warp, operands[4 + i]);
    for (int l = 0; l < kLanes; ++l) {
      double sum = c[l];
      for (int k = 0; k < 4; ++k) sum = __builtin_fma(a[l / 4 * 4 + k], b[(l % 4 * 2 + i) * 4 + k], sum);
      d[i][l] = sum;
    }
  }
  for (int i = 0; i < 2; ++i) write_cells(warp, operands[i], d[i]);
}

// ---- table

std::string count(char letter, int n) { return letter + std::to_string(n); }

template <class EA, class EB, int K, class Acc>
void add_shape(Table& table, const std::string& types) {
  const char accumulator = std::is_same_v<Acc, Accumulator<float>> ? 'f' : 'w';
  table.add_aligned("mma.sync.aligned.m16n8k" + std::to_string(K) + ".row.col" + types,
                    count('W', Acc::kRegisters) + count('w', Shape<EA, K>::kRegistersA) +
                        count('w', Shape<EB, K>::kRegistersB) + count(accumulator, Acc::kRegisters),
                    multiply<EA, EB, K, Acc>);
}

template <class EA, class EB, int K>
void add_integer_depth(Table& table, const std::string& types) {
  const std::string signature =
      "W4" + count('w', Shape<EA, K>::kRegistersA) + count('w', Shape<EB, K>::kRegistersB) + "w4";
  const std::string name = "mma.sync.aligned.m16n8k" + std::to_string(K) + ".row.col";
  table.add_aligned(name + ".s32" + types + ".s32", signature, multiply_integers<EA, EB, K>);
  table.add_aligned(name + ".satfinite.s32" + types + ".s32", signature, multiply_integers<EA, EB, K>,
                    kSaturate);
}

template <class EA, class EB>
void add_integer(Table& table, const std::string& types) {
  add_integer_depth<EA, EB, 16>(table, types);
  add_integer_depth<EA, EB, 32>(table, types);
}

template <class EA, class EB>
void add_tiny(Table& table, const std::string& types) {
  add_shape<EA, EB, 32, Accumulator<float>>(table, ".f32" + types + ".f32");
  add_shape<EA, EB, 16, Accumulator<float>>(table, ".f32" + types + ".f32");
}

}  // namespace

void add_matrix_operations(Table& table) {
  for (const int n : {1, 2, 4})
    for (const char* transposed : {"", ".trans"})
      for (const char* space : {".shared", ""}) {
        const int variant = n << kCountShift | (*transposed ? kTransposed : 0) | (*space ? 0 : kGeneric);
        const std::string end = ".sync.aligned.m8n8.x" + std::to_string(n) + transposed + space + ".b16";
        table.add_aligned("ldmatrix" + end, count('W', n) + "a", load_tiles, variant);
        table.add_aligned("stmatrix" + end, "a" + count('w', n), store_tiles, variant);
      }
  using Single = Accumulator<float>;
  add_shape<Bf16Element, Bf16Element, 16, Single>(table, ".f32.bf16.bf16.f32");
  add_shape<Bf16Element, Bf16Element, 8, Single>(table, ".f32.bf16.bf16.f32");
  add_shape<F16Element, F16Element, 16, Single>(table, ".f32.f16.f16.f32");
  add_shape<F16Element, F16Element, 8, Single>(table, ".f32.f16.f16.f32");
  add_shape<F16Element, F16Element, 16, HalfAccumulator>(table, ".f16.f16.f16.f16");
  add_shape<F16Element, F16Element, 8, HalfAccumulator>(table, ".f16.f16.f16.f16");
  add_shape<Tf32Element, Tf32Element, 8, Single>(table, ".f32.tf32.tf32.f32");
  add_shape<Tf32Element, Tf32Element, 4, Single>(table, ".f32.tf32.tf32.f32");
  add_tiny<E4m3Element, E4m3Element>(table, ".e4m3.e4m3");
  add_tiny<E4m3Element, E5m2Element>(table, ".e4m3.e5m2");
  add_tiny<E5m2Element, E4m3Element>(table, ".e5m2.e4m3");
  add_tiny<E5m2Element, E5m2Element>(table, ".e5m2.e5m2");
  add_integer<ByteElement<int8_t>, ByteElement<int8_t>>(table, ".s8.s8");
  add_integer<ByteElement<int8_t>, ByteElement<uint8_t>>(table, ".s8.u8");
  add_integer<ByteElement<uint8_t>, ByteElement<int8_t>>(table, ".u8.s8");
  add_integer<ByteElement<uint8_t>, ByteElement<uint8_t>>(table, ".u8.u8");
  for (const char* rounding : {"", ".rn"})
    table.add_aligned("mma.sync.aligned.m8n8k4.row.col" + std::string(rounding) + ".f64.f64.f64.f64",
                      "D2ddd2", multiply_f64);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
