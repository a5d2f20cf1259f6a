// Logic, shifts, bit fields, byte permutation, moves and selection.
#include <algorithm>
#include <tuple>

#include "integer_functors.hpp"
#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
  bool operator()(bool a) const { return !a; }
};
struct LogicalNot {
  template <class T>
  T operator()(T a) const {
    return a == 0;
  }
};

// Shift amounts are not taken modulo the width: they clamp.
struct ShiftLeft {
  template <class T>
  T operator()(T a, uint32_t n) const {
    constexpr uint32_t width = 8 * sizeof(T);
    return n >= width ? T(0) : static_cast<T>(a << (n & (width - 1)));
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, uint32_t n) const {
    constexpr uint32_t width = 8 * sizeof(T);
    const T shifted = static_cast<T>(a >> (n < width ? n : width - 1));
    return std::is_unsigned_v<T> && n >= width ? T(0) : shifted;
  }
};
template <bool Left, bool Clamp>
struct FunnelShift {  // of {high, low}
  uint32_t operator()(uint32_t low, uint32_t high, uint32_t n) const {
    const uint32_t by = Clamp ? (n > 32 ? 32 : n) : n & 31;
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<uint32_t>(Left ? (both << by) >> 32 : both >> by);
  }
};

template <class T>
constexpr int kWidth = 8 * sizeof(T);

struct ExtractField {
  template <class T>
  T operator()(T a, uint32_t position, uint32_t length) const {
    using U = std::make_unsigned_t<T>;
    constexpr uint32_t width = kWidth<T>;
    position &= 255;
    length &= 255;
    if (length == 0) return 0;
    const uint32_t last = position + length - 1 < width - 1 ? position + length - 1 : width - 1;
    const U sign = std::is_signed_v<T> ? static_cast<U>(a) >> last & 1 : 0;
    if (position >= width) return static_cast<T>(0 - sign);
    const U field = static_cast<U>(a) >> position;
    const uint32_t used = last - position + 1;  // 1 to width bits, the highest of them the sign
    const U mask = ~U(0) >> (width - used);
    return static_cast<T>((field & mask) | (sign ? ~mask : U(0)));
  }
};
struct InsertField {
  template <class T>
  T operator()(T a, T b, uint32_t position, uint32_t length) const {
    constexpr uint32_t width = kWidth<T>;
    position &= 255;
    length &= 255;
    if (position >= width) return b;
    const T mask =
        static_cast<T>((length >= width ? ~T(0) : static_cast<T>((T(1) << length) - 1)) << position);
    return static_cast<T>((b & ~mask) | (static_cast<T>(a << position) & mask));
  }
};

template <class T>
int leading_zeros(T a) {
  if (a == 0) return kWidth<T>;
  if constexpr (sizeof(T) == 8)
    return __builtin_clzll(a);
  else
    return __builtin_clz(a);
}
struct LeadingZeros {
  template <class T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(leading_zeros(a));
  }
};
struct PopulationCount {
  template <class T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(sizeof(T) == 8 ? __builtin_popcountll(a)
                                                : __builtin_popcount(static_cast<uint32_t>(a)));
  }
};
template <bool ShiftAmount>
struct FindLeading {  // the most significant bit that is not a sign bit
  template <class T>
  uint32_t operator()(T a) const {
    using U = std::make_unsigned_t<T>;
    const U bits = static_cast<U>(std::is_signed_v<T> && a < 0 ? ~a : a);
    if (bits == 0) return ~0u;
    const int zeros = leading_zeros(bits);
    return static_cast<uint32_t>(ShiftAmount ? zeros : kWidth<T> - 1 - zeros);
  }
};
struct Reverse {
  template <class T>
  T operator()(T a) const {
    T reversed = 0;
    for (int k = 0; k < kWidth<T>; ++k) reversed |= (a >> k & T(1)) << (kWidth<T> - 1 - k);
    return reversed;
  }
};

enum class Permute { index, f4e, b4e, rc8, ecl, ecr, rc16 };

template <Permute Mode>
struct PermuteBytes {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t control = Mode == Permute::index ? selector >> (4 * k) & 15 : choose(selector & 3, k);
      uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (control & 7))) & 255;
      if (control & 8) byte = byte & 128 ? 255 : 0;
      result |= byte << (8 * k);
    }
    return result;
  }
  static uint32_t choose(uint32_t s, uint32_t k) {
    switch (Mode) {
      case Permute::f4e:
        return s + k;
      case Permute::b4e:
        return (s - k) & 7;
      case Permute::rc8:
        return s;
      case Permute::ecl:
        return k > s ? k : s;
      case Permute::ecr:
        return k < s ? k : s;
      case Permute::rc16:
        return (s & 1) * 2 + (k & 1);
      default:
        return 0;
    }
  }
};

uint32_t lookup_logic(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t result = 0;
  for (uint32_t k = 0; k < 8; ++k)
    if (table >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  return result;
}

void logic3(Warp& warp, const Instruction& instruction) {
  const Source<uint32_t> a(warp, instruction.operands[1]), b(warp, instruction.operands[2]),
      c(warp, instruction.operands[3]);
  const uint32_t table = uniform(warp, instruction.operands[4]);
  uint32_t minterm[8];  // all ones where the table has a one: no branch in the lane loop
  for (uint32_t k = 0; k < 8; ++k) minterm[k] = 0 - (table >> k & 1);
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    const uint32_t x = a[l], y = b[l], z = c[l];
    const uint32_t if_x =
        (y & ((z & minterm[7]) | (~z & minterm[6]))) | (~y & ((z & minterm[5]) | (~z & minterm[4])));
    const uint32_t not_x =
        (y & ((z & minterm[3]) | (~z & minterm[2]))) | (~y & ((z & minterm[1]) | (~z & minterm[0])));
    return (x & if_x) | (~x & not_x);
  });
}

void logic3_with_predicate(Warp& warp, const Instruction& instruction) {  // variant: 1 or, 2 and
  const Source<uint32_t> a(warp, instruction.operands[2]), b(warp, instruction.operands[3]),
      c(warp, instruction.operands[4]);
  const uint32_t table = uniform(warp, instruction.operands[5]);
  const Source<bool> q(warp, instruction.operands[6]);
  uint32_t values[kLanes];
  int32_t predicate[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    values[l] = lookup_logic(a[l], b[l], c[l], table);
    predicate[l] = to_cell<bool>(instruction.variant == 1 ? values[l] != 0 || q[l] : values[l] != 0 && q[l]);
  }
  write_cells(warp, instruction.operands[1], predicate);
  write_cells(warp, instruction.operands[0], values);
}

struct FindNthSet {
  uint32_t operator()(uint32_t mask, uint32_t base, int32_t offset) const {
    base &= 31;
    if (offset == 0) return mask >> base & 1 ? base : ~0u;
    const int step = offset > 0 ? 1 : -1;
    int left = offset > 0 ? offset : -offset;
    for (int position = static_cast<int>(base); position >= 0 && position < 32; position += step)
      if ((mask >> position & 1) && --left == 0) return static_cast<uint32_t>(position);
    return ~0u;
  }
};

struct Same {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};
struct Select {
  template <class T>
  T operator()(T a, T b, bool p) const {
    return p ? a : b;
  }
};
struct SelectBySign {
  template <class T, class C>
  T operator()(T a, T b, C c) const {
    return c >= 0 ? a : b;
  }
};
struct SelectByFlushedSign {  // a subnormal counts as zero
  template <class T>
  T operator()(T a, T b, float c) const {
    return c > -0x1p-126f ? a : b;
  }
};

// ---- vectors in one register

template <class Whole, class Part, int N>
void pack(Warp& warp, const Instruction& instruction) {
  Whole values[kLanes] = {};
  for (int k = 0; k < N; ++k) {
    const uint32_t* part = source_cells<uint32_t>(warp, instruction.operands[1 + k]);
    for (int l = 0; l < kLanes; ++l)
      values[l] |=
          static_cast<Whole>(static_cast<Whole>(static_cast<Part>(part[l])) << (8 * sizeof(Part) * k));
  }
  write_cells(warp, instruction.operands[0], values);
}

template <class Whole, class Part, int N>
void unpack(Warp& warp, const Instruction& instruction) {
  Whole whole[kLanes];
  std::memcpy(whole, source_cells<Whole>(warp, instruction.operands[N]), sizeof whole);
  for (int k = 0; k < N; ++k)
    write_lanes<uint32_t>(warp, instruction.operands[k],
                          [&](int l) { return static_cast<Part>(whole[l] >> (8 * sizeof(Part) * k)); });
}

// ---- clocks: time goes on with the executed warp instructions of the block, so that a run repeats itself.
// Where it starts, and how much of it an instruction takes, is drawn from the seed of the launch.

template <class T>
void read_clock(Warp& warp, const Instruction& instruction) {  // variant: right shift
  Block& block = *warp.block;
  Random random{warp.machine->launch->seed};
  const uint64_t start = random.next() >> 8;
  const uint32_t stride = 1u << random.below(8);
  Random step{random.next() + block.ticks};
  block.ticks += 1 + step.below(2 * stride);  // both are never less: time never goes back
  const uint64_t now = start + block.executed * stride + block.ticks;
  write_lanes<T>(warp, instruction.operands[0],
                 [&](int) { return static_cast<T>(now >> instruction.variant); });
}

// ---- table

template <class T>
void add_logic(Table& table, const std::string& type) {
  add_lanewise<And, T, T, T>(table, "and" + type);
  add_lanewise<Or, T, T, T>(table, "or" + type);
  add_lanewise<Xor, T, T, T>(table, "xor" + type);
  add_lanewise<Not, T, T>(table, "not" + type);
}

template <class U>
void add_width(Table& table, const std::string& bits) {
  using S = std::make_signed_t<U>;
  add_logic<U>(table, ".b" + bits);
  add_lanewise<LogicalNot, U, U>(table, "cnot.b" + bits);
  add_lanewise<ShiftLeft, U, U, uint32_t>(table, "shl.b" + bits);
  add_lanewise<ShiftRight, U, U, uint32_t>(table, "shr.b" + bits);
  add_lanewise<ShiftRight, U, U, uint32_t>(table, "shr.u" + bits);
  add_lanewise<ShiftRight, S, S, uint32_t>(table, "shr.s" + bits);
  if constexpr (sizeof(U) >= 4) {
    add_lanewise<LeadingZeros, uint32_t, U>(table, "clz.b" + bits);
    add_lanewise<PopulationCount, uint32_t, U>(table, "popc.b" + bits);
    add_lanewise<Reverse, U, U>(table, "brev.b" + bits);
    add_lanewise<ExtractField, U, U, uint32_t, uint32_t>(table, "bfe.u" + bits);
    add_lanewise<ExtractField, S, S, uint32_t, uint32_t>(table, "bfe.s" + bits);
    add_lanewise<InsertField, U, U, U, uint32_t, uint32_t>(table, "bfi.b" + bits);
    add_lanewise<FindLeading<false>, uint32_t, U>(table, "bfind.u" + bits);
    add_lanewise<FindLeading<false>, uint32_t, S>(table, "bfind.s" + bits);
    add_lanewise<FindLeading<true>, uint32_t, U>(table, "bfind.shiftamt.u" + bits);
    add_lanewise<FindLeading<true>, uint32_t, S>(table, "bfind.shiftamt.s" + bits);
  }
}

// Moves and selections only carry bits: one function for all types of a width.
template <class Carrier, class Immediate>
void add_moves(Table& table, const std::string& type) {
  const std::string value(1, source_letter<Immediate>());
  const std::string result = sizeof(Carrier) == 8 ? "D" : "W";
  table.add("mov" + type, result + value, lanewise<Same, Carrier, Carrier>);
  table.add("selp" + type, result + value + value + "p", lanewise<Select, Carrier, Carrier, Carrier, bool>);
  table.add("slct" + type + ".s32", result + value + value + "w",
            lanewise<SelectBySign, Carrier, Carrier, Carrier, int32_t>);
  table.add("slct" + type + ".f32", result + value + value + "f",
            lanewise<SelectBySign, Carrier, Carrier, Carrier, float>);
  table.add("slct.ftz" + type + ".f32", result + value + value + "f",
            lanewise<SelectByFlushedSign, Carrier, Carrier, Carrier, float>);
}

template <Permute Mode>
void add_permute(Table& table, const std::string& mode) {
  add_lanewise<PermuteBytes<Mode>, uint32_t, uint32_t, uint32_t, uint32_t>(table, "prmt.b32" + mode);
}

template <bool Left>
void add_funnel(Table& table, const std::string& name) {
  add_lanewise<FunnelShift<Left, true>, uint32_t, uint32_t, uint32_t, uint32_t>(table, name + ".clamp.b32");
  add_lanewise<FunnelShift<Left, false>, uint32_t, uint32_t, uint32_t, uint32_t>(table, name + ".wrap.b32");
}

}  // namespace

// The low b bits of a, extended by their sign or by zeros; b beyond 32 wraps, or is clamped.
template <bool Signed, bool Clamp>
struct ExtendField {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    const uint32_t bits = Clamp ? std::min(b, 32u) : b & 31;
    if (bits == 0) return 0;
    const uint32_t up = 32 - bits;
    if (Signed) return static_cast<uint32_t>(static_cast<int32_t>(a << up) >> up);
    return a << up >> up;
  }
};

// b ones from bit a on.
template <bool Clamp>
struct BitMask {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    const uint32_t first = Clamp ? std::min(a, 32u) : a & 31, count = Clamp ? std::min(b, 32u) : b & 31;
    return static_cast<uint32_t>(((uint64_t{1} << count) - 1) << first);
  }
};

template <bool Clamp>
void add_fields(Table& table, const std::string& mode) {
  add_lanewise<ExtendField<false, Clamp>, uint32_t, uint32_t, uint32_t>(table, "szext" + mode + ".u32");
  add_lanewise<ExtendField<true, Clamp>, uint32_t, uint32_t, uint32_t>(table, "szext" + mode + ".s32");
  add_lanewise<BitMask<Clamp>, uint32_t, uint32_t, uint32_t>(table, "bmsk" + mode + ".b32");
}

void add_bit_operations(Table& table) {
  add_fields<true>(table, ".clamp");
  add_fields<false>(table, ".wrap");
  add_logic<bool>(table, ".pred");
  add_width<uint16_t>(table, "16");
  add_width<uint32_t>(table, "32");
  add_width<uint64_t>(table, "64");
  add_funnel<true>(table, "shf.l");
  add_funnel<false>(table, "shf.r");
  add_permute<Permute::index>(table, "");
  add_permute<Permute::f4e>(table, ".f4e");
  add_permute<Permute::b4e>(table, ".b4e");
  add_permute<Permute::rc8>(table, ".rc8");
  add_permute<Permute::ecl>(table, ".ecl");
  add_permute<Permute::ecr>(table, ".ecr");
  add_permute<Permute::rc16>(table, ".rc16");
  table.add("lop3.b32", "Wwwww", logic3);
  table.add("lop3.or.b32", "W?Pwwwwp", logic3_with_predicate, 1);
  table.add("lop3.and.b32", "W?Pwwwwp", logic3_with_predicate, 2);
  add_lanewise<FindNthSet, uint32_t, uint32_t, uint32_t, int32_t>(table, "fns.b32");
}

void add_move_operations(Table& table) {
  for (const char* type :
       {".b16", ".u16", ".s16", ".f16", ".bf16", ".b32", ".u32", ".s32", ".f16x2", ".bf16x2"})
    add_moves<uint32_t, uint32_t>(table, type);
  add_moves<uint32_t, float>(table, ".f32");
  for (const char* type : {".b64", ".u64", ".s64"}) add_moves<uint64_t, uint64_t>(table, type);
  add_moves<uint64_t, double>(table, ".f64");
  add_lanewise<Same, bool, bool>(table, "mov.pred");
  add_lanewise<Select, bool, bool, bool, bool>(table, "selp.pred");
  table.add("mov.b16.pack2", "Www", pack<uint32_t, uint8_t, 2>);
  table.add("mov.b32.pack2", "Www", pack<uint32_t, uint16_t, 2>);
  table.add("mov.b32.pack4", "Ww4", pack<uint32_t, uint8_t, 4>);
  table.add("mov.b64.pack2", "Dww", pack<uint64_t, uint32_t, 2>);
  table.add("mov.b64.pack4", "Dw4", pack<uint64_t, uint16_t, 4>);
  table.add("mov.b16.unpack2", "WWw", unpack<uint32_t, uint8_t, 2>);
  table.add("mov.b32.unpack2", "WWw", unpack<uint32_t, uint16_t, 2>);
  table.add("mov.b32.unpack4", "W4w", unpack<uint32_t, uint8_t, 4>);
  table.add("mov.b64.unpack2", "WWd", unpack<uint64_t, uint32_t, 2>);
  table.add("mov.b64.unpack4", "W4d", unpack<uint64_t, uint16_t, 4>);
  table.add("read.clock", "W", read_clock<uint32_t>, 0);
  table.add("read.clock_hi", "W", read_clock<uint32_t>, 32);
  table.add("read.clock64", "D", read_clock<uint64_t>, 0);
  table.add("read.globaltimer_lo", "W", read_clock<uint32_t>, 0);
  table.add("read.globaltimer_hi", "W", read_clock<uint32_t>, 32);
  table.add("read.globaltimer", "D", read_clock<uint64_t>, 0);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
