#include "undefined.hpp"

#include <algorithm>
#include <cstdio>

#include "matrix.hpp"
#include "sparse.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr uint64_t kAllBits = ~uint64_t{0};
constexpr size_t kMostOrigins = 1 << 16;  // then the last one stands for all others

bool is_destination(char letter) { return letter < 'a'; }
bool is_wide(char letter, const Operand& operand) {
  return letter == 'D' || letter == 'd' || letter == 'e' || (letter == 'a' && operand.bytes == 8);
}

ClusterUndefined& of_cluster(const Warp& warp) {
  std::shared_ptr<ClusterUndefined>& all = warp.block->cluster->undefined;
  if (!all) all = std::make_shared<ClusterUndefined>();
  return *all;
}

WarpUndefined& of_warp(Warp& warp) {
  if (!warp.undefined) {
    warp.undefined = std::make_shared<WarpUndefined>();
    WarpUndefined& own = *warp.undefined;
    const auto bytes = static_cast<size_t>(warp.machine->program->register_bytes);
    own.storage.resize(bytes + 128);
    own.bits = own.storage.data() + (128 - reinterpret_cast<uintptr_t>(own.storage.data()) % 128) % 128;
    own.live.resize(bytes / 128);
    own.origin.resize(bytes / 128 * kLanes);
  }
  return *warp.undefined;
}

void update_tracking(Warp& warp) { warp.tracking = warp.undefined->cells > 0 || warp.undefined->carry; }

uint32_t new_origin(const Warp& warp, const Origin& origin) {
  ClusterUndefined& all = of_cluster(warp);
  const uint64_t key = (origin.address + origin.rank) * 0x9e3779b97f4a7c15u ^
                       static_cast<uint64_t>(origin.pc) << 8 ^ static_cast<uint64_t>(origin.space) ^
                       static_cast<uint64_t>(origin.overflow) << 7;
  const auto [place, added] = all.known.try_emplace(key, 0);
  if (!added) return place->second;
  if (all.origins.size() < kMostOrigins) all.origins.push_back(origin);
  return place->second = static_cast<uint32_t>(all.origins.size() - 1);
}

// ---- memory

struct Place {
  WrittenBytes bytes;  // that it is one of, and which; of none where it lies outside
  uint64_t offset = 0;
  Space space = Space::none;
  uint64_t address = 0;
  uint32_t rank = 0;
  uint64_t key = 0;
};

Place place_in_shared(const Block& block, uint32_t offset) {
  return {written_in(const_cast<Block&>(block)), offset, Space::shared, offset, block.rank,
          uint64_t{block.rank} << 32 | offset};
}

Place place_of(const Warp& warp, Space space, uint64_t address, int lane) {
  if (space == Space::none) {
    const uint64_t window = address >> 32 << 32;
    space = window == kSharedWindow  ? Space::shared
            : window == kLocalWindow ? Space::local
            : window == kParamWindow ? Space::param
                                     : Space::global;
    if (space != Space::global) address &= space == Space::local ? kLocalOffset : 0xffffffffu;
  }
  if (space == Space::shared) {
    uint32_t offset;
    const Block& block = shared_block(warp, static_cast<uint32_t>(address), lane, offset);
    return place_in_shared(block, offset);
  }
  if (space == Space::local) {
    const uint64_t own = warp.machine->launch->local_bytes;
    const WrittenBytes bytes = warp.local_written.part(static_cast<uint64_t>(lane) * own, own);
    const uint64_t thread = uint64_t{warp.block->rank} << 10 | static_cast<uint64_t>(warp.id * kLanes + lane);
    return {bytes, address, space, address, warp.block->rank, (thread + 1) << 40 | address};
  }
  Place place;
  place.space = space;
  place.address = address;
  if (space != Space::global) return place;
  const Allocation* allocation = find_allocation(*warp.machine->launch, address);
  if (!allocation) return place;
  place.bytes = written_in(*allocation);
  place.offset = address - allocation->address;
  return place;
}

uint32_t origin_at(const Warp& warp, const Place& place) {
  const uint8_t written = place.bytes.at(place.offset);
  if (written == kWritten) return 0;
  if (written == kHoldsUndefined) {
    const auto& holding = of_cluster(warp).holding;
    const auto found = holding.find(place.key);
    if (found != holding.end()) return found->second;
  }
  return new_origin(warp, {warp.pc, place.space, place.address, place.rank});
}

void put_undefined(const Warp& warp, const Place& place, uint32_t origin) {
  if (!place.bytes.holds(place.offset)) return;
  place.bytes.put(place.offset, kHoldsUndefined);
  of_cluster(warp).holding[place.key] = origin;
}

// ---- registers

struct Lanes {  // an operand's shadow
  uint64_t bits[kLanes] = {};
  uint32_t origin[kLanes] = {};
};

bool is_live(const WarpUndefined& own, const Operand& operand) {
  return operand.slot >= 0 && own.live[static_cast<size_t>(operand.slot / 128)];
}

uint64_t bits_of(const WarpUndefined& own, const Operand& operand, bool wide, int lane) {
  if (!is_live(own, operand)) return 0;
  const uint8_t* cells = own.bits + operand.slot;
  if (wide) {
    uint64_t bits;
    std::memcpy(&bits, cells + lane * 8, 8);
    return bits;
  }
  uint32_t bits;
  std::memcpy(&bits, cells + lane * 4, 4);
  return bits;
}

// A register that was never set has no reader yet: it is the first one to read it.
uint32_t origin_of(const Warp& warp, const WarpUndefined& own, const Operand& operand, int lane) {
  const uint32_t origin = own.origin[static_cast<size_t>(operand.slot / 128 * kLanes + lane)];
  const Origin& known = of_cluster(warp).origins[origin];
  if (known.pc >= 0) return origin;
  return new_origin(warp, {warp.pc, known.space, known.address, known.rank});
}

// `indexes`: those that are no index any more if it did not fit are left out.
Lanes lanes_of(const Warp& warp, const Operand& operand, char letter, uint64_t mask = kAllBits,
               bool indexes = false) {
  Lanes lanes;
  const WarpUndefined& own = *warp.undefined;
  if (!is_live(own, operand)) return lanes;
  for_lanes(warp.active, [&](int l) {
    lanes.bits[l] = bits_of(own, operand, is_wide(letter, operand), l) & mask;
    if (!lanes.bits[l]) return;
    lanes.origin[l] = origin_of(warp, own, operand, l);
    if (!indexes && of_cluster(warp).origins[lanes.origin[l]].overflow) lanes.bits[l] = lanes.origin[l] = 0;
  });
  return lanes;
}

void set_lanes(Warp& warp, const Operand& operand, char letter, const Lanes& lanes) {
  if (operand.slot < 0) return;
  WarpUndefined& own = of_warp(warp);
  const auto cell = static_cast<size_t>(operand.slot / 128);
  const bool wide = is_wide(letter, operand);
  uint64_t any = 0;
  for (int l = 0; l < kLanes; ++l) {
    uint8_t* at = own.bits + operand.slot + l * (wide ? 8 : 4);
    if (warp.active >> l & 1) {
      std::memcpy(at, &lanes.bits[l], wide ? 8 : 4);
      own.origin[cell * kLanes + static_cast<size_t>(l)] = lanes.origin[l];
    }
    uint64_t bits = 0;
    std::memcpy(&bits, at, wide ? 8 : 4);
    any |= bits;
  }
  own.cells += (any != 0) - own.live[cell];
  own.live[cell] = any != 0;
  update_tracking(warp);
}

void clear_results(Warp& warp, const Instruction& instruction) {
  for (int k = 0; k < instruction.count; ++k)
    if (is_destination(instruction.access[k]) && is_live(*warp.undefined, instruction.operands[k]))
      set_lanes(warp, instruction.operands[k], instruction.access[k], Lanes{});
}

void require_defined(const Warp& warp, const Operand& operand, char letter, Use use) {
  if (!is_live(*warp.undefined, operand)) return;
  const Lanes lanes = lanes_of(warp, operand, letter, kAllBits, use == Use::address);
  for_lanes(warp.active, [&](int l) {
    if (lanes.bits[l]) undefined_matters(warp, l, lanes.origin[l], use);
  });
}

void require_all_defined(const Warp& warp, const Instruction& instruction, Use use) {
  for (int k = 0; k < instruction.count; ++k)
    if (!is_destination(instruction.access[k]))
      require_defined(warp, instruction.operands[k], instruction.access[k],
                      instruction.access[k] == 'a' ? Use::address : use);
}

const Following& following_of(const Warp& warp, const Instruction& instruction) {
  return warp.machine->prepared->following[static_cast<size_t>(&instruction - warp.machine->code)];
}

// ---- arithmetic

uint64_t low_bytes(int bytes) { return bytes >= 8 ? kAllBits : (uint64_t{1} << bytes * 8) - 1; }

void merge(Lanes& into, const Lanes& from, uint64_t mask, uint64_t becomes) {
  for (int l = 0; l < kLanes; ++l)
    if (from.bits[l] & mask) {
      into.bits[l] |= becomes;
      if (!into.origin[l]) into.origin[l] = from.origin[l];
    }
}

void follow_lanewise(Warp& warp, const Instruction& instruction, const Following& following) {
  Lanes result;
  int sources = 0;
  for (int k = 0; k < instruction.count; ++k) {
    const char letter = instruction.access[k];
    if (is_destination(letter)) continue;
    ++sources;
    const bool narrow = letter == 'w' || letter == 'f';
    const Lanes source =
        lanes_of(warp, instruction.operands[k], letter,
                 narrow ? low_bytes(std::min<int>(following.bytes, 4)) : kAllBits, following.indexes);
    if (following.how == Follow::halves) {
      merge(result, source, 0xffff, 0xffff);
      merge(result, source, 0xffff0000, 0xffff0000);
    } else if (following.how == Follow::pack_halves) {
      merge(result, source, kAllBits, sources == 1 ? 0xffff0000 : 0xffff);
    } else if (following.how == Follow::pack_bytes) {
      merge(result, source, kAllBits, sources == 1 ? 0xff00 : 0xff);
    } else if (following.how == Follow::to_bytes) {
      merge(result, source, 0xffff, 0xff);
      merge(result, source, 0xffff0000, 0xff00);
    } else if (following.how == Follow::from_bytes) {
      merge(result, source, 0xff, 0xffff);
      merge(result, source, 0xff00, 0xffff0000);
    } else {
      merge(result, source, kAllBits, kAllBits);
    }
  }
  WarpUndefined& own = *warp.undefined;
  if (following.reads_carry)
    for_lanes(warp.active & own.carry, [&](int l) {
      result.bits[l] = kAllBits;
      if (!result.origin[l]) result.origin[l] = own.carry_origin;
    });
  if (following.writes_carry) {
    own.carry &= ~warp.active;
    for_lanes(warp.active, [&](int l) {
      if (!result.bits[l]) return;
      own.carry |= 1u << l;
      own.carry_origin = result.origin[l];
    });
    update_tracking(warp);
  }
  for (int k = 0; k < instruction.count; ++k)
    if (is_destination(instruction.access[k]))
      set_lanes(warp, instruction.operands[k], instruction.access[k], result);
}

// The value of a source, all ones or zeros for a predicate.
uint64_t value_of(const Warp& warp, const Operand& operand, char letter, int lane) {
  if (letter == 'p') return Source<bool>(warp, operand)[lane] ? kAllBits : 0;
  return letter == 'd' ? source_cells<uint64_t>(warp, operand)[lane]
                       : source_cells<uint32_t>(warp, operand)[lane];
}

// A bit of the result is undefined when it is not the same for all values of the undefined bits.
void follow_logic(Warp& warp, const Instruction& instruction) {
  const std::string& name = warp.machine->name_of(instruction);
  const int inputs = name[0] == 'n' ? 1 : name[0] == 'l' ? 3 : 2;
  uint32_t table = name[0] == 'a' ? 0xc0 : name[0] == 'o' ? 0xfc : name[0] == 'x' ? 0x3c : 0x0f;
  Lanes source[3], result;
  for (int k = 0; k < inputs; ++k)
    source[k] = lanes_of(warp, instruction.operands[1 + k], instruction.access[1 + k]);
  for_lanes(warp.active, [&](int l) {
    if (inputs == 3) table = source_cells<uint32_t>(warp, instruction.operands[4])[l];
    uint64_t value[3] = {}, ever = 0, always = kAllBits;
    for (int k = 0; k < inputs; ++k)
      value[k] = value_of(warp, instruction.operands[1 + k], instruction.access[1 + k], l);
    for (uint32_t choice = 0; choice < 8; ++choice) {
      uint64_t in[3], out = 0;
      for (int k = 0; k < 3; ++k)
        in[k] = choice >> k & 1 ? value[k] | source[k].bits[l] : value[k] & ~source[k].bits[l];
      for (uint32_t row = 0; row < 8; ++row)
        if (table >> row & 1)
          out |= (row & 4 ? in[0] : ~in[0]) & (row & 2 ? in[1] : ~in[1]) & (row & 1 ? in[2] : ~in[2]);
      ever |= out;
      always &= out;
    }
    result.bits[l] = ever & ~always;
    for (int k = inputs; k-- > 0;)
      if (source[k].bits[l]) result.origin[l] = source[k].origin[l];
  });
  if (instruction.access[0] == 'P')
    for (uint64_t& bits : result.bits) bits = bits ? kAllBits : 0;
  set_lanes(warp, instruction.operands[0], instruction.access[0], result);
}

// ---- operations that move bits are executed once more, on the shadow

constexpr int kMostMoved = 8;  // operands of such an operation

class OnShadow {
 public:
  OnShadow(Warp& warp, const Instruction& instruction) : warp_(warp), instruction_(instruction) {
    for (int k = 0; k < instruction.count; ++k) {
      operands_[k] = instruction.operands[k];
      if (operands_[k].slot == kAbsent) continue;
      operands_[k].slot = k * 256;
      std::memset(scratch_ + k * 256, 0, 256);
    }
  }
  void put_value(int k) {
    const Operand& operand = instruction_.operands[k];
    std::memcpy(scratch_ + k * 256, source_cells<uint8_t>(warp_, operand),
                is_wide(instruction_.access[k], operand) ? 256 : 128);
  }
  template <class T>
  void put(int k, const T* values) {
    operands_[k].offset = 0;  // the negation of a predicate
    const bool wide = is_wide(instruction_.access[k], instruction_.operands[k]);
    for (int l = 0; l < kLanes; ++l)
      std::memcpy(scratch_ + k * 256 + l * (wide ? 8 : 4), &values[l], wide ? 8 : 4);
  }
  void execute() {
    Instruction copy = instruction_;
    copy.operands = operands_;
    copy.flags &= ~(kSignedIndex | kUnsignedIndex);
    const Restore restore{warp_, std::exchange(warp_.registers, scratch_)};
    copy.function(warp_, copy);
  }
  uint64_t result(int k, int lane) const {
    uint64_t bits = 0;
    const bool wide = is_wide(instruction_.access[k], instruction_.operands[k]);
    std::memcpy(&bits, scratch_ + k * 256 + lane * (wide ? 8 : 4), wide ? 8 : 4);
    return bits;
  }

 private:
  struct Restore {
    Warp& warp;
    uint8_t* registers;
    ~Restore() { warp.registers = registers; }
  };
  Warp& warp_;
  const Instruction& instruction_;
  Operand operands_[kMostMoved];
  alignas(128) uint8_t scratch_[kMostMoved * 256];
};

void follow_moves(Warp& warp, const Instruction& instruction, uint32_t controls, bool indexes = false) {
  OnShadow shadow(warp, instruction);
  Lanes unknown;  // where the operation puts bits nobody knows
  uint32_t origin[kLanes] = {};
  for (int k = 0; k < instruction.count; ++k) {
    const char letter = instruction.access[k];
    if (is_destination(letter)) continue;
    const Lanes source = lanes_of(warp, instruction.operands[k], letter, kAllBits, indexes);
    if (controls >> k & 1) {
      shadow.put_value(k);
      merge(unknown, source, kAllBits, kAllBits);
      continue;
    }
    shadow.put(k, source.bits);
    for (int l = 0; l < kLanes; ++l)
      if (!origin[l]) origin[l] = source.origin[l];
  }
  shadow.execute();
  for (int k = 0; k < instruction.count; ++k) {
    if (!is_destination(instruction.access[k])) continue;
    Lanes result = unknown;
    for_lanes(warp.active, [&](int l) {
      result.bits[l] |= shadow.result(k, l);
      if (!result.origin[l] && result.bits[l]) result.origin[l] = origin[l];
    });
    set_lanes(warp, instruction.operands[k], instruction.access[k], result);
  }
}

void follow_shuffle(Warp& warp, const Instruction& instruction) {  // d|p, a, b, c, members
  for (int k = 3; k < instruction.count; ++k)
    require_defined(warp, instruction.operands[k], instruction.access[k], Use::collective);
  const Lanes source = lanes_of(warp, instruction.operands[2], instruction.access[2]);
  Lanes result;
  OnShadow shadow(warp, instruction);
  for (int k = 3; k < instruction.count; ++k) shadow.put_value(k);
  shadow.put(2, source.bits);
  shadow.execute();
  for (int l = 0; l < kLanes; ++l) result.bits[l] = shadow.result(0, l);
  uint64_t origins[kLanes];
  std::copy_n(source.origin, kLanes, origins);
  shadow.put(2, origins);
  shadow.execute();
  for (int l = 0; l < kLanes; ++l) result.origin[l] = static_cast<uint32_t>(shadow.result(0, l));
  set_lanes(warp, instruction.operands[0], instruction.access[0], result);
  set_lanes(warp, instruction.operands[1], instruction.access[1], Lanes{});
}

void follow_transpose(Warp& warp, const Instruction& instruction) {
  const Lanes source = lanes_of(warp, instruction.operands[1], instruction.access[1]);
  Lanes result;
  for (int l = 0; l < kLanes; ++l)
    for (int half = 0; half < 2; ++half) {
      const TileHalf from = transposed(l, half);
      const uint64_t bits = source.bits[from.lane] >> 16 * from.half & 0xffff;
      if (!bits) continue;
      result.bits[l] |= bits << 16 * half;
      if (!result.origin[l]) result.origin[l] = source.origin[from.lane];
    }
  set_lanes(warp, instruction.operands[0], instruction.access[0], result);
}

void follow_collective(Warp& warp, const Instruction& instruction) {
  Lanes result;
  for (int k = 0; k < instruction.count; ++k) {
    if (is_destination(instruction.access[k]) && instruction.access[k] != 'U') continue;
    const Lanes source = lanes_of(warp, instruction.operands[k], instruction.access[k]);
    for (int l = 0; l < kLanes; ++l)
      if (source.bits[l])
        for (int to = 0; to < kLanes; ++to) result.bits[to] = kAllBits, result.origin[to] = source.origin[l];
  }
  for (int k = 0; k < instruction.count; ++k)
    if (is_destination(instruction.access[k]))
      set_lanes(warp, instruction.operands[k], instruction.access[k], result);
}

bool starts(const std::string& name, const char* prefix) { return name.rfind(prefix, 0) == 0; }

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts{""};
  for (const char c : name)
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

// The registers of a product of matrices: D, A, B, C, laid out as fragment.hpp says. Of wmma's halves, A and
// B have eight registers, of which the first ones matter.
struct ProductShape {
  int m = 0, n = 0, k = 0;
  int d = 0, a = 0, b = 0, c = 0;  // registers
  bool sparse = false;             // half of A is there; metadata and selector come last
  bool halves(int registers) const { return registers * 2 * kLanes == m * n; }
  int row(int pair, int lane) const { return pair % (m / 8) * 8 + lane / 4; }
  int column(int pair, int lane) const { return pair / (m / 8) * 8 + lane % 4 * 2; }
  int row_of_a(int q, int lane) const { return q % (m / 8) * 8 + lane / 4; }
  int column_of_b(int q, int lane, int per_register) const {
    const int tiles = k / (4 * per_register);
    return q % (n / 8 * tiles) / tiles * 8 + lane / 4;
  }
};
constexpr int kMostAcross = 32;  // rows and columns of D

ProductShape product_shape(const Instruction& instruction, const std::string& name) {
  ProductShape shape;
  for (const std::string& part : parts_of(name))
    if (std::sscanf(part.c_str(), "m%dn%dk%d", &shape.m, &shape.n, &shape.k) == 3) break;
  while (is_destination(instruction.access[shape.d])) ++shape.d;
  const bool held = starts(name, "wmma.") && name.find("bf16") == std::string::npos &&
                    name.find(".f") != std::string::npos && shape.k == 16;
  shape.c = held ? instruction.count - shape.d - 16 : shape.d;
  shape.sparse = starts(name, "mma.sp");
  const int factors = instruction.count - shape.d - shape.c - (shape.sparse ? 2 : 0);
  const int rows = shape.sparse ? shape.m / 2 : shape.m;  // as many registers as dense ones have
  shape.a = factors * (held ? 1 : rows) / (held ? 2 : rows + shape.n);
  shape.b = factors - shape.a;
  return shape;
}

// A row of A or of its metadata makes its row of D undefined, a column of B its column, an element of C its
// element.
void follow_matrix(Warp& warp, const Instruction& instruction) {
  const std::string& name = warp.machine->name_of(instruction);
  const ProductShape shape = product_shape(instruction, name);
  uint32_t row[kMostAcross] = {}, column[kMostAcross] = {}, element[kMostAcross][kMostAcross] = {};
  const auto visit = [&](int first, int count, auto f) {
    for (int q = 0; q < count; ++q) {
      const Operand& operand = instruction.operands[first + q];
      const Lanes source = lanes_of(warp, operand, instruction.access[first + q]);
      for (int l = 0; l < kLanes; ++l)
        if (source.bits[l]) f(q, l, source);
    }
  };
  visit(shape.d, shape.a, [&](int q, int l, const Lanes& a) { row[shape.row_of_a(q, l)] = a.origin[l]; });
  const int held = starts(name, "wmma.") && shape.b == 8 && shape.a == 8;
  const int per_register = held ? 2 : std::max(1, shape.n * shape.k / (kLanes * shape.b));
  visit(shape.d + shape.a, shape.b,
        [&](int q, int l, const Lanes& b) { column[shape.column_of_b(q, l, per_register)] = b.origin[l]; });
  if (shape.sparse) {
    const Operand* metadata = instruction.operands + shape.d + shape.a + shape.b + shape.c;
    const SparseShape sparse{32 / per_register, shape.k};
    undefined_rows(warp, metadata[0], selector_of(warp, metadata[1], sparse), sparse, row);
  }
  const bool c_in_halves = shape.halves(shape.c), d_in_halves = shape.halves(shape.d);
  visit(shape.d + shape.a + shape.b, shape.c, [&](int q, int l, const Lanes& c) {
    const int pair = c_in_halves ? q : q / 2;
    for (int half = 0; half < 2; ++half)
      if (c_in_halves ? (c.bits[l] >> 16 * half & 0xffff) != 0 : half == q % 2)
        element[shape.row(pair, l)][shape.column(pair, l) + half] = c.origin[l];
  });
  for (int q = 0; q < shape.d; ++q) {
    Lanes result;
    for (int l = 0; l < kLanes; ++l) {
      const int pair = d_in_halves ? q : q / 2, r = shape.row(pair, l);
      for (int half = 0; half < 2; ++half) {
        if (!d_in_halves && half != q % 2) continue;
        const int at = shape.column(pair, l) + half;
        const uint32_t origin = row[r] ? row[r] : column[at] ? column[at] : element[r][at];
        if (!origin) continue;
        result.bits[l] |= d_in_halves ? uint64_t{0xffff} << 16 * half : kAllBits;
        result.origin[l] = origin;
      }
    }
    set_lanes(warp, instruction.operands[q], instruction.access[q], result);
  }
}

// ---- stores

// Shared and local memory take over what is undefined; global memory must not.
void execute_store(Warp& warp, const Instruction& instruction, Space space, int element_bytes) {
  require_defined(warp, instruction.operands[0], 'a', Use::address);
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  std::vector<Lanes> values;
  for (int k = 1; k < instruction.count; ++k)
    values.push_back(
        lanes_of(warp, instruction.operands[k], instruction.access[k], low_bytes(element_bytes)));
  instruction.function(warp, instruction);
  for_lanes(warp.active, [&](int l) {
    for (size_t k = 0; k < values.size(); ++k)
      for (int byte = 0; byte < element_bytes; ++byte) {
        if (!(values[k].bits[l] >> byte * 8 & 0xff)) continue;
        const uint64_t at = address[l] + k * static_cast<size_t>(element_bytes) + static_cast<uint64_t>(byte);
        const Place place = place_of(warp, space, at, l);
        if (place.space == Space::global)
          undefined_stored(warp, l, values[k].origin[l]);
        else
          put_undefined(warp, place, values[k].origin[l]);
      }
  });
}

constexpr int kTransposed = 2, kCountShift = 4;  // of stmatrix, as in matrix.cpp

void execute_store_tiles(Warp& warp, const Instruction& instruction, Space space) {
  require_defined(warp, instruction.operands[0], 'a', Use::address);
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  const int tiles = instruction.variant >> kCountShift;
  std::vector<Lanes> values;
  for (int k = 0; k < tiles; ++k) values.push_back(lanes_of(warp, instruction.operands[1 + k], 'w'));
  instruction.function(warp, instruction);
  for (int tile = 0; tile < tiles; ++tile)
    for (int l = 0; l < kLanes; ++l)
      for (int byte = 0; byte < 4; ++byte) {
        const Lanes& value = values[static_cast<size_t>(tile)];
        if (!(value.bits[l] >> byte * 8 & 0xff)) continue;
        const bool transposed = (instruction.variant & kTransposed) != 0;
        const int row = transposed ? l % 4 * 2 + byte / 2 : l / 4;
        const int at = transposed ? l / 4 * 2 + byte % 2 : l % 4 * 4 + byte;
        put_undefined(warp, place_of(warp, space, address[tile * 8 + row] + static_cast<uint64_t>(at), l),
                      value.origin[l]);
      }
}

bool touches_undefined(const Warp& warp, const Instruction& instruction, const Following& following) {
  const WarpUndefined& own = *warp.undefined;
  for (int k = 0; k < instruction.count; ++k)
    if (is_live(own, instruction.operands[k])) return true;
  return own.carry && (following.reads_carry || following.writes_carry);
}

Space space_named(const std::string& name) {
  for (const auto& [part, space] : {std::pair<const char*, Space>{".global", Space::global},
                                    {".shared", Space::shared},
                                    {".local", Space::local},
                                    {".param", Space::param}})
    if (name.find(part) != std::string::npos) return space;
  return Space::none;
}

}  // namespace

Code::Code() = default;
Code::~Code() = default;

// ---- names

namespace {

// Bytes of a type such as .f16x2, 0 when it is none.
int type_bytes(const std::string& part) {
  size_t digit = 0;
  while (digit < part.size() && (part[digit] < '0' || part[digit] > '9')) ++digit;
  if (digit == 0 || digit > 2 || digit == part.size()) return 0;
  int bits = 0;
  while (digit < part.size() && part[digit] >= '0' && part[digit] <= '9')
    bits = bits * 10 + part[digit++] - '0';
  const int elements = digit + 1 < part.size() && part[digit] == 'x' ? part[digit + 1] - '0' : 1;
  return bits % 8 ? 0 : bits / 8 * elements;
}

bool is_integer(const std::string& part) {
  return part.size() > 1 && (part[0] == 'u' || part[0] == 's' || part[0] == 'b') && part[1] >= '0' &&
         part[1] <= '9';
}

bool is_tiny_pair(const std::string& part) { return part == "e4m3x2" || part == "e5m2x2"; }

}  // namespace

Following following(const Operation& operation, int operands) {
  const std::string& name = operation.name;
  const std::vector<std::string> parts = parts_of(name);
  const std::string &base = parts[0], &last = parts.back();
  const bool addressed = operation.signature.find('a') != std::string::npos;
  Following result;
  if (const int bytes = type_bytes(last)) result.bytes = static_cast<uint8_t>(bytes);
  if (base == "prefetch" || base == "prefetchu" || base == "applypriority" || base == "discard" ||
      starts(name, "cp.async.bulk.prefetch")) {
    result.how = Follow::ignored;
  } else if (base == "ld" || base == "ldu") {
    result.how = Follow::load;
  } else if (base == "st" && operands >= 2 && operation.signature[0] == 'a' && parts[1] != "async" &&
             parts[1] != "bulk") {
    result.how = Follow::store;
  } else if (base == "ldmatrix") {
    result.how = Follow::load_tiles;
  } else if (starts(name, "wmma.store.")) {
    result.how = Follow::store_fragment;
  } else if (base == "stmatrix") {
    result.how = Follow::store_tiles;
  } else if (starts(name, "tcgen05.st.")) {
    result.how = Follow::store_tensor;
  } else if (addressed) {
    result.how = Follow::uses;
    if (base == "atom" || base == "red") result.use = Use::updated;
  } else if (base == "vote" || base == "match") {
    result.how = Follow::uses;
    result.use = Use::collective;
  } else if (base == "shfl") {
    result.how = Follow::shuffle;
  } else if (base == "movmatrix") {
    result.how = Follow::transpose;
  } else if (starts(name, "wgmma.mma_async")) {
    result.how = Follow::group_product;
  } else if (base == "mma" &&
             (name.find(".m16n8") != std::string::npos ||
              (name.find(".m8n8") != std::string::npos && name.find(".f16") == std::string::npos))) {
    result.how = Follow::matrix;
  } else if (starts(name, "wmma.mma.")) {
    result.how = Follow::matrix;
  } else if (operation.kind == Kind::member || operation.kind == Kind::aligned) {
    result.how = Follow::collective;
  } else if (base == "mov" || base == "brev" ||
             (base == "cvt" && parts.size() == 3 && is_integer(parts[1]) && is_integer(last))) {
    result.how = Follow::moves;
  } else if (base == "shl" || base == "shr") {
    result.how = Follow::moves, result.controls = 1u << 2;
  } else if (base == "shf" || base == "prmt" || base == "selp" || base == "slct") {
    result.how = Follow::moves, result.controls = 1u << 3;
  } else if (base == "bfe") {
    result.how = Follow::moves, result.controls = 1u << 2 | 1u << 3;
  } else if (base == "bfi") {
    result.how = Follow::moves, result.controls = 1u << 3 | 1u << 4;
  } else if (base == "and" || base == "or" || base == "xor" || base == "not" || name == "lop3.b32") {
    result.how = Follow::logic;
  } else if (base != "cvt" && starts(base, "set") == false && last.size() > 2 && last != "f32x2" &&
             last.compare(last.size() - 2, 2, "x2") == 0) {
    result.how = Follow::halves;
  } else if (base == "cvt" && parts.size() > 2 && last == "f32" &&
             (parts[parts.size() - 2] == "f16x2" || parts[parts.size() - 2] == "bf16x2")) {
    result.how = Follow::pack_halves;
  } else if (base == "cvt" && parts.size() > 2 && is_tiny_pair(parts[parts.size() - 2])) {
    result.how = last == "f32" ? Follow::pack_bytes : Follow::to_bytes;
  } else if (base == "cvt" && is_tiny_pair(last)) {
    result.how = Follow::from_bytes;
  }
  result.writes_carry = std::find(parts.begin(), parts.end(), "cc") != parts.end();
  for (const char* kept : {"add", "sub", "mul", "mad", "shl", "mov", "cvt", "cvta"})
    result.indexes |= base == kept;
  result.reads_carry = base == "addc" || base == "subc" || base == "madc";
  if (operands > kMostMoved && result.how == Follow::moves) result.how = Follow::lanewise;
  return result;
}

// ---- the scheduler's side

void start_undefined(Warp& warp) {
  Lanes all;
  const uint32_t active = warp.active;
  warp.active = warp.exists;
  for (const Operand& unset : warp.machine->program->unset) {
    const uint32_t origin =
        new_origin(warp, {-1, Space::none, static_cast<uint64_t>(unset.slot), warp.block->rank});
    std::fill_n(all.bits, kLanes, kAllBits);
    std::fill_n(all.origin, kLanes, origin);
    set_lanes(warp, unset, unset.bytes == 8 ? 'D' : 'W', all);
  }
  warp.active = active;
}

void check_guard(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  if (instruction.guard == kNoGuard) return;
  const Operand guard{instruction.guard, 4, 0};
  for_lanes(lanes, [&](int l) {
    if (bits_of(*warp.undefined, guard, false, l))
      undefined_matters(warp, l, origin_of(warp, *warp.undefined, guard, l), Use::condition);
  });
}

void follow_control(Warp& warp, const Instruction& instruction) {
  require_all_defined(warp, instruction, Use::operand);
  clear_results(warp, instruction);
}

void follow_move(Warp& warp, const Instruction& instruction) { follow_moves(warp, instruction, 0); }

void execute_tracked(Warp& warp, const Instruction& instruction) {
  const Following& following = following_of(warp, instruction);
  if (!touches_undefined(warp, instruction, following)) return instruction.function(warp, instruction);
  const auto space = [&] { return space_named(warp.machine->name_of(instruction)); };
  switch (following.how) {
    case Follow::store:
      return execute_store(warp, instruction, space(), following.bytes);
    case Follow::store_tiles:
      return execute_store_tiles(warp, instruction, space());
    case Follow::load:
    case Follow::load_tiles:
    case Follow::uses:
      require_all_defined(warp, instruction, following.use);
      clear_results(warp, instruction);
      break;
    case Follow::store_fragment:  // the rest when it is executed
      require_defined(warp, instruction.operands[0], 'a', Use::address);
      require_defined(warp, instruction.operands[instruction.count - 1],
                      instruction.access[instruction.count - 1], Use::address);
      break;
    case Follow::store_tensor:  // the rest when it is executed
      require_defined(warp, instruction.operands[0], 'a', Use::address);
      break;
    case Follow::group_product:  // the rest when it is issued
      for (int k = 0; k < instruction.count; ++k)
        if (instruction.access[k] == 'd' || instruction.access[k] == 'p')
          require_defined(warp, instruction.operands[k], instruction.access[k], Use::operand);
      break;
    case Follow::moves:
      follow_moves(warp, instruction, following.controls, following.indexes);
      break;
    case Follow::logic:
      follow_logic(warp, instruction);
      break;
    case Follow::shuffle:
      follow_shuffle(warp, instruction);
      break;
    case Follow::transpose:
      follow_transpose(warp, instruction);
      break;
    case Follow::collective:
      follow_collective(warp, instruction);
      break;
    case Follow::matrix:
      follow_matrix(warp, instruction);
      break;
    case Follow::ignored:
      break;
    case Follow::lanewise:
    case Follow::halves:
    case Follow::pack_halves:
    case Follow::pack_bytes:
    case Follow::to_bytes:
    case Follow::from_bytes:
      follow_lanewise(warp, instruction, following);
      break;
  }
  instruction.function(warp, instruction);
}

// ---- the side of operations

void loaded_undefined(Warp& warp, const Instruction& instruction, Space space, const uint64_t* address,
                      uint32_t element_bytes, bool is_signed) {
  warp.read_unwritten = false;
  of_warp(warp);
  for (int k = 0; k < instruction.variant; ++k) {
    const Operand& destination = instruction.operands[k];
    if (destination.slot == kAbsent) continue;
    Lanes result;
    for_lanes(warp.active, [&](int l) {
      for (uint32_t byte = 0; byte < element_bytes; ++byte) {
        const uint64_t at = address[l] + static_cast<uint32_t>(k) * element_bytes + byte;
        const uint32_t origin = origin_at(warp, place_of(warp, space, at, l));
        if (!origin) continue;
        const bool extends = is_signed && byte + 1 == element_bytes;
        result.bits[l] |= extends ? kAllBits << byte * 8 : uint64_t{0xff} << byte * 8;
        if (!result.origin[l]) result.origin[l] = origin;
      }
    });
    set_lanes(warp, destination, instruction.access[k], result);
  }
}

void loaded_undefined_tiles(Warp& warp, const Instruction& instruction, Space space, const uint64_t* rows,
                            int tiles, bool transposed) {
  warp.read_unwritten = false;
  of_warp(warp);
  for (int tile = 0; tile < tiles; ++tile) {
    Lanes result;
    for (int l = 0; l < kLanes; ++l)
      for (int byte = 0; byte < 4; ++byte) {
        const int row = transposed ? l % 4 * 2 + byte / 2 : l / 4;
        const int at = transposed ? l / 4 * 2 + byte % 2 : l % 4 * 4 + byte;
        const uint64_t address = rows[tile * 8 + row] + static_cast<uint64_t>(at);
        const uint32_t origin = origin_at(warp, place_of(warp, space, address, l));
        if (!origin) continue;
        result.bits[l] |= uint64_t{0xff} << byte * 8;
        if (!result.origin[l]) result.origin[l] = origin;
      }
    set_lanes(warp, instruction.operands[tile], 'W', result);
  }
}

uint32_t origin_in_memory(const Warp& warp, Space space, uint64_t address, uint64_t bytes, int lane) {
  for (uint64_t k = 0; k < bytes; ++k)
    if (const uint32_t origin = origin_at(warp, place_of(warp, space, address + k, lane))) return origin;
  return 0;
}

uint32_t origin_in_shared(const Warp& warp, const Block& block, uint32_t offset, uint64_t bytes) {
  if (written_in(const_cast<Block&>(block)).all(offset, bytes)) return 0;
  for (uint64_t k = 0; k < bytes; ++k)
    if (const uint32_t origin = origin_at(warp, place_in_shared(block, offset + static_cast<uint32_t>(k))))
      return origin;
  return 0;
}

uint32_t origin_in_tensor_memory(const Warp& warp, uint64_t address) {
  return new_origin(warp, {warp.pc, Space::tensor, address, warp.block->rank});
}

uint32_t origin_in_register(const Warp& warp, const Operand& operand, int lane, bool wide) {
  if (!warp.tracking || !bits_of(*warp.undefined, operand, wide, lane)) return 0;
  return origin_of(warp, *warp.undefined, operand, lane);
}

uint64_t undefined_bits(const Warp& warp, const Operand& operand, int lane, bool wide) {
  return warp.tracking ? bits_of(*warp.undefined, operand, wide, lane) : 0;
}

void stored_undefined(const Warp& warp, Space space, uint64_t address, int lane, uint32_t origin) {
  const Place place = place_of(warp, space, address, lane);
  if (place.space == Space::global) undefined_matters(warp, lane, origin, Use::stored);
  put_undefined(warp, place, origin);
}

void set_undefined(Warp& warp, const Operand& operand, int lane, uint64_t bits, uint32_t origin, bool wide) {
  const uint64_t old = bits_of(of_warp(warp), operand, wide, lane);
  if (!old && !origin) return;
  Lanes lanes;
  lanes.bits[lane] = origin ? old | bits : old & ~bits;
  lanes.origin[lane] = origin ? origin : origin_of(warp, *warp.undefined, operand, lane);
  const uint32_t active = std::exchange(warp.active, 1u << lane);
  set_lanes(warp, operand, wide ? 'D' : 'W', lanes);
  warp.active = active;
}

void copied_undefined(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint64_t from,
                      const Block* from_block) {
  for (uint32_t k = 0; k < bytes; ++k) {
    const Place source = from_block ? place_in_shared(*from_block, static_cast<uint32_t>(from) + k)
                                    : place_of(warp, Space::global, from + k, 0);
    if (const uint32_t origin = origin_at(warp, source))
      put_undefined(warp, place_in_shared(block, offset + k), origin);
  }
}

namespace {

Fault undefined_use(const Warp& warp, int lane, uint32_t origin, Use use) {
  const Origin& from = of_cluster(warp).origins[origin];
  uint64_t address = from.address;
  if (from.space == Space::shared && from.rank != warp.block->rank)
    address |= (uint64_t{from.rank} + 1) << kRankShift;
  Fault fault;
  fault.kind = from.overflow ? FaultKind::index_overflow : FaultKind::uninitialised;
  fault.pc = warp.pc;
  fault.other_pc = from.pc == warp.pc ? -1 : from.pc;
  fault.block = warp.block->id;
  fault.warp = warp.id;
  fault.lane = lane;
  fault.address = address;
  fault.space = from.space;
  fault.info = static_cast<int64_t>(use);
  return fault;
}

}  // namespace

void undefined_stored(const Warp& warp, int lane, uint32_t origin) {
  if (!warp.races || of_cluster(warp).origins[origin].space != Space::shared)
    return undefined_matters(warp, lane, origin, Use::stored);
  Fault& suspected = warp.block->cluster->suspected;
  if (suspected.kind == FaultKind::none && !warp.block->cluster->raced)
    suspected = undefined_use(warp, lane, origin, Use::stored);
}

void undefined_matters(const Warp& warp, int lane, uint32_t origin, Use use) {
  if (of_cluster(warp).origins[origin].overflow && use != Use::address) return;
  report(*warp.block->cluster, undefined_use(warp, lane, origin, use));
}

// ---- indices that overflow

namespace {

using Widest = unsigned __int128;

// `lost`: nonzero where the result, in its low 32 bits, is not that of the signed numbers.
struct Sum {
  static constexpr bool wraps_unsigned = false;  // adding a negative number always does
  template <class T>
  static T exact(T a, T b, T) {
    return a + b;
  }
  static uint32_t low(int32_t a, int32_t b, int32_t) {
    return static_cast<uint32_t>(a) + static_cast<uint32_t>(b);
  }
  static int32_t lost(int32_t a, int32_t b, int32_t, int32_t result) {
    return ((a ^ result) & (b ^ result)) >> 31;
  }
};
struct Difference {
  static constexpr bool wraps_unsigned = false;
  template <class T>
  static T exact(T a, T b, T) {
    return a - b;
  }
  static uint32_t low(int32_t a, int32_t b, int32_t) {
    return static_cast<uint32_t>(a) - static_cast<uint32_t>(b);
  }
  static int32_t lost(int32_t a, int32_t b, int32_t, int32_t result) {
    return ((a ^ b) & (a ^ result)) >> 31;
  }
};
struct ProductAndSum {
  static constexpr bool wraps_unsigned = true;
  template <class T>
  static T exact(T a, T b, T c) {
    return a * b + c;
  }
  static uint32_t low(int32_t a, int32_t b, int32_t c) {
    return static_cast<uint32_t>(a) * static_cast<uint32_t>(b) + static_cast<uint32_t>(c);
  }
  static int32_t lost(int32_t a, int32_t b, int32_t c, int32_t result) {
    return static_cast<int32_t>((int64_t{a} * b + c) >> 32) ^ (result >> 31);
  }
};
struct Product : ProductAndSum {
  template <class T>
  static T exact(T a, T b, T) {
    return a * b;
  }
  static uint32_t low(int32_t a, int32_t b, int32_t) { return ProductAndSum::low(a, b, 0); }
  static int32_t lost(int32_t a, int32_t b, int32_t, int32_t result) {
    return ProductAndSum::lost(a, b, 0, result);
  }
};
struct Shifted {
  static constexpr bool wraps_unsigned = true;
  template <class T>
  static T exact(T a, T b, T) {
    return b < 0 || b > 31 ? 0 : a * (T{1} << b);
  }
  static uint32_t low(int32_t a, int32_t b, int32_t) {
    return b & ~31 ? 0 : static_cast<uint32_t>(a) << (b & 31);
  }
  static int32_t lost(int32_t a, int32_t b, int32_t, int32_t result) {
    return b & ~31 ? 0 : result >> (b & 31) ^ a;
  }
};

// Signed numbers that do not fit; or unsigned ones, where they do not fit as signed ones either: what is
// meant as a negative number wraps.
template <class Exact, int sources>
void watch(Warp& warp, const Instruction& instruction) {
  const Source<int32_t> a(warp, instruction.operands[1]), b(warp, instruction.operands[2]),
      c(warp, instruction.operands[sources == 3 ? 3 : 2]);
  const bool as_signed = instruction.flags & kSignedIndex;
  const bool as_unsigned = Exact::wraps_unsigned && (instruction.flags & kUnsignedIndex);
  alignas(64) uint32_t values[kLanes];
  int32_t any = 0;
  for (int l = 0; l < kLanes; ++l) {
    values[l] = Exact::low(a[l], b[l], c[l]);
    any |= Exact::lost(a[l], b[l], c[l], static_cast<int32_t>(values[l]));
  }
  uint32_t over = 0;
  if (__builtin_expect(any != 0, 0) && (as_signed || as_unsigned) && warp.machine->check_initialised)
    for_lanes(warp.active, [&](int l) {
      if (!Exact::lost(a[l], b[l], c[l], static_cast<int32_t>(values[l]))) return;
      const auto plain = [](int32_t value) { return Widest{static_cast<uint32_t>(value)}; };
      const Widest whole =
          Exact::template exact<Widest>(plain(a[l]), plain(b[l]), static_cast<Widest>(int64_t{c[l]}));
      if (as_signed || whole >> 32) over |= 1u << l;
    });
  write_cells(warp, instruction.operands[0], values);
  if (__builtin_expect(over == 0, 1)) return;
  of_warp(warp);
  const uint32_t origin = new_origin(warp, {warp.pc, Space::none, 0, 0, true});
  for_lanes(over, [&](int l) { set_undefined(warp, instruction.operands[0], l, 0xffffffff, origin); });
}

}  // namespace

Function watched(const Operation& operation, int32_t flags) {
  if (!(flags & (kSignedIndex | kUnsignedIndex))) return nullptr;
  const std::string& name = operation.name;
  if (name == "add.s32" || name == "add.u32") return watch<Sum, 2>;
  if (name == "sub.s32" || name == "sub.u32") return watch<Difference, 2>;
  if (name == "mul.lo.s32" || name == "mul.lo.u32") return watch<Product, 2>;
  if (name == "mad.lo.s32" || name == "mad.lo.u32") return watch<ProductAndSum, 3>;
  return name == "shl.b32" ? watch<Shifted, 2> : nullptr;
}

}  // namespace workbench::emulator::WORKBENCH_ISA
