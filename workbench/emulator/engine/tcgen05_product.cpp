// tcgen05.mma: a product that one thread issues, of matrices in shared memory (A in tensor memory, too), into
// tensor memory. For a pair of blocks each holds its rows of A and of D, and half of the columns of B.
#include <algorithm>
#include <cmath>

#include "matrix.hpp"
#include "shared_matrix.hpp"
#include "tensor_memory.hpp"
#include "tensor_product.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

// ---- the instruction descriptor, and what a kind allows

struct Descriptor {
  TensorForm form;
  bool saturate;
  int scale_id_a, scale_id_b;
};

class Reader {  // of the instruction descriptor
 public:
  Reader(const Warp& warp, int lane, uint32_t bits, const TensorOperation& operation)
      : warp_(warp), lane_(lane), bits_(bits), operation_(operation) {}

  Descriptor read() {
    Descriptor found{};
    TensorForm& form = found.form;
    form.operation = operation_;
    const TensorKind kind = operation_.kind;
    require(at(2, 1) == (operation_.sparse ? 1u : 0u), kSparsity, at(2, 1));
    if (operation_.scaled()) {
      found.scale_id_b = static_cast<int>(at(4, 2));
      found.scale_id_a = static_cast<int>(at(29, 2));
      form.result = ResultType::f32;
      form.fine_scales = at(23, 1) == 0;
      require(!(form.fine_scales && kind != TensorKind::mxf4nvf4), kScaleType, at(23, 1));
      require(!(form.fine_scales && operation_.factors == 2), kScaleType, at(23, 1));
      const int steps = operation_.factors == 1 ? 1 : operation_.factors == 2 ? 2 : 4;
      require(found.scale_id_a % steps == 0, kScaleId, found.scale_id_a);
      require(found.scale_id_b % steps == 0, kScaleId, found.scale_id_b);
      require(at(3, 1) == 0 && at(6, 1) == 0, kReserved, bits_);
    } else {
      found.saturate = at(3, 1) != 0;
      require(!found.saturate || kind == TensorKind::i8, kSaturate, 1);
      const uint32_t result = at(4, 2);
      const bool fits = kind == TensorKind::i8     ? result == 2
                        : kind == TensorKind::tf32 ? result == 1
                                                   : result <= 1;
      require(fits, kResultType, result);
      form.result = static_cast<ResultType>(result);
      require(at(6, 1) == 0 && at(23, 1) == 0 && at(29, 1) == 0, kReserved, bits_);
      require(operation_.weights || at(30, 2) == 0, kMaximumShift, at(30, 2));
    }
    form.a = element(at(7, 3), kTypeOfA);
    form.b = element(at(10, kind == TensorKind::mxf4 || kind == TensorKind::mxf4nvf4 ? 2 : 3), kTypeOfB);
    form.negate_a = at(13, 1) != 0;
    form.negate_b = at(14, 1) != 0;
    require(kind != TensorKind::i8 || !(form.negate_a || form.negate_b), kNegate, at(13, 2));
    form.transpose_a = at(15, 1) != 0;
    form.transpose_b = at(16, 1) != 0;
    require(!form.transpose_a || (can_transpose(form.a) && !operation_.a_in_tensor), kMajor, 0);
    require(!form.transpose_b || can_transpose(form.b), kMajor, 1);
    form.columns = at(17, 6) * 8;
    form.rows = at(24, 5) * 16;
    shape(form);
    form.depth = depth_of(operation_);
    if (operation_.scaled() && at(31, 1)) {  // 96 elements, of sm_103a
      require(!operation_.sparse && kind != TensorKind::mxf8f6f4, kDepth, 1);
      form.depth = 96;
    }
    return found;
  }

 private:
  uint32_t at(int bit, int count) const { return bits_ >> bit & ((1u << count) - 1); }
  void require(bool fine, TensorDescriptorProblem problem, int64_t value) const {
    if (!fine) warp_.fault(FaultKind::tensor_descriptor, lane_, bits_, Space::none, problem, value);
  }
  TensorElement element(uint32_t code, TensorDescriptorProblem problem) const {
    const TensorElement all[] = {TensorElement::e4m3, TensorElement::e5m2, TensorElement::s8,
                                 TensorElement::e2m3, TensorElement::e3m2, TensorElement::e2m1};
    switch (operation_.kind) {
      case TensorKind::f16:
        require(code <= 1, problem, code);
        return code ? TensorElement::bf16 : TensorElement::f16;
      case TensorKind::tf32:
        require(code == 2, problem, code);
        return TensorElement::tf32;
      case TensorKind::i8:
        require(code <= 1, problem, code);
        return code ? TensorElement::s8 : TensorElement::u8;
      case TensorKind::f8f6f4:
      case TensorKind::mxf8f6f4:
        require(code <= 5 && code != 2, problem, code);
        return all[code % 6];
      default:
        require(code == 1, problem, code);
        return TensorElement::packed_e2m1;
    }
  }
  void shape(const TensorForm& form) const {
    const uint32_t m = form.rows, n = form.columns;
    const bool integer = operation_.kind == TensorKind::i8;
    if (operation_.weights) {
      require(m == 32 || m == 64 || m == 128, kRows, m);
      require(n == 64 || n == 128 || n == 256, kColumns, n);
      return;
    }
    if (operation_.pair)
      require(m == 256 || m == 128, kRows, m);
    else
      require(m == 128 || (m == 64 && !operation_.scaled()), kRows, m);
    uint32_t step = operation_.pair || m == 128 ? 16 : 8;
    if (operation_.scaled() && !operation_.pair) step = 8;
    if (integer) step = operation_.pair ? 32 : n <= 32 ? 8 : 16;
    require(n >= step && n <= 256 && n % step == 0, kColumns, n);
  }

  const Warp& warp_;
  int lane_;
  uint32_t bits_;
  const TensorOperation& operation_;
};

// ---- matrices in shared memory

SharedMatrix matrix_of(const Warp& warp, int lane, uint64_t descriptor, TensorElement element,
                       bool transposed) {
  const auto refuse = [&](TensorDescriptorProblem problem, uint64_t value) {
    warp.fault(FaultKind::tensor_descriptor, lane, descriptor, Space::shared, problem,
               static_cast<int64_t>(value));
  };
  const uint64_t mode = descriptor >> 61;
  if ((descriptor >> 46 & 7) != 1) refuse(kMatrixVersion, descriptor >> 46 & 7);
  if (mode == 3 || mode == 5 || mode == 7) refuse(kMatrixSwizzle, mode);
  if (descriptor >> 53 & 0xff) refuse(kMatrixFixed, descriptor >> 53 & 0xff);
  if (descriptor >> 52 & 1) warp.fault(FaultKind::unsupported, lane, descriptor);
  if (descriptor >> 49 & 7) warp.fault(FaultKind::descriptor, lane, descriptor, Space::shared, kBaseOffset);
  constexpr uint32_t kSwizzles[8] = {0, 128, 128, 0, 64, 0, 32, 0};
  SharedMatrix matrix;
  matrix.start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
  matrix.leading = static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4;
  matrix.stride = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
  matrix.swizzle = kSwizzles[mode];
  matrix.wide_atom = mode == 1;
  matrix.transposed = transposed;
  matrix.element = transposed ? container_bytes(element) : 1;
  constexpr uint32_t kLine = 128;
  if (matrix.swizzle && matrix.start % kLine >= matrix.swizzle)
    warp.fault(FaultKind::descriptor, lane, matrix.start, Space::shared, kOffAtom, matrix.swizzle);
  return matrix;
}

// Rows of a matrix in a block, `depth` elements each, as values.
struct SharedOperand {
  SharedMatrix matrix;
  TensorElement element;
  uint32_t rows, depth;

  uint32_t extent() const {  // of K, in the units of the layout
    return matrix.transposed ? depth : depth * bits_of(element) / 8;
  }
  const std::vector<SharedRun>& runs() const { return runs_of(matrix, 0, rows, extent()); }
};

// Calls f(row, k, values, count, step) for values of an operand: `count` of them, along K or (step) along the
// rows.
template <class F>
void each_values(const Block& block, const SharedOperand& operand, F f) {
  float values[32];
  each_chunk(
      operand.matrix, 0, operand.rows, operand.extent(), [&](uint32_t row, uint32_t k, uint32_t address) {
        const uint32_t count = decode_tensor_chunk(operand.element, block.shared.data() + address, values);
        f(row, operand.matrix.transposed ? k : k * 8 / bits_of(operand.element), values, count,
          operand.matrix.transposed);
      });
}

// Bytes of a chunk of 16 that hold elements: those of 4 and 6 bits are padded.
uint32_t used_bytes(TensorElement element) {
  if (element == TensorElement::e2m1) return 8;
  return element == TensorElement::e2m3 || element == TensorElement::e3m2 ? 12 : 16;
}

// The origins of rows (or columns) of an operand that hold what is undefined.
void find_undefined(const Warp& warp, const Block& block, const SharedOperand& operand, uint32_t* rows) {
  each_chunk(operand.matrix, 0, operand.rows, operand.extent(),
             [&](uint32_t row, uint32_t, uint32_t address) {
               const uint32_t bytes = used_bytes(operand.element);
               if (!origin_in_shared(warp, block, address, bytes)) return;
               const uint32_t count = operand.matrix.transposed ? bytes / operand.matrix.element : 1;
               for (uint32_t i = 0; i < count; ++i)
                 if (const uint32_t origin =
                         origin_in_shared(warp, block, address + i * bytes / count, bytes / count))
                   rows[row + i] = origin;
             });
}

// ---- issue

struct Operands {
  const Operand *result, *a, *b, *metadata, *descriptor, *scale_a, *scale_b, *disabled, *accumulate, *shift,
      *mask;
  Operands(const Instruction& instruction, const TensorOperation& operation) {
    const Operand* next = instruction.operands;
    result = next++;
    a = next++;
    b = next++;
    metadata = operation.sparse ? next++ : nullptr;
    descriptor = next++;
    scale_a = operation.scaled() ? next++ : nullptr;
    scale_b = operation.scaled() ? next++ : nullptr;
    disabled = nullptr;
    if (!operation.scaled() && !operation.weights) disabled = next, next += 8;
    accumulate = next++;
    shift = !operation.scaled() && !operation.weights ? next : nullptr;
    mask = operation.weights ? next : nullptr;
  }
};

class Product {
 public:
  Product(Warp& warp, const Instruction& instruction, int lane, const TensorOperation& operation)
      : warp_(warp),
        lane_(lane),
        unit_(TensorUnit::of(warp)),
        instruction_(instruction),
        operation_(operation),
        operands_(instruction, operation) {}

  void run() {
    const uint32_t bits = source_cells<uint32_t>(warp_, *operands_.descriptor)[lane_];
    descriptor_ = Reader(warp_, lane_, bits, operation_).read();
    TensorForm& form = descriptor_.form;
    blocks_ = {warp_.block};
    if (operation_.pair) {
      Block& other = unit_.peer(warp_, lane_);
      blocks_ = {warp_.block, &other};
      if (warp_.block->rank & 1) std::swap(blocks_[0], blocks_[1]);
    }
    const Source<bool> accumulate(warp_, *operands_.accumulate);
    accumulate_ = accumulate[lane_];
    result_ = address_of(*operands_.result);
    const auto count = static_cast<uint32_t>(blocks_.size());
    placement_ = TensorPlacement(form, count);
    collect();
    read_disabled();
    if (operands_.shift && operands_.shift->slot != kAbsent) {
      const uint32_t by = source_cells<uint32_t>(warp_, *operands_.shift)[lane_];
      if (by > 15) warp_.fault(FaultKind::bad_operand, lane_, 0, Space::none, by);
      scale_ = std::ldexp(1.0f, -static_cast<int>(by));
    }
    // bit 39 says that columns of B count as zero; which ones, the manual draws for few shapes only
    if (operands_.mask && operands_.mask->slot != kAbsent) {
      const uint64_t mask = source_cells<uint64_t>(warp_, *operands_.mask)[lane_];
      if (mask >> 39 & 1) warp_.fault(FaultKind::unsupported, lane_, mask);
    }
    static thread_local TensorTiles tiles;
    tiles.form = form;
    tiles.sign = form.negate_a != form.negate_b ? -1.0f : 1.0f;
    tiles.scale = scale_;
    tiles.saturate = descriptor_.saturate;
    tiles.accumulate = accumulate_;
    read_b(tiles);
    for (uint32_t c = 0; c < count; ++c) {
      read_a(tiles, c);
      if (operation_.sparse) read_metadata(tiles, c);
      if (operation_.scaled()) read_scales(tiles, c);
      write_result(tiles, c);
    }
  }

 private:
  uint32_t address_of(const Operand& operand) const {
    uint64_t addresses[kLanes];
    read_addresses(warp_, operand, addresses);
    const auto address = static_cast<uint32_t>(addresses[lane_]) & 0x3fffffff;
    if (tensor_lane(address) >= kTensorLanes)
      warp_.fault(FaultKind::tensor_bounds, lane_, address, Space::tensor, 1, kBeyondMemory);
    return address;
  }
  // Where the rows of A or D may begin.
  void require_rows(uint32_t address) const {
    const uint32_t first = tensor_lane(address);
    if (first != 0 && !(first == kBandLanes && placement_.has_gaps()))
      warp_.fault(FaultKind::tensor_bounds, lane_, address, Space::tensor, 0, kOddRows);
  }
  uint32_t new_record(TensorUse use, uint64_t accumulator = 0) {
    return unit_.issue(warp_, lane_, use, accumulator);
  }

  // A matrix that is taken from the collector's buffer has to be what was filled in.
  void collect() {
    const auto& flags = instruction_.flags;
    const int how = flags >> kCollectorShift & kCollectorMask;
    const TensorForm& form = descriptor_.form;
    Collected made{how == kFill || how == kUse, warp_.pc};
    if (operation_.weights)
      made.form =
          uint64_t{form.columns} << 8 | uint64_t{form.transpose_b} << 4 | static_cast<uint64_t>(form.b);
    else
      made.form = uint64_t{form.rows} << 8 | uint64_t{form.transpose_a} << 4 | static_cast<uint64_t>(form.a);
    const Operand& operand = operation_.weights ? *operands_.b : *operands_.a;
    if (!operation_.weights && operation_.a_in_tensor)
      made.matrix = uint64_t{1} << 63 | address_of(operand);
    else
      made.matrix = source_cells<uint64_t>(warp_, operand)[lane_];
    Collected& buffer =
        unit_.memory(*warp_.block)
            .collected[operation_.weights ? 1 + (static_cast<uint32_t>(flags) >> kCollectorBufferShift) : 0];
    if (how == kUse || how == kLastUse) {
      const bool same = buffer.matrix == made.matrix && buffer.form == made.form;
      if (!buffer.filled || !same)
        warp_.finding(FaultKind::tensor_collector, lane_, result_, Space::tensor,
                      buffer.filled ? kOtherMatrix : kNotFilled, 0, buffer.pc);
      if (buffer.filled && how == kUse) made.pc = buffer.pc;
    }
    buffer = made;
  }

  void read_disabled() {
    std::fill_n(&disabled_[0][0], 8, 0u);
    if (!operands_.disabled) return;
    for (int k = 0; k < 8; ++k)
      if (operands_.disabled[k].slot != kAbsent)
        disabled_[k / 4][k % 4] = source_cells<uint32_t>(warp_, operands_.disabled[k])[lane_];
  }

  SharedOperand shared_operand(const Operand& descriptor, bool is_a) const {
    const TensorForm& form = descriptor_.form;
    const uint64_t bits = source_cells<uint64_t>(warp_, descriptor)[lane_];
    const auto count = static_cast<uint32_t>(blocks_.size());
    return {matrix_of(warp_, lane_, bits, is_a ? form.a : form.b, is_a ? form.transpose_a : form.transpose_b),
            is_a ? form.a : form.b, (is_a ? form.rows : form.columns) / count,
            is_a ? form.depth : form.depth_of_b()};
  }

  // What an operand in shared memory may not be: on its way, stored without a proxy fence, swizzled in
  // another way.
  bool check_shared(Block& block, const SharedOperand& operand, uint32_t number) {
    if (warp_.races && &block == warp_.block) {
      const int swizzle = operand.matrix.wide_atom ? kAtom32 : static_cast<int>(operand.matrix.swizzle);
      require_swizzle(warp_, operand.matrix.chunk(0, 0), swizzle);
      const uint32_t per = operand.matrix.transposed ? 16 / operand.matrix.element : 16;
      require_swizzle(warp_,
                      operand.matrix.transposed
                          ? operand.matrix.chunk(operand.rows - per, operand.extent() - 1)
                          : operand.matrix.chunk(operand.rows - 1, operand.extent() - per),
                      swizzle);
    }
    return unit_.read_shared(warp_, lane_, block, operand.runs(), number);
  }

  void read_b(TensorTiles& tiles) {
    const SharedOperand operand = shared_operand(*operands_.b, false);
    std::fill_n(undefined_columns_, kMostTensorColumns, 0u);
    const uint32_t number = new_record(TensorUse::multiplied);
    uint32_t first = 0;
    for (Block* block : blocks_) {
      if (check_shared(*block, operand, number))
        find_undefined(warp_, *block, operand, undefined_columns_ + first);
      each_values(*block, operand,
                  [&](uint32_t row, uint32_t k, const float* values, uint32_t count, bool along_rows) {
                    if (along_rows)
                      std::copy_n(values, count, &tiles.b[k][first + row]);
                    else
                      for (uint32_t i = 0; i < count; ++i) tiles.b[k + i][first + row] = values[i];
                  });
      first += operand.rows;
    }
  }

  void read_a(TensorTiles& tiles, uint32_t c) {
    Block& block = *blocks_[c];
    const TensorForm& form = descriptor_.form;
    std::fill_n(undefined_lanes_, kTensorLanes, 0u);
    const uint32_t number = new_record(TensorUse::multiplied);
    if (operation_.a_in_tensor) return read_a_in_tensor(tiles, block, number);
    const SharedOperand operand = shared_operand(*operands_.a, true);
    uint32_t undefined[kTensorLanes] = {};
    if (check_shared(block, operand, number)) find_undefined(warp_, block, operand, undefined);
    each_values(block, operand,
                [&](uint32_t row, uint32_t k, const float* values, uint32_t count, bool along_rows) {
                  for (uint32_t i = 0; i < count; ++i)
                    (along_rows ? tiles.rows[row + i][k] : tiles.rows[row][k + i]) = values[i];
                });
    for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
      const int row = placement_.row(lane);
      if (row < 0) continue;
      std::copy_n(tiles.rows[row], form.depth, tiles.a[lane]);
      undefined_lanes_[lane] = undefined[row];
    }
  }

  // Rows of A in the lanes of D's rows, and those of the other half of D again.
  void read_a_in_tensor(TensorTiles& tiles, Block& block, uint32_t number) {
    const TensorForm& form = descriptor_.form;
    const uint32_t address = address_of(*operands_.a), column = tensor_column(address);
    const uint32_t words = form.depth * bits_of(form.a) / 32;
    require_rows(address);
    const TensorRegion region{placement_.bands(tensor_lane(address)), kAllOfBand, column, words};
    if (!unit_.use(warp_, lane_, block, region, number, false)) return;
    in_tensor_.push_back({&block, region, TensorUse::multiplied});
    unit_.require_written(warp_, lane_, block, region, TensorUse::multiplied);
    TensorMemory& memory = unit_.memory(block);
    for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
      if (placement_.row(lane) < 0) continue;
      uint32_t from = lane + tensor_lane(address);
      if (operation_.shift_a && placement_.row(lane) + 1 < static_cast<int>(placement_.rows())) ++from;
      uint8_t bytes[64];
      std::memcpy(bytes, &memory.cell(from % kTensorLanes, column), words * 4);
      for (uint32_t k = 0, at = 0; k < form.depth; at += 16)
        k += decode_tensor_chunk(form.a, bytes + at, &tiles.a[lane][k]);
    }
  }

  void read_metadata(TensorTiles& tiles, uint32_t c) {
    Block& block = *blocks_[c];
    const TensorForm& form = descriptor_.form;
    const uint32_t bits = source_cells<uint32_t>(warp_, *operands_.descriptor)[lane_];
    if (bits & 3) warp_.fault(FaultKind::unsupported, lane_, bits);
    const uint32_t address = address_of(*operands_.metadata), column = tensor_column(address);
    const uint32_t columns = bits_of(form.a) >= 16 ? 1 : 2;
    const TensorRegion region{placement_.bands(0), kAllOfBand, column, columns};
    if (!unit_.use(warp_, lane_, block, region, new_record(TensorUse::selected), false)) return;
    in_tensor_.push_back({&block, region, TensorUse::selected});
    unit_.require_written(warp_, lane_, block, region, TensorUse::selected);
    const TensorMemory& memory = unit_.memory(block);
    for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
      if (placement_.row(lane) < 0) continue;
      if (!tiles.find_places(lane, [&](uint32_t l, uint32_t word) {
            return memory.cells[size_t{l} * kTensorColumns + column + word];
          }))
        warp_.finding(FaultKind::sparse_metadata, lane_, tiles.bad_metadata, Space::none, kTwice,
                      int64_t{placement_.row(lane)} << 16 | 4);
    }
  }

  void read_scales(TensorTiles& tiles, uint32_t c) {
    Block& block = *blocks_[c];
    const TensorForm& form = descriptor_.form;
    const TensorMemory& memory = unit_.memory(block);
    const auto factors = static_cast<uint32_t>(form.scale_blocks());
    const auto read = [&](const Operand& operand, uint32_t rows) {
      const uint32_t column = tensor_column(address_of(operand));
      const uint32_t columns = (rows + 31) / 32;
      const uint16_t lanes = rows >= kBandLanes ? kAllOfBand : static_cast<uint16_t>((1u << rows) - 1);
      const TensorRegion region{static_cast<uint8_t>(rows > kBandLanes ? 0xff : 0x55), lanes, column,
                                columns};
      if (!unit_.use(warp_, lane_, block, region, new_record(TensorUse::scaled), false)) return ~0u;
      in_tensor_.push_back({&block, region, TensorUse::scaled});
      unit_.require_written(warp_, lane_, block, region, TensorUse::scaled);
      return column;
    };
    const auto value = [&](uint32_t lane, uint32_t column, int id, uint32_t block_of_k) {
      const uint32_t word = memory.cells[size_t{lane} * kTensorColumns + column];
      const uint32_t byte = (static_cast<uint32_t>(id) + block_of_k) % 4;
      return scale_value(word >> 8 * byte & 255, form.fine_scales);
    };
    const uint32_t rows_of_b = placement_.columns();
    const uint32_t a = read(*operands_.scale_a, std::min(placement_.rows(), kTensorLanes)),
                   b = read(*operands_.scale_b, rows_of_b);
    if (a == ~0u || b == ~0u) return;
    for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
      const int row = placement_.row(lane);
      if (row < 0) continue;
      const uint32_t slab = lane / kLanes * kLanes, r = static_cast<uint32_t>(row);
      for (uint32_t k = 0; k < factors; ++k)
        tiles.scale_a[lane][k] = value(slab + r % kLanes, a + r / kLanes, descriptor_.scale_id_a, k);
    }
    for (uint32_t slab = 0; slab < kTensorLanes / kLanes; ++slab)
      for (uint32_t n = 0; n < rows_of_b; ++n)
        for (uint32_t k = 0; k < factors; ++k)
          tiles.scale_b[slab][k][n] =
              value(slab * kLanes + n % kLanes, b + n / kLanes, descriptor_.scale_id_b, k);
  }

  void write_result(TensorTiles& tiles, uint32_t c) {
    Block& block = *blocks_[c];
    const uint32_t base = tensor_lane(result_), column = tensor_column(result_);
    require_rows(result_);
    const TensorRegion region{placement_.bands(base), kAllOfBand, column, placement_.columns()};
    const uint64_t accumulator =
        uint64_t{result_} << 32 | descriptor_.form.rows << 16 | descriptor_.form.columns;
    for (const InTensor& operand : in_tensor_)
      if (operand.block == &block && operand.region.bands & region.bands &&
          operand.region.first < region.first + region.columns &&
          region.first < operand.region.first + operand.region.columns)
        warp_.finding(FaultKind::tensor_overlap, lane_, operand.region.first, Space::tensor,
                      static_cast<int64_t>(operand.use));
    const uint32_t number = new_record(TensorUse::accumulated, accumulator);
    if (!unit_.use(warp_, lane_, block, region, number, true)) return;
    TensorMemory& memory = unit_.memory(block);
    const uint32_t* disabled = disabled_[c];
    const auto is_disabled = [&](uint32_t lane) { return (disabled[lane / 32] >> lane % 32 & 1) != 0; };
    bool any_disabled = false;
    for (int k = 0; k < 4; ++k) any_disabled |= disabled[k] != 0;
    if (accumulate_ && !any_disabled)
      unit_.require_written(warp_, lane_, block, region, TensorUse::accumulated);
    tiles.compute(placement_, [&](uint32_t lane) -> uint32_t* {
      return is_disabled(lane + base) ? nullptr : &memory.cell(lane + base, column);
    });
    note_defined(block, region, base, is_disabled);
  }

  // What a row of A or a column of B that nothing has written makes of D.
  template <class Disabled>
  void note_defined(Block& block, const TensorRegion& region, uint32_t base, const Disabled& is_disabled) {
    const auto none = [](const uint32_t* origins, uint32_t count) {
      return std::none_of(origins, origins + count, [](uint32_t origin) { return origin != 0; });
    };
    const bool all = none(undefined_lanes_, kTensorLanes) && none(undefined_columns_, kMostTensorColumns);
    bool enabled = true;
    for (uint32_t lane = 0; lane < kTensorLanes; ++lane) enabled &= !is_disabled(lane);
    if (all && enabled) {
      if (!accumulate_) unit_.note_written(block, region);
      return;
    }
    for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
      if (placement_.row(lane) < 0 || is_disabled(lane + base)) continue;
      const uint32_t at = lane + base;
      const auto bit = static_cast<uint16_t>(1u << at % kBandLanes);
      for (uint32_t n = 0; n < placement_.columns(); ++n) {
        const uint32_t column = undefined_columns_[placement_.first(lane) + n];
        if (const uint32_t origin = undefined_lanes_[lane] ? undefined_lanes_[lane] : column)
          unit_.note_undefined(block, at, region.first + n, origin);
        else if (!accumulate_)
          unit_.note_written(block, {static_cast<uint8_t>(1u << at / kBandLanes), bit, region.first + n, 1});
      }
    }
  }

  Warp& warp_;
  int lane_;
  TensorUnit& unit_;
  const Instruction& instruction_;
  TensorOperation operation_;
  Operands operands_;
  Descriptor descriptor_{};
  TensorPlacement placement_;
  std::vector<Block*> blocks_;
  uint32_t result_ = 0;
  float scale_ = 1;
  bool accumulate_ = false;
  struct InTensor {
    const Block* block;
    TensorRegion region;
    TensorUse use;
  };
  std::vector<InTensor> in_tensor_;  // operands
  uint32_t disabled_[2][4];
  uint32_t undefined_lanes_[kTensorLanes], undefined_columns_[kMostTensorColumns];  // origins
};

// variant: whether A is in tensor memory, is sparse, and how the operands go on
constexpr int kInTensor = 1, kSparse = 2;

void multiply(Warp& warp, const Instruction& instruction) {
  TensorOperation operation;
  operation.kind = static_cast<TensorKind>(instruction.flags >> kTensorKindShift & kTensorKindMask);
  operation.pair = (instruction.flags & kTensorPair) != 0;
  operation.factors = instruction.flags >> kTensorVariantShift & kTensorVariantMask;
  operation.shift_a = (instruction.flags & kTensorShiftA) != 0;
  operation.weights = (instruction.flags & kTensorWeights) != 0;
  operation.a_in_tensor = (instruction.variant & kInTensor) != 0;
  operation.sparse = (instruction.variant & kSparse) != 0;
  for_lanes(warp.active, [&](int l) {
    TensorUnit::of(warp).require_group(warp, instruction, l);
    Product(warp, instruction, l, operation).run();
  });
}

}  // namespace

// [d], a or [a], b, {[metadata]}, descriptor, {[factors of a], [of b]} {disabled lanes}, accumulate{, shift}
void add_tensor_products(Table& table) {
  for (const char* how : {"", ".scaled", ".ws"})
    for (const int in_tensor : {0, kInTensor})
      for (const int sparse : {0, kSparse}) {
        const std::string end = how == std::string(".scaled") ? "aap"
                                : how == std::string(".ws")   ? "pd?"
                                                              : "w8?pw?";
        table.add(std::string("tcgen05.mma") + how + (sparse ? ".sp" : "") + (in_tensor ? ".ts" : ".ss"),
                  std::string("a") + (in_tensor ? "a" : "d") + "d" + (sparse ? "a" : "") + "w" + end,
                  multiply, in_tensor | sparse);
        table.of_unit(make_tensor_unit, Proxy::product);
      }
}

}  // namespace workbench::emulator::WORKBENCH_ISA
