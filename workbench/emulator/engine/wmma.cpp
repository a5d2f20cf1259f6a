// wmma: matrices from memory to fragments and back, and their product. PTX leaves open which lane holds which
// element, so a fragment here is that of mma.sync, for both layouts in memory; halves of A and B stand in it
// as often as PTX has registers for them.
#include "fragment.hpp"
#include "memory.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

enum class Role { a, b, accumulator };

struct Form {
  Role role;
  int rows, columns;  // of the matrix
  int bits;           // of an element
  int registers;      // of the instruction, which may be more than the matrix needs
  bool by_columns;    // columns are contiguous in memory
  Space space;
};

std::vector<Form>& forms() {
  static std::vector<Form> list;
  return list;
}

int register_bits(const Form& form) { return form.bits == 64 ? 64 : 32; }
int packed(const Form& form) { return register_bits(form) / form.bits; }
int distinct_registers(const Form& form) { return form.rows * form.columns / (kLanes * packed(form)); }

struct Place {
  int row, column;
};

// Of element i of register q, as fragment.hpp spreads them.
Place place_of(const Form& form, int q, int i, int lane) {
  const int p = packed(form), across = lane / 4, along = lane % 4 * p + i;
  switch (form.role) {
    case Role::a: {
      const int tiles = form.rows / 8;
      return {q % tiles * 8 + across, q / tiles * 4 * p + along};
    }
    case Role::b: {
      const int tiles = form.rows / (4 * p);
      return {q % tiles * 4 * p + along, q / tiles * 8 + across};
    }
    default: {
      const int pair = q * p / 2, tiles = form.rows / 8;
      return {pair % tiles * 8 + across, pair / tiles * 8 + lane % 4 * 2 + (p == 2 ? i : q % 2)};
    }
  }
}

// Whether the elements of one register follow one another in memory.
bool contiguous(const Form& form) { return packed(form) == 1 || form.by_columns == (form.role == Role::b); }

// Where the pieces of registers lie that follow one another in memory: a register, or one element of it.
struct Pieces {
  const Form* form;
  uint64_t base[kLanes];
  uint32_t stride[kLanes];
  int count;       // of a register
  uint32_t bytes;  // of each

  Pieces(const Warp& warp, const Form& shape, const Operand& start, const Operand& given) : form(&shape) {
    read_addresses(warp, start, base);
    const auto dense = static_cast<uint32_t>(form->by_columns ? form->rows : form->columns);
    for (int l = 0; l < kLanes; ++l)
      stride[l] = given.slot == kAbsent ? dense : source_cells<uint32_t>(warp, given)[l];
    count = contiguous(shape) ? 1 : packed(shape);
    bytes = static_cast<uint32_t>(register_bits(shape) / 8 / count);
  }

  // Addresses of piece i of register q, and pointers to it.
  void locate(Warp& warp, int q, int i, Access access, uint64_t* address, uint8_t** pointer) const {
    for (int l = 0; l < kLanes; ++l) {
      const Place place = place_of(*form, q, i, l);
      const auto major = static_cast<uint64_t>(form->by_columns ? place.column : place.row),
                 minor = static_cast<uint64_t>(form->by_columns ? place.row : place.column);
      address[l] = base[l] + (major * stride[l] + minor) * static_cast<uint64_t>(form->bits) / 8;
    }
    resolve(warp, form->space, address, bytes, access, pointer);
  }
};

struct Unknown {  // what a register has read of bytes that nothing has written
  bool any = false;
  uint64_t bits[kLanes] = {};
  uint32_t origin[kLanes] = {};

  void find(const Warp& warp, const Pieces& pieces, int i, const uint64_t* address) {
    any = true;
    for (int l = 0; l < kLanes; ++l)
      for (uint32_t byte = 0; byte < pieces.bytes; ++byte) {
        const uint32_t found = origin_in_memory(warp, pieces.form->space, address[l] + byte, 1, l);
        if (!found) continue;
        bits[l] |= uint64_t{0xff} << 8 * (static_cast<uint32_t>(i) * pieces.bytes + byte);
        origin[l] = found;
      }
  }
};

template <class Cell>
void load(Warp& warp, const Instruction& instruction) {  // registers, [address]{, stride}
  const Form& form = forms()[static_cast<size_t>(instruction.variant)];
  const Operand* operands = instruction.operands;
  const Pieces pieces(warp, form, operands[form.registers], operands[form.registers + 1]);
  const int distinct = distinct_registers(form);
  for (int q = 0; q < distinct; ++q) {
    Cell values[kLanes];
    Unknown unknown;
    for (int i = 0; i < pieces.count; ++i) {
      uint64_t address[kLanes];
      uint8_t* pointer[kLanes];
      pieces.locate(warp, q, i, Access::read, address, pointer);
      if (__builtin_expect(std::exchange(warp.read_unwritten, false), 0))
        unknown.find(warp, pieces, i, address);
      for (int l = 0; l < kLanes; ++l)
        std::memcpy(reinterpret_cast<uint8_t*>(&values[l]) + static_cast<uint32_t>(i) * pieces.bytes,
                    pointer[l], pieces.bytes);
    }
    for (int copy = q; copy < form.registers; copy += distinct) {
      write_cells(warp, operands[copy], values);
      for (int l = 0; unknown.any && l < kLanes; ++l)
        if (unknown.origin[l])
          set_undefined(warp, operands[copy], l, unknown.bits[l], unknown.origin[l], sizeof(Cell) == 8);
    }
  }
}

void store_unknown(const Warp& warp, const Pieces& pieces, const Operand& operand, int i,
                   const uint64_t* address) {
  const bool wide = register_bits(*pieces.form) == 64;
  for (int l = 0; l < kLanes; ++l) {
    const uint64_t bits = undefined_bits(warp, operand, l, wide);
    for (uint32_t byte = 0; bits && byte < pieces.bytes; ++byte)
      if (bits >> 8 * (static_cast<uint32_t>(i) * pieces.bytes + byte) & 0xff)
        stored_undefined(warp, pieces.form->space, address[l] + byte, l,
                         origin_in_register(warp, operand, l, wide));
  }
}

template <class Cell>
void store(Warp& warp, const Instruction& instruction) {  // [address], registers{, stride}
  const Form& form = forms()[static_cast<size_t>(instruction.variant)];
  const Operand* operands = instruction.operands;
  const Pieces pieces(warp, form, operands[0], operands[form.registers + 1]);
  for (int q = 0; q < form.registers; ++q) {
    const Cell* cells = source_cells<Cell>(warp, operands[1 + q]);
    for (int i = 0; i < pieces.count; ++i) {
      uint64_t address[kLanes];
      uint8_t* pointer[kLanes];
      pieces.locate(warp, q, i, Access::write, address, pointer);
      for (int l = 0; l < kLanes; ++l)
        std::memcpy(pointer[l],
                    reinterpret_cast<const uint8_t*>(&cells[l]) + static_cast<uint32_t>(i) * pieces.bytes,
                    pieces.bytes);
      if (__builtin_expect(warp.tracking, 0)) store_unknown(warp, pieces, operands[1 + q], i, address);
    }
  }
}

// ---- table

struct Dimensions {
  int m, n, k;
  std::string name() const {
    return ".m" + std::to_string(m) + "n" + std::to_string(n) + "k" + std::to_string(k);
  }
};
constexpr Dimensions kSixteen{16, 16, 16}, kTall{32, 8, 16}, kWide{8, 32, 16};

// wmma.load.a and its like in all spaces and layouts, or with `only` in one layout.
void add_access(Table& table, const std::string& name, const Dimensions& shape, const char* type, Form form,
                const char* only = nullptr) {
  const bool stores = name[5] == 's', wide = register_bits(form) == 64;
  const std::pair<const char*, Space> spaces[] = {
      {"", Space::none}, {".global", Space::global}, {".shared", Space::shared}};
  const std::string count = std::to_string(form.registers);
  const std::string signature =
      stores ? (wide ? "ae" : "aw") + count + "w?" : (wide ? "D" : "W") + count + "aw?";
  for (const auto& [space_name, space] : spaces)
    for (const char* layout : {".row", ".col"}) {
      if (only && layout != std::string(only)) continue;
      form.by_columns = layout == std::string(".col");
      form.space = space;
      table.add_aligned(name + ".sync.aligned" + layout + shape.name() + space_name + type, signature,
                        stores ? wide ? store<uint64_t> : store<uint32_t>
                        : wide ? load<uint64_t>
                               : load<uint32_t>,
                        static_cast<int>(forms().size()));
      forms().push_back(form);
    }
}

// The fragments of A and B; of elements below a byte, only those that products take as they lie.
void add_operands(Table& table, const Dimensions& shape, const char* type, int bits, int held = 0) {
  Form a{Role::a, shape.m, shape.k, bits, held, false, Space::none};
  Form b{Role::b, shape.k, shape.n, bits, held, false, Space::none};
  if (!held) {
    a.registers = distinct_registers(a);
    b.registers = distinct_registers(b);
  }
  add_access(table, "wmma.load.a", shape, type, a, bits < 8 ? ".row" : nullptr);
  add_access(table, "wmma.load.b", shape, type, b, bits < 8 ? ".col" : nullptr);
}

void add_accumulators(Table& table, const Dimensions& shape, const char* type, int bits) {
  Form form{Role::accumulator, shape.m, shape.n, bits, 0, false, Space::none};
  form.registers = distinct_registers(form);
  add_access(table, "wmma.load.c", shape, type, form);
  add_access(table, "wmma.store.d", shape, type, form);
}

template <class Product>
void add_product_form(Table& table, const Dimensions& shape, const std::string& types, int variant = 0) {
  for (const char* a : {".row", ".col"})
    for (const char* b : {".row", ".col"})
      Product::add(table, std::string("wmma.mma.sync.aligned") + a + b + shape.name() + types, variant);
}

constexpr int kHeldHalves = 8;

template <int M, int N>
void add_sixteen_bits(Table& table, const Dimensions& shape) {
  using H = F16Element;
  using Half = HalfAccumulator;
  using Single = Accumulator<float>;
  add_operands(table, shape, ".f16", 16, kHeldHalves);
  add_operands(table, shape, ".bf16", 16);
  add_accumulators(table, shape, ".f16", 16);
  add_accumulators(table, shape, ".f32", 32);
  add_product_form<Multiply<H, H, M, N, 16, Half, Half, kHeldHalves>>(table, shape, ".f16.f16");
  add_product_form<Multiply<H, H, M, N, 16, Half, Single, kHeldHalves>>(table, shape, ".f16.f32");
  add_product_form<Multiply<H, H, M, N, 16, Single, Half, kHeldHalves>>(table, shape, ".f32.f16");
  add_product_form<Multiply<H, H, M, N, 16, Single, Single, kHeldHalves>>(table, shape, ".f32.f32");
  add_product_form<Multiply<Bf16Element, Bf16Element, M, N, 16, Single>>(table, shape, ".f32.bf16.bf16.f32");
}

template <bool Signed, int M, int N>
void add_bytes(Table& table, const Dimensions& shape) {
  using Byte = IntegerElement<8, Signed>;
  using Product = Multiply<Byte, Byte, M, N, 16, Accumulator<int32_t>>;
  const std::string type = Signed ? ".s8" : ".u8";
  add_operands(table, shape, type.c_str(), 8);
  add_product_form<Product>(table, shape, ".s32" + type + type + ".s32");
  add_product_form<Product>(table, shape, ".s32" + type + type + ".s32.satfinite", kSaturate);
}

template <int M, int N>
void add_sixteen_deep(Table& table, const Dimensions& shape) {
  add_sixteen_bits<M, N>(table, shape);
  add_bytes<false, M, N>(table, shape);
  add_bytes<true, M, N>(table, shape);
  add_accumulators(table, shape, ".s32", 32);
}

template <bool Signed>
void add_nibbles(Table& table, const Dimensions& shape) {
  using Nibble = IntegerElement<4, Signed>;
  using Product = Multiply<Nibble, Nibble, 8, 8, 32, Accumulator<int32_t>>;
  const std::string type = Signed ? ".s4" : ".u4";
  add_operands(table, shape, type.c_str(), 4);
  for (const auto& [end, variant] : {std::pair{"", 0}, std::pair{".satfinite", int{kSaturate}}})
    Product::add(table, "wmma.mma.sync.aligned.row.col" + shape.name() + ".s32" + type + type + ".s32" + end,
                 variant);
}

void add_bits(Table& table) {
  constexpr Dimensions shape{8, 8, 128};
  using Product = Multiply<IntegerElement<1>, IntegerElement<1>, 8, 8, 128, Accumulator<int32_t>>;
  add_operands(table, shape, ".b1", 1);
  add_accumulators(table, shape, ".s32", 32);
  for (const auto& [name, variant] : {std::pair{".and", 0}, std::pair{".xor", int{kExclusiveOr}}})
    Product::add(
        table,
        "wmma.mma" + std::string(name) + ".popc.sync.aligned.row.col" + shape.name() + ".s32.b1.b1.s32",
        variant);
}

}  // namespace

void add_wmma_operations(Table& table) {
  forms().clear();
  add_sixteen_deep<16, 16>(table, kSixteen);
  add_sixteen_deep<32, 8>(table, kTall);
  add_sixteen_deep<8, 32>(table, kWide);

  constexpr Dimensions kTf32Shape{16, 16, 8}, kDoubleShape{8, 8, 4}, kNibbleShape{8, 8, 32};
  add_operands(table, kTf32Shape, ".tf32", 32);
  add_accumulators(table, kTf32Shape, ".f32", 32);
  add_product_form<Multiply<Tf32Element, Tf32Element, 16, 16, 8, Accumulator<float>>>(table, kTf32Shape,
                                                                                      ".f32.tf32.tf32.f32");
  add_operands(table, kDoubleShape, ".f64", 64);
  add_accumulators(table, kDoubleShape, ".f64", 64);
  for (const char* types : {".f64.f64.f64.f64", ".rn.f64.f64.f64.f64", ".f64.f64.f64.f64.rn"})
    add_product_form<Multiply<DoubleElement, DoubleElement, 8, 8, 4, Accumulator<double>>>(
        table, kDoubleShape, types);
  add_nibbles<false>(table, kNibbleShape);
  add_nibbles<true>(table, kNibbleShape);
  add_accumulators(table, kNibbleShape, ".s32", 32);
  add_bits(table);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
