// ldmatrix, stmatrix, movmatrix and mma.sync. A fragment is spread over the lanes: lane l holds, of row l / 4
// of an 8x8 tile, the elements that fit into 32 bits from column l % 4 on.
#include <algorithm>

#include "fragment.hpp"
#include "memory.hpp"
#include "race.hpp"
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
  if (warp.races) warp.races->storing = true;
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
  if (warp.races) race_stored(warp);
}

void transpose_tile(Warp& warp, const Instruction& instruction) {
  uint32_t values[kLanes];  // copied: the result may lie where they are
  std::copy_n(source_cells<uint32_t>(warp, instruction.operands[1]), kLanes, values);
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    const auto half = [&](int h) {
      const TileHalf from = transposed(l, h);
      return values[from.lane] >> 16 * from.half & 0xffff;
    };
    return half(0) | half(1) << 16;
  });
}

// ---- mma.sync.m8n8k4 of halves: four products, each by 8 lanes, of which 4 hold the upper rows of A and C
// and the left columns of B, and 4, 16 lanes further on, the others

enum QuadForm { kColumnsA = 1, kRowsB = 2, kHalfD = 4, kHalfC = 8 };

struct QuadPlace {
  int row, column;
};

// Of element i of an accumulator of 8; `l` is a lane.
QuadPlace quad_accumulator(int l, int i, bool halves) {
  const int below = l < 16 ? 0 : 4;
  if (halves) return {l % 4 + below, i};
  return {(l & 1) + (i & 2) + below, (i & 4) + (l & 2) + (i & 1)};
}

void multiply_quads(Warp& warp, const Instruction& instruction) {
  constexpr int kQuads = 4;
  const int form = instruction.variant;
  const bool half_d = form & kHalfD, half_c = form & kHalfC;
  const Operand* operands = instruction.operands;
  const Operand *a_at = operands + (half_d ? 4 : 8), *c_at = a_at + 4;
  float a[kQuads][8][4], b[kQuads][4][8], d[kQuads][8][8];
  for (int i = 0; i < 4; ++i) {
    const uint32_t *a_cells = source_cells<uint32_t>(warp, a_at[i / 2]),
                   *b_cells = source_cells<uint32_t>(warp, a_at[2 + i / 2]);
    for (int l = 0; l < kLanes; ++l) {
      const int quad = l / 4 % 4, beyond = l < 16 ? 0 : 4, at = l % 4;
      a[quad][(form & kColumnsA ? i : at) + beyond][form & kColumnsA ? at : i] =
          F16Element::unpack(a_cells[l], i % 2);
      b[quad][form & kRowsB ? at : i][(form & kRowsB ? i : at) + beyond] =
          F16Element::unpack(b_cells[l], i % 2);
    }
  }
  for (int l = 0; l < kLanes; ++l)
    for (int i = 0; i < 8; ++i) {
      const QuadPlace at = quad_accumulator(l, i, half_c);
      d[l / 4 % 4][at.row][at.column] =
          half_c ? F16Element::unpack(source_cells<uint32_t>(warp, c_at[i / 2])[l], i % 2)
                 : source_cells<float>(warp, c_at[i])[l];
    }
  for (int quad = 0; quad < kQuads; ++quad) add_product(a[quad], b[quad], d[quad], 0, DensePlaces());
  const auto result = [&](int l, int i) {
    const QuadPlace at = quad_accumulator(l, i, half_d);
    return d[l / 4 % 4][at.row][at.column];
  };
  if (half_d)
    for (int q = 0; q < 4; ++q)
      write_lanes<f16x2>(warp, operands[q],
                         [&](int l) { return f16x2{f16(result(l, 2 * q)), f16(result(l, 2 * q + 1))}; });
  else
    for (int q = 0; q < 8; ++q) write_lanes<float>(warp, operands[q], [&](int l) { return result(l, q); });
}

// ---- table

std::string count(char letter, int n) { return letter + std::to_string(n); }

std::string shape_name(int m, int k, const char* layouts = ".row.col", const char* sparse = "") {
  return std::string("mma") + sparse + ".sync.aligned.m" + std::to_string(m) + "n8k" + std::to_string(k) +
         layouts;
}

template <class EA, class EB, int K, class Acc>
void add_floats(Table& table, const std::string& types) {
  Multiply<EA, EB, 16, 8, K, Acc>::add(table, shape_name(16, K) + types);
}

template <class EA, class EB>
void add_tiny(Table& table, const std::string& types) {
  add_floats<EA, EB, 32, Accumulator<float>>(table, ".f32" + types + ".f32");
  add_floats<EA, EB, 16, Accumulator<float>>(table, ".f32" + types + ".f32");
  add_floats<EA, EB, 32, HalfAccumulator>(table, ".f16" + types + ".f16");
  add_floats<EA, EB, 16, HalfAccumulator>(table, ".f16" + types + ".f16");
}

template <class EA, class EB, int M, int K>
void add_integer_shape(Table& table, const std::string& types) {
  using Product = Multiply<EA, EB, M, 8, K, Accumulator<int32_t>>;
  Product::add(table, shape_name(M, K) + ".s32" + types + ".s32");
  Product::add(table, shape_name(M, K) + ".satfinite.s32" + types + ".s32", kSaturate);
}

template <int Bits, bool SignedA, bool SignedB>
void add_integers(Table& table) {
  using A = IntegerElement<Bits, SignedA>;
  using B = IntegerElement<Bits, SignedB>;
  const std::string bits = std::to_string(Bits);
  const std::string types = (SignedA ? ".s" : ".u") + bits + (SignedB ? ".s" : ".u") + bits;
  add_integer_shape<A, B, 8, 128 / Bits>(table, types);
  add_integer_shape<A, B, 16, 128 / Bits>(table, types);
  add_integer_shape<A, B, 16, 256 / Bits>(table, types);
}

template <int Bits>
void add_integer_pairs(Table& table) {
  add_integers<Bits, false, false>(table);
  add_integers<Bits, false, true>(table);
  add_integers<Bits, true, false>(table);
  add_integers<Bits, true, true>(table);
}

template <int M, int K>
void add_bits(Table& table) {
  using Product = Multiply<IntegerElement<1>, IntegerElement<1>, M, 8, K, Accumulator<int32_t>>;
  Product::add(table, shape_name(M, K) + ".s32.b1.b1.s32.and.popc");
  Product::add(table, shape_name(M, K) + ".s32.b1.b1.s32.xor.popc", kExclusiveOr);
}

template <int M, int K>
void add_doubles(Table& table) {
  for (const char* rounding : {"", ".rn"})
    Multiply<DoubleElement, DoubleElement, M, 8, K, Accumulator<double>>::add(
        table, shape_name(M, K) + rounding + ".f64.f64.f64.f64");
}

// ---- of a sparse A

template <class EA, class EB, int K, class Acc>
void add_sparse_shape(Table& table, const std::string& types, int variant = 0) {
  using Product = Multiply<EA, EB, 16, 8, K, Acc, Acc, 0, true>;
  Product::add(table, shape_name(16, K, ".row.col", ".sp") + types, variant);
  Product::add(table, shape_name(16, K, ".row.col", ".sp::ordered_metadata") + types, variant | kOrdered);
}

template <class E, int K, class Acc>
void add_sparse(Table& table, const std::string& types) {
  add_sparse_shape<E, E, K, Acc>(table, types);
  add_sparse_shape<E, E, 2 * K, Acc>(table, types);
}

template <int Bits, bool SignedA, bool SignedB>
void add_sparse_integers(Table& table) {
  const std::string bits = std::to_string(Bits);
  const std::string types =
      ".s32" + std::string(SignedA ? ".s" : ".u") + bits + (SignedB ? ".s" : ".u") + bits + ".s32";
  using A = IntegerElement<Bits, SignedA>;
  using B = IntegerElement<Bits, SignedB>;
  using Sums = Accumulator<int32_t>;
  add_sparse_shape<A, B, 256 / Bits, Sums>(table, types);
  add_sparse_shape<A, B, 512 / Bits, Sums>(table, types);
  add_sparse_shape<A, B, 256 / Bits, Sums>(table, ".satfinite" + types, kSaturate);
  add_sparse_shape<A, B, 512 / Bits, Sums>(table, ".satfinite" + types, kSaturate);
}

template <int Bits>
void add_sparse_integer_pairs(Table& table) {
  add_sparse_integers<Bits, false, false>(table);
  add_sparse_integers<Bits, false, true>(table);
  add_sparse_integers<Bits, true, false>(table);
  add_sparse_integers<Bits, true, true>(table);
}

void add_sparse_products(Table& table) {
  add_sparse<F16Element, 16, Accumulator<float>>(table, ".f32.f16.f16.f32");
  add_sparse<F16Element, 16, HalfAccumulator>(table, ".f16.f16.f16.f16");
  add_sparse<Bf16Element, 16, Accumulator<float>>(table, ".f32.bf16.bf16.f32");
  add_sparse<Tf32Element, 8, Accumulator<float>>(table, ".f32.tf32.tf32.f32");
  add_sparse_shape<E4m3Element, E4m3Element, 64, Accumulator<float>>(table, ".f32.e4m3.e4m3.f32");
  add_sparse_shape<E4m3Element, E5m2Element, 64, Accumulator<float>>(table, ".f32.e4m3.e5m2.f32");
  add_sparse_shape<E5m2Element, E4m3Element, 64, Accumulator<float>>(table, ".f32.e5m2.e4m3.f32");
  add_sparse_shape<E5m2Element, E5m2Element, 64, Accumulator<float>>(table, ".f32.e5m2.e5m2.f32");
  add_sparse_integer_pairs<8>(table);
  add_sparse_integer_pairs<4>(table);
}

void add_quads(Table& table) {
  const std::pair<const char*, int> layouts[] = {
      {".row.col", 0}, {".row.row", kRowsB}, {".col.col", kColumnsA}, {".col.row", kColumnsA | kRowsB}};
  const std::pair<const char*, const char*> types[] = {{".f16", ".f16"}, {".f32", ".f16"}, {".f32", ".f32"}};
  for (const auto& [layout, form] : layouts)
    for (const auto& [d, c] : types) {
      const bool half_d = d == std::string(".f16"), half_c = c == std::string(".f16");
      table.add_aligned(shape_name(8, 4, layout) + d + ".f16.f16" + c,
                        count('W', half_d ? 4 : 8) + "w2w2" + (half_c ? "w4" : "f8"), multiply_quads,
                        form | (half_d ? kHalfD : 0) | (half_c ? kHalfC : 0));
    }
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
  table.add_aligned("movmatrix.sync.aligned.m8n8.trans.b16", "Ww", transpose_tile);
  using Single = Accumulator<float>;
  add_floats<Bf16Element, Bf16Element, 16, Single>(table, ".f32.bf16.bf16.f32");
  add_floats<Bf16Element, Bf16Element, 8, Single>(table, ".f32.bf16.bf16.f32");
  add_floats<F16Element, F16Element, 16, Single>(table, ".f32.f16.f16.f32");
  add_floats<F16Element, F16Element, 8, Single>(table, ".f32.f16.f16.f32");
  add_floats<F16Element, F16Element, 16, HalfAccumulator>(table, ".f16.f16.f16.f16");
  add_floats<F16Element, F16Element, 8, HalfAccumulator>(table, ".f16.f16.f16.f16");
  add_floats<Tf32Element, Tf32Element, 8, Single>(table, ".f32.tf32.tf32.f32");
  add_floats<Tf32Element, Tf32Element, 4, Single>(table, ".f32.tf32.tf32.f32");
  add_tiny<E4m3Element, E4m3Element>(table, ".e4m3.e4m3");
  add_tiny<E4m3Element, E5m2Element>(table, ".e4m3.e5m2");
  add_tiny<E5m2Element, E4m3Element>(table, ".e5m2.e4m3");
  add_tiny<E5m2Element, E5m2Element>(table, ".e5m2.e5m2");
  add_integer_pairs<8>(table);
  add_integer_pairs<4>(table);
  add_bits<8, 128>(table);
  add_bits<16, 128>(table);
  add_bits<16, 256>(table);
  add_doubles<8, 4>(table);
  add_doubles<16, 4>(table);
  add_doubles<16, 8>(table);
  add_doubles<16, 16>(table);
  add_quads(table);
  add_sparse_products(table);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
