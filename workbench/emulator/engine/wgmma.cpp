// wgmma: the asynchronous matrix product of a warpgroup. Each warp computes its own 16 of the 64 rows.
//
// A product is only noted when it is issued, and computed when its group is waited for: the last moment at
// which hardware may still read its operands. Until then nobody may touch its accumulators or write to the
// shared memory that it reads. Compilers copy accumulators from register to register between two products,
// and split those that hold two halves before the wait; ptxas puts such a mov behind it. It is noted too and
// done in turn.
#include <algorithm>

#include "matrix.hpp"
#include "memory.hpp"
#include "race.hpp"
#include "scheduler.hpp"
#include "shared_matrix.hpp"
#include "sparse.hpp"
#include "undefined.hpp"
#include "warpgroup.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr int kRows = 16;  // of a warp
constexpr int kMaxColumns = 256;
constexpr int kMaxDepth = 32;         // elements of K in one product, of a sparse A those that are stored
constexpr uint32_t kDepthBytes = 32;  // and their bytes, whatever the type
constexpr int kMostSkipped = 2;       // how much deeper B is than what is stored of A

enum class Element { f16, bf16, tf32, e4m3, e5m2, s8, u8, b1 };  // of b1, eight bits count as an element

struct Form {
  int columns, depth;
  Element a, b;
  bool half_result, integer, saturated, a_in_registers, sparse;
  int depth_of_b() const { return sparse ? kMostSkipped * depth : depth; }
};

std::vector<Form>& forms() {
  static std::vector<Form> list;
  return list;
}

const Form& form_of(const Instruction& instruction) {
  return forms()[static_cast<size_t>(instruction.variant)];
}

int bytes_of(Element element) {
  return element == Element::tf32 ? 4 : element == Element::f16 || element == Element::bf16 ? 2 : 1;
}
int accumulators(const Form& form) { return form.columns / (form.half_result ? 4 : 2); }
SparseShape sparse_shape(const Form& form) { return {8 * bytes_of(form.a), form.depth_of_b()}; }

// ---- matrix descriptors

// The layout that a matrix descriptor of wgmma means.
SharedMatrix layout_of(uint64_t descriptor, bool transpose, int element_bytes) {
  constexpr uint32_t kSwizzles[4] = {0, 128, 64, 32};
  SharedMatrix layout;
  layout.start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
  layout.leading = static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4;
  layout.stride = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
  layout.swizzle = kSwizzles[descriptor >> 62];
  layout.transposed = transpose;
  layout.element = static_cast<uint32_t>(element_bytes);
  return layout;
}

float element_value(Element element, const uint8_t* bytes) {
  switch (element) {
    case Element::e4m3:
      return decoded<kE4m3>()[*bytes];
    case Element::e5m2:
      return decoded<kE5m2>()[*bytes];
    case Element::s8:
      return static_cast<int8_t>(*bytes);
    case Element::u8:
      return *bytes;
    case Element::tf32: {
      uint32_t bits;
      std::memcpy(&bits, bytes, 4);
      return Tf32Element::unpack(bits, 0);
    }
    default: {
      uint16_t bits;
      std::memcpy(&bits, bytes, 2);
      return element == Element::f16 ? half_to_float(bits) : bfloat_to_float(bits);
    }
  }
}

// The values in 16 bytes.
void decode_chunk(Element element, const uint8_t* bytes, float* values) {
  if (element == Element::bf16 || element == Element::f16) {
    uint16_t bits[8];
    std::memcpy(bits, bytes, 16);
    if (element == Element::bf16)
      for (int i = 0; i < 8; ++i) values[i] = bfloat_to_float(bits[i]);
    else
      for (int i = 0; i < 8; ++i) values[i] = half_to_float(bits[i]);
    return;
  }
  const int size = bytes_of(element);
  for (int i = 0; i < 16 / size; ++i) values[i] = element_value(element, bytes + i * size);
}

// ---- operands of an instruction: accumulators, A, B, of a sparse A metadata and selector, scale-d, of
// floats scale-a, scale-b, and for 16-bit types transpositions

struct Operands {
  const Operand *accumulator, *a, *b, *metadata, *selector, *scale_d, *scale_a, *scale_b, *transpose_a,
      *transpose_b;
  Operands(const Instruction& instruction, const Form& form) {
    const Operand* next = instruction.operands;
    accumulator = next, next += accumulators(form);
    a = next, next += form.a_in_registers ? 4 : 1;
    b = next++;
    metadata = form.sparse ? next++ : nullptr;
    selector = form.sparse ? next++ : nullptr;
    scale_d = next++;
    scale_a = form.integer ? nullptr : next++;
    scale_b = form.integer ? nullptr : next++;
    const bool transposable = bytes_of(form.a) == 2;
    transpose_a = transposable && !form.a_in_registers ? next++ : nullptr;
    transpose_b = transposable ? next++ : nullptr;
  }
};

SharedMatrix layout_a(const MatrixProduct& p, const Form& form) {
  return layout_of(p.descriptor_a, p.transpose_a, bytes_of(form.a));
}
SharedMatrix layout_b(const MatrixProduct& p, const Form& form) {
  return layout_of(p.descriptor_b, p.transpose_b, bytes_of(form.b));
}

// Calls f(layout, first row, rows, depth, whether it is A) for each operand in shared memory, with what the
// warp reads of it.
template <class F>
void each_shared_operand(const Warp& warp, const MatrixProduct& product, F f) {
  const Form& form = form_of(*product.instruction);
  if (!form.a_in_registers)
    f(layout_a(product, form), static_cast<uint32_t>(warp.id % 4) * kRows, uint32_t{kRows},
      static_cast<uint32_t>(form.depth), true);
  f(layout_b(product, form), 0u, static_cast<uint32_t>(form.columns),
    static_cast<uint32_t>(form.depth_of_b()), false);
}

template <class F>
void each_operand_chunk(const Warp& warp, const MatrixProduct& product, F f) {
  each_shared_operand(
      warp, product, [&](const SharedMatrix& layout, uint32_t first, uint32_t rows, uint32_t depth, bool) {
        each_chunk(layout, first, rows, depth, [&](uint32_t, uint32_t, uint32_t address) { f(address); });
      });
}

// Calls f(runs) for each operand in shared memory.
template <class F>
void each_operand_run(const Warp& warp, const MatrixProduct& product, F f) {
  each_shared_operand(warp, product,
                      [&](const SharedMatrix& layout, uint32_t first, uint32_t rows, uint32_t depth, bool) {
                        f(runs_of(layout, first, rows, depth));
                      });
}

// ---- issue

constexpr uint8_t kNobody = 1, kReadOnly = 2;  // what others may do with a register in flight

void lock(Warp& warp, const Operand& operand, uint8_t how) {
  if (operand.slot < 0) return;
  uint8_t& cell = warp.locked[static_cast<size_t>(operand.slot / 128)];
  cell = cell == kNobody ? kNobody : how;
}

bool is_destination(char letter) { return letter < 'a'; }

// Calls f(slot) for the cells of an operand.
template <class F>
void each_cell(const Operand& operand, char letter, F f) {
  if (operand.slot < 0) return;
  f(operand.slot);
  if (letter == 'D' || letter == 'd' || letter == 'e' || (letter == 'a' && operand.bytes == 8))
    f(operand.slot + 128);
}

// Nobody may have what a mov writes, nor write what it still has to read.
void lock_move(Warp& warp, const Instruction& move) {
  for (int k = 0; k < move.count; ++k)
    each_cell(move.operands[k], move.access[k], [&](int32_t slot) {
      lock(warp, Operand{slot, 4, 0}, is_destination(move.access[k]) ? kNobody : kReadOnly);
    });
}

void lock_registers(Warp& warp, const MatrixProduct& product) {
  if (!warp.machine->check_in_flight) return;
  if (warp.locked.empty())
    warp.locked.resize(static_cast<size_t>(warp.machine->program->register_bytes / 128));
  if (product.is_move) return lock_move(warp, *product.instruction);
  const Form& form = form_of(*product.instruction);
  const Operands operands(*product.instruction, form);
  for (int k = 0; k < accumulators(form); ++k) lock(warp, operands.accumulator[k], kNobody);
  if (form.a_in_registers)
    for (int k = 0; k < 4; ++k) lock(warp, operands.a[k], kReadOnly);
}

// A row of A that is undefined, or its metadata, makes its row of D undefined, a column of B its column.
void follow_product(Warp& warp, const MatrixProduct& product) {
  const Form& form = form_of(*product.instruction);
  const Operands operands(*product.instruction, form);
  uint32_t row_origin[kRows] = {}, column_origin[kMaxColumns] = {};
  each_shared_operand(
      warp, product,
      [&](const SharedMatrix& layout, uint32_t first, uint32_t rows, uint32_t depth, bool is_a) {
        uint32_t* origins = is_a ? row_origin : column_origin;
        each_chunk(layout, first, rows, depth, [&](uint32_t row, uint32_t, uint32_t address) {
          const uint32_t pieces = layout.transposed ? 16 / layout.element : 1;
          if (!origin_in_shared(warp, *warp.block, address, 16)) return;
          for (uint32_t i = 0; i < pieces; ++i)
            if (const uint32_t origin =
                    origin_in_shared(warp, *warp.block, address + i * 16 / pieces, 16 / pieces))
              origins[row + i] = origin;
        });
      });
  if (form.a_in_registers)
    for (int q = 0; q < 4; ++q)
      for (int l = 0; l < kLanes; ++l) {
        if (const uint32_t origin = origin_in_register(warp, operands.a[q], l))
          row_origin[q % 2 * 8 + l / 4] = origin;
      }
  if (form.sparse) undefined_rows(warp, *operands.metadata, product.selector, sparse_shape(form), row_origin);
  for (int j = 0; j < form.columns / 8; ++j)
    for (int h = 0; h < 2; ++h)
      for (int l = 0; l < kLanes; ++l)
        for (int i = 0; i < 2; ++i) {
          const uint32_t row = row_origin[h * 8 + l / 4], column = column_origin[j * 8 + l % 4 * 2 + i];
          const uint32_t origin = row ? row : column;
          const Operand& result = operands.accumulator[form.half_result ? j * 2 + h : j * 4 + h * 2 + i];
          const uint32_t bits = form.half_result ? 0xffffu << 16 * i : ~0u;
          if (origin || !product.accumulate) set_undefined(warp, result, l, bits, origin);
        }
}

// Patterns begin at their atom of 8 rows; and the corners of the operand, if a tensor copy wrote them, were
// written with the same swizzle.
void check_swizzle(const Warp& warp, const SharedMatrix& layout, uint32_t first, uint32_t rows,
                   uint32_t depth) {
  const uint32_t chunk = 16 / layout.element;
  require_swizzle(warp, layout.chunk(first, 0), static_cast<int>(layout.swizzle));
  require_swizzle(warp,
                  layout.transposed ? layout.chunk(first + rows - chunk, depth - 1)
                                    : layout.chunk(first + rows - 1, depth - chunk),
                  static_cast<int>(layout.swizzle));
}

void check_descriptor(const Warp& warp, uint64_t descriptor) {
  if (descriptor >> 49 & 7) warp.fault(FaultKind::descriptor, 0, descriptor, Space::shared, kBaseOffset);
  const SharedMatrix layout = layout_of(descriptor, false, 1);
  // The swizzle acts on the bits of the address, so that a tile may begin in an atom, at a multiple of 128
  // bytes.
  constexpr uint32_t kLine = 128;
  if (layout.swizzle && layout.start % kLine >= layout.swizzle)
    warp.fault(FaultKind::descriptor, 0, layout.start, Space::shared, kOffAtom, layout.swizzle);
}

void issue(Warp& warp, const Instruction& instruction) {
  const Form& form = form_of(instruction);
  const Operands operands(instruction, form);
  warpgroup_step(warp);
  require_fenced(warp, operands.accumulator, accumulators(form) + (form.a_in_registers ? 4 : 0));
  MatrixProduct product{};
  product.instruction = &instruction;
  product.pc = warp.pc;
  product.group = warp.product_group;
  if (!form.a_in_registers) product.descriptor_a = source_cells<uint64_t>(warp, *operands.a)[0];
  product.descriptor_b = source_cells<uint64_t>(warp, *operands.b)[0];
  product.accumulate = Source<bool>(warp, *operands.scale_d)[0];
  const auto scale = [&](const Operand* operand) {
    return operand ? source_cells<int32_t>(warp, *operand)[0] : 1;
  };
  product.sign = static_cast<float>(scale(operands.scale_a)) * static_cast<float>(scale(operands.scale_b));
  product.transpose_a = operands.transpose_a && source_cells<int32_t>(warp, *operands.transpose_a)[0] != 0;
  product.transpose_b = operands.transpose_b && source_cells<int32_t>(warp, *operands.transpose_b)[0] != 0;
  if (!form.a_in_registers) check_descriptor(warp, product.descriptor_a);
  check_descriptor(warp, product.descriptor_b);

  if (form.sparse) {
    const SparseShape shape = sparse_shape(form);
    product.selector = selector_of(warp, *operands.selector, shape);
    check_metadata(warp, *operands.metadata, product.selector, shape, false, warp.id % 4 * kRows);
    std::copy_n(source_cells<uint32_t>(warp, *operands.metadata), kLanes, product.metadata);
  }

  if (warp.races)  // what a matrix with another swizzle reads elsewhere may be under way: that follows from
                   // it
    each_shared_operand(warp, product, [&](const SharedMatrix& layout, uint32_t, uint32_t, uint32_t, bool) {
      require_swizzle(warp, layout.chunk(0, 0), static_cast<int>(layout.swizzle), true);
    });
  product.low = ~0u;
  bool unwritten = false;
  each_operand_run(warp, product, [&](const std::vector<SharedRun>& runs) {
    for (const SharedRun& run : runs) {
      product.low = std::min(product.low, run.offset);
      product.high = std::max(product.high, run.offset + run.bytes);
    }
    unwritten |= check_shared_reads(warp, runs);
  });
  if (unwritten || warp.tracking) follow_product(warp, product);
  if (warp.races) {
    each_operand_run(warp, product,
                     [&](const std::vector<SharedRun>& runs) { race_product(warp, runs, true); });
    each_shared_operand(warp, product,
                        [&](const SharedMatrix& layout, uint32_t first, uint32_t rows, uint32_t depth, bool) {
                          check_swizzle(warp, layout, first, rows, depth);
                        });
  }
  warp.products.push_back(product);
  ++warp.block->products_in_flight;
  lock_registers(warp, product);
}

// ---- computation

union Tile {
  alignas(64) float d[kRows][kMaxColumns + 8];
  int32_t n[kRows][kMaxColumns + 8];  // of integers
};

// Element (row, column) of D: register j of the pair of columns 8j.., row half h.
template <class F>
void each_accumulator(const Form& form, F f) {
  for (int j = 0; j < form.columns / 8; ++j)
    for (int h = 0; h < 2; ++h)
      if (form.half_result)
        f(j * 2 + h, h * 8, j * 8);
      else
        f(j * 4 + h * 2, h * 8, j * 8);
}

// A row of 8 columns is spread over four lanes, two neighbours in each: pairs of cells, in order.
void load_accumulators(const Warp& warp, const Form& form, const Operand* registers, Tile& tile) {
  each_accumulator(form, [&](int index, int row, int column) {
    if (form.half_result) {
      const Source<f16x2> cells(warp, registers[index]);
      for (int l = 0; l < kLanes; ++l) {  // what any product adds to -0 makes it +0
        tile.d[row + l / 4][column + l % 4 * 2] = cells[l].low + 0.0f;
        tile.d[row + l / 4][column + l % 4 * 2 + 1] = cells[l].high + 0.0f;
      }
    } else {
      const uint32_t *even = source_cells<uint32_t>(warp, registers[index]),
                     *odd = source_cells<uint32_t>(warp, registers[index + 1]);
      uint64_t pairs[kLanes];
      for (int l = 0; l < kLanes; ++l) pairs[l] = uint64_t{odd[l]} << 32 | even[l];
      for (int r = 0; r < 8; ++r) {
        std::memcpy(&tile.n[row + r][column], pairs + 4 * r, 4 * sizeof *pairs);
        if (form.integer) continue;
        for (int c = 0; c < 8; ++c) tile.d[row + r][column + c] += 0.0f;
      }
    }
  });
}

void store_accumulators(const Warp& warp, const Form& form, const Operand* registers, const Tile& tile) {
  each_accumulator(form, [&](int index, int row, int column) {
    if (form.half_result) {
      uint32_t* cells = register_cells<uint32_t>(warp, registers[index]);
      for (int l = 0; l < kLanes; ++l)
        cells[l] = to_cell(f16x2{f16(tile.d[row + l / 4][column + l % 4 * 2]),
                                 f16(tile.d[row + l / 4][column + l % 4 * 2 + 1])});
    } else {
      uint32_t *even = register_cells<uint32_t>(warp, registers[index]),
               *odd = register_cells<uint32_t>(warp, registers[index + 1]);
      uint64_t pairs[kLanes];
      for (int r = 0; r < 8; ++r) std::memcpy(pairs + 4 * r, &tile.n[row + r][column], 4 * sizeof *pairs);
      for (int l = 0; l < kLanes; ++l) {
        even[l] = static_cast<uint32_t>(pairs[l]);
        odd[l] = static_cast<uint32_t>(pairs[l] >> 32);
      }
    }
  });
}

void read_a(const Warp& warp, const MatrixProduct& product, const Form& form, float (&a)[kRows][kMaxDepth]) {
  if (form.a_in_registers) {
    const Operand* registers = Operands(*product.instruction, form).a;
    const int packed = 4 / bytes_of(form.a);
    for (int q = 0; q < 4; ++q) {
      const uint32_t* cells = source_cells<uint32_t>(warp, registers[q]);
      for (int l = 0; l < kLanes; ++l) {
        uint8_t bytes[4];
        std::memcpy(bytes, &cells[l], 4);
        for (int i = 0; i < packed; ++i)
          a[q % 2 * 8 + l / 4][q / 2 * 4 * packed + l % 4 * packed + i] =
              element_value(form.a, bytes + i * bytes_of(form.a));
      }
    }
  } else {
    const SharedMatrix layout = layout_a(product, form);
    each_chunk(layout, static_cast<uint32_t>(warp.id % 4) * kRows, kRows, static_cast<uint32_t>(form.depth),
               [&](uint32_t row, uint32_t k, uint32_t address) {
                 float values[16];
                 decode_chunk(form.a, warp.block->shared.data() + address, values);
                 for (uint32_t i = 0; i < 16 / layout.element; ++i)
                   (layout.transposed ? a[row + i][k] : a[row][k + i]) = values[i];
               });
  }
  for (int r = 0; r < kRows; ++r)
    for (int k = 0; k < form.depth; ++k) a[r][k] *= product.sign;
}

typedef float Vector __attribute__((vector_size(32)));

Vector read_vector(const float* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Four rows at a time share what is read of B.
typedef int32_t Integers __attribute__((vector_size(32)));
constexpr int kShared = 4;

void add_sums(const Form& form, int r, int n, const Vector (&sum)[kShared], Tile& tile) {
  for (int i = 0; i < kShared; ++i) {
    if (form.saturated) {
      for (int c = 0; c < 8; ++c) {
        int32_t& d = tile.n[r + i][n + c];
        const int64_t exact = int64_t{d} + static_cast<int32_t>(sum[i][c]);
        d = static_cast<int32_t>(std::clamp<int64_t>(exact, INT32_MIN, INT32_MAX));
      }
    } else if (form.integer) {  // a sum of so few products is exact in float
      typedef uint32_t Wrapping __attribute__((vector_size(32)));
      Wrapping d;
      std::memcpy(&d, &tile.n[r + i][n], sizeof d);
      d += reinterpret_cast<Wrapping>(__builtin_convertvector(sum[i], Integers));
      std::memcpy(&tile.n[r + i][n], &d, sizeof d);
    } else {
      const Vector d = read_vector(&tile.d[r + i][n]) + sum[i];
      std::memcpy(&tile.d[r + i][n], &d, sizeof d);
    }
  }
}

// The bytes of K of each row of an operand of bits.
void read_bits(const Warp& warp, const SharedMatrix& layout, uint32_t first_row, uint32_t rows,
               uint8_t (*bits)[kDepthBytes]) {
  each_chunk(layout, first_row, rows, kDepthBytes, [&](uint32_t row, uint32_t k, uint32_t address) {
    std::memcpy(bits[row] + k, warp.block->shared.data() + address, 16);
  });
}

void add_bit_product(const Warp& warp, const MatrixProduct& product, const Form& form, Tile& tile) {
  uint8_t a[kRows][kDepthBytes], b[kMaxColumns][kDepthBytes];
  if (form.a_in_registers) {
    const Operand* registers = Operands(*product.instruction, form).a;
    for (int q = 0; q < 4; ++q) {
      const uint32_t* cells = source_cells<uint32_t>(warp, registers[q]);
      for (int l = 0; l < kLanes; ++l)
        std::memcpy(&a[q % 2 * 8 + l / 4][q / 2 * 16 + l % 4 * 4], &cells[l], 4);
    }
  } else {
    read_bits(warp, layout_a(product, form), static_cast<uint32_t>(warp.id % 4) * kRows, kRows, a);
  }
  read_bits(warp, layout_b(product, form), 0, static_cast<uint32_t>(form.columns), b);
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < form.columns; ++n) {
      uint32_t sum = 0;
      for (size_t k = 0; k < kDepthBytes; k += 8) {
        uint64_t left, right;
        std::memcpy(&left, a[r] + k, 8);
        std::memcpy(&right, b[n] + k, 8);
        sum += static_cast<uint32_t>(__builtin_popcountll(left & right));
      }
      const uint32_t before = product.accumulate ? static_cast<uint32_t>(tile.n[r][n]) : 0;
      tile.n[r][n] = static_cast<int32_t>(before + sum);
    }
}

bool all_zero(const float* values, size_t count) {
  uint32_t bits = 0;
  for (size_t k = 0; k < count; ++k) bits |= bit_cast<uint32_t>(values[k]) << 1;
  return bits == 0;
}
bool all_finite(const float* values, size_t count) {
  uint32_t special = 0;
  for (size_t k = 0; k < count; ++k)
    special |= (bit_cast<uint32_t>(values[k]) & 0x7f800000u) == 0x7f800000u ? 1 : 0;
  return special == 0;
}

constexpr int kGroup = 8;  // columns that are computed together
using Columns = float[kMostSkipped * kMaxDepth][kMaxColumns + kGroup];

// B, and which groups of its columns hold nothing but zeros.
void read_b(const Warp& warp, const MatrixProduct& product, const Form& form, Columns& b,
            bool (&zero)[kMaxColumns / kGroup]) {
  const SharedMatrix layout = layout_b(product, form);
  const auto depth = static_cast<uint32_t>(form.depth_of_b()),
             row_bytes = layout.transposed ? 16 : depth * layout.element;
  for (int n = 0; n < form.columns; n += kGroup) {
    alignas(64) uint8_t raw[kMostSkipped * kGroup * kDepthBytes];  // by rows of the layout
    uint64_t bits = 0;
    each_chunk(layout, static_cast<uint32_t>(n), kGroup, depth,
               [&](uint32_t row, uint32_t k, uint32_t address) {
                 uint64_t words[2];
                 std::memcpy(words, warp.block->shared.data() + address, sizeof words);
                 bits |= words[0] | words[1];
                 std::memcpy(raw + (layout.transposed ? k * row_bytes : row * row_bytes + k * layout.element),
                             words, sizeof words);
               });
    zero[n / kGroup] = bits == 0;
    if (bits == 0) {
      for (uint32_t k = 0; k < depth; ++k) std::memset(&b[k][n], 0, kGroup * sizeof(float));
    } else if (layout.transposed) {
      for (uint32_t k = 0; k < depth; ++k) decode_chunk(form.b, raw + k * row_bytes, &b[k][n]);
    } else {
      const uint32_t count = 16 / layout.element;
      for (uint32_t row = 0; row < kGroup; ++row)
        for (uint32_t k = 0; k < depth; k += count) {
          float values[16];
          decode_chunk(form.b, raw + row * row_bytes + k * layout.element, values);
          for (uint32_t i = 0; i < count; ++i) b[k + i][n + row] = values[i];
        }
    }
  }
}

// Tiles at the edge of a matrix hold zeros beyond it: their products with finite values are not computed, and
// would add +0 to sums none of which is -0.
void add_product(const Warp& warp, const MatrixProduct& product, const Form& form, Tile& tile) {
  if (form.a == Element::b1) return add_bit_product(warp, product, form, tile);
  alignas(64) float a[kRows][kMaxDepth] = {};
  alignas(64) static thread_local Columns b;
  // of columns: zeros only; finite; and to be skipped in rows that hold more than zeros
  bool zero_b[kMaxColumns / kGroup], finite_b[kMaxColumns / kGroup], idle_b[kMaxColumns / kGroup];
  read_a(warp, product, form, a);
  read_b(warp, product, form, b, zero_b);
  SparsePlaces places;
  if (form.sparse) find_places(product.metadata, product.selector, sparse_shape(form), places);
  bool zero_a[kRows / kShared], some_zero_a = false;
  for (int r = 0; r < kRows; r += kShared)
    some_zero_a |= zero_a[r / kShared] = all_zero(a[r], size_t{kShared} * kMaxDepth);
  const bool finite_a = all_finite(a[0], size_t{kRows} * kMaxDepth);
  for (int n = 0; n < form.columns; n += kGroup) {
    bool finite = some_zero_a;
    for (int k = 0; k < form.depth_of_b() && finite && !zero_b[n / kGroup]; ++k)
      finite = all_finite(&b[k][n], kGroup);
    finite_b[n / kGroup] = finite;
    idle_b[n / kGroup] = zero_b[n / kGroup] && finite_a;
  }
  if (!product.accumulate)
    for (auto& row : tile.d) std::memset(row, 0, sizeof(float) * static_cast<size_t>(form.columns));
  for (int r = 0; r < kRows; r += kShared) {
    const bool* skipped = zero_a[r / kShared] ? finite_b : idle_b;
    for (int n = 0; n < form.columns; n += kGroup) {
      if (skipped[n / kGroup]) continue;
      Vector sum[kShared] = {};
      for (int k = 0; k < form.depth; ++k) {
        if (form.sparse) {
          for (int i = 0; i < kShared; ++i) sum[i] += read_vector(&b[places.k[r + i][k]][n]) * a[r + i][k];
          continue;
        }
        const Vector row = read_vector(&b[k][n]);
        for (int i = 0; i < kShared; ++i) sum[i] += row * a[r + i][k];
      }
      add_sums(form, r, n, sum, tile);
    }
  }
}

bool same_accumulators(const Form& f, const Operand* x, const Form& g, const Operand* y) {
  if (f.columns != g.columns || f.half_result != g.half_result || f.half_result) return false;
  return std::equal(x, x + accumulators(f), y,
                    [](const Operand& a, const Operand& b) { return a.slot == b.slot; });
}

// Computes all products of the groups before `limit`, in order, as read by the warpgroup at `time`. Products
// into the same registers follow one another without these being written in between.
void compute(Warp& warp, uint32_t limit, uint32_t time) {
  static thread_local Tile tile;
  const Form* form = nullptr;
  const Operand* registers = nullptr;
  const auto flush = [&] {
    if (form) store_accumulators(warp, *form, registers, tile);
    form = nullptr;
  };
  for (MatrixProduct& product : warp.products) {
    if (product.group >= limit) break;
    if (product.computed) continue;
    product.computed = true;
    if (product.is_move) {
      flush();
      const auto& untracked = warp.machine->prepared->untracked;
      const Function noted = untracked.empty() ? nullptr : untracked[static_cast<size_t>(product.pc)];
      const uint32_t active = warp.active;
      warp.set_active(product.lanes);
      (noted ? noted : product.instruction->function)(warp, *product.instruction);
      warp.set_active(active);
      continue;
    }
    --warp.block->products_in_flight;
    const Form& next = form_of(*product.instruction);
    if (!form || !same_accumulators(*form, registers, next, product.instruction->operands)) {
      flush();
      form = &next;
      registers = product.instruction->operands;
      load_accumulators(warp, next, registers, tile);
    }
    if (warp.races) {  // reading lasts until now
      const int32_t pc = std::exchange(warp.pc, product.pc);
      each_operand_run(warp, product,
                       [&](const std::vector<SharedRun>& runs) { race_products_read(warp, runs, time); });
      warp.pc = pc;
    }
    add_product(warp, product, next, tile);
  }
  flush();
}

// The groups before `limit` have ended. A warpgroup's products are one instruction's, which ends for all of
// its warps at once: what it reads has been read for all of them when one has waited. (On an H100, a warp
// that is held up before its wgmma holds the waits of the other three.) Their registers stay locked until
// they wait, too.
void end_products(Warp& warp, uint32_t limit) {
  Warp* members = &warp.block->warps[static_cast<size_t>(warp.id / 4 * 4)];
  const uint32_t time = race_products_end(warp);
  for (int w = 0; w < 4; ++w) compute(members[w], limit, time);
  const auto waits = [&](const MatrixProduct& product) { return product.group >= limit; };
  warp.products.erase(warp.products.begin(), std::find_if(warp.products.begin(), warp.products.end(), waits));
  warp.locked.clear();
  for (const MatrixProduct& product : warp.products) lock_registers(warp, product);
}

void fence(Warp& warp, const Instruction&) {
  warpgroup_step(warp);
  ++warp.fences;
}

void commit(Warp& warp, const Instruction&) {
  warpgroup_step(warp);
  ++warp.product_group;
}

// Waits for the warps that have not come as far: they have parts of these products to issue.
Flow wait_group(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  if (!gather(warp, lanes)) return {0};
  const uint32_t left = uniform(warp, instruction.operands[0]);
  const bool some = left < warp.product_group && !warp.products.empty();
  if (some && !warpgroup_together(warp)) {
    warp.groups.push_back({lanes, warp.pc + 1, Wait::warpgroup, 0, warp.product_group - left});
    warpgroup_step(warp);
    return {0};
  }
  warpgroup_step(warp);
  if (some) end_products(warp, warp.product_group - left);
  return {lanes};
}

}  // namespace

void warpgroup_waited(Warp& warp, uint32_t limit) {
  const uint32_t active = warp.active;
  warp.set_active(warp.alive);
  end_products(warp, limit);
  warp.set_active(active);
}

// ---- what others may not do meanwhile

void check_products(const Warp& warp, Block& block, uint32_t low, uint32_t high, int lane) {
  for (const Warp& other : block.warps)
    for (const MatrixProduct& product : other.products) {
      if (product.is_move || product.computed || high <= product.low || low >= product.high) continue;
      each_operand_chunk(other, product, [&](uint32_t address) {
        if (address < high && low < address + 16)
          warp.finding(FaultKind::in_flight, lane, address, Space::shared, high - low, 1, product.pc);
      });
    }
}

bool defer_or_check(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  if (instruction.control == wait_group || instruction.function == commit) return false;
  const auto locked = [&](int32_t slot) {
    return slot < 0 ? uint8_t{0} : warp.locked[static_cast<size_t>(slot / 128)];
  };
  const auto blame = [&](int32_t slot) {
    int pc = -1, issued = -1;  // of a mov, the product before it
    bool committed = true;
    for (const MatrixProduct& product : warp.products) {
      if (!product.is_move) issued = product.pc;
      for (int k = 0; k < product.instruction->count; ++k)
        if (product.instruction->operands[k].slot == slot) {
          pc = issued;
          committed = product.group < warp.product_group;
        }
    }
    warp.finding(FaultKind::accumulator_in_flight, lanes ? __builtin_ctz(lanes) : 0,
                 static_cast<uint64_t>(slot), Space::none, !committed, 0, pc);
  };
  const bool is_product = instruction.function == issue;
  bool moves_results = false;
  for (int k = 0; k < instruction.count && instruction.is_move; ++k)
    each_cell(instruction.operands[k], instruction.access[k], [&](int32_t slot) {
      moves_results |= !is_destination(instruction.access[k]) && locked(slot) == kNobody;
    });
  if (moves_results) {
    MatrixProduct move{};
    move.instruction = &instruction;
    move.pc = warp.pc;
    move.is_move = true;
    move.group = warp.products.back().group;
    move.lanes = lanes;
    warp.products.push_back(move);
    lock_registers(warp, move);
    return true;
  }
  for (int k = 0; k < instruction.count; ++k) {
    const int32_t slot = instruction.operands[k].slot;
    const char access = instruction.access[k];
    if (slot < 0 || (is_product && access == 'U')) continue;  // products in the same registers run in order
    each_cell(instruction.operands[k], access, [&](int32_t cell) {
      const uint8_t how = locked(cell);
      if (how == kNobody || (how == kReadOnly && is_destination(access))) blame(cell);
    });
  }
  return false;
}

namespace {

enum class Sums { single, half, integer, saturated };

void add_products(Table& table, Element a, Element b, int depth, Sums sums, const std::string& types,
                  bool sparse) {
  const bool transposable = bytes_of(a) == 2, integer = sums == Sums::integer || sums == Sums::saturated;
  for (int n = 8; n <= kMaxColumns; n += 8)
    for (const bool from_registers : {false, true}) {
      if (integer && n % 16 && n != 8 && n != 24) continue;  // integers have fewer shapes
      const Form form{n,
                      a == Element::b1 ? depth / 8 : depth,
                      a,
                      b,
                      sums == Sums::half,
                      integer,
                      sums == Sums::saturated,
                      from_registers,
                      sparse};
      const std::string name = std::string("wgmma.mma_async") + (sparse ? ".sp" : "") + ".sync.aligned.m64n" +
                               std::to_string(n) + "k" +
                               std::to_string(sparse ? kMostSkipped * depth : depth) + types;
      std::string signature = "U" + std::to_string(accumulators(form)) + (from_registers ? "w4" : "d") +
                              (sparse ? "dw2p" : "dp") + (integer ? "" : "ww");
      if (transposable) signature += from_registers ? "w" : "ww";
      table.add_aligned(name + (from_registers ? ".rs" : ""), signature, issue,
                        static_cast<int>(forms().size()));
      forms().push_back(form);
    }
}

// Of dense products, or of those whose A is sparse.
void add_all_products(Table& table, bool sparse) {
  add_products(table, Element::bf16, Element::bf16, 16, Sums::single, ".f32.bf16.bf16", sparse);
  add_products(table, Element::f16, Element::f16, 16, Sums::single, ".f32.f16.f16", sparse);
  add_products(table, Element::f16, Element::f16, 16, Sums::half, ".f16.f16.f16", sparse);
  add_products(table, Element::tf32, Element::tf32, 8, Sums::single, ".f32.tf32.tf32", sparse);
  const std::pair<Element, const char*> tiny[] = {{Element::e4m3, ".e4m3"}, {Element::e5m2, ".e5m2"}};
  for (const auto& [a, a_name] : tiny)
    for (const auto& [b, b_name] : tiny) {
      add_products(table, a, b, 32, Sums::single, std::string(".f32") + a_name + b_name, sparse);
      add_products(table, a, b, 32, Sums::half, std::string(".f16") + a_name + b_name, sparse);
    }
  const std::pair<Element, const char*> bytes[] = {{Element::s8, ".s8"}, {Element::u8, ".u8"}};
  for (const auto& [a, a_name] : bytes)
    for (const auto& [b, b_name] : bytes) {
      const std::string types = std::string(".s32") + a_name + b_name;
      add_products(table, a, b, 32, Sums::integer, types, sparse);
      add_products(table, a, b, 32, Sums::saturated, types + ".satfinite", sparse);
    }
}

}  // namespace

void add_wgmma_operations(Table& table) {
  forms().clear();
  add_all_products(table, false);
  add_all_products(table, true);
  add_products(table, Element::b1, Element::b1, 256, Sums::integer, ".s32.b1.b1.and.popc", false);
  table.add_aligned("wgmma.fence.sync.aligned", "", fence);
  table.add_aligned("wgmma.commit_group.sync.aligned", "", commit);
  table.add_control("wgmma.wait_group.sync.aligned", "w", wait_group);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
