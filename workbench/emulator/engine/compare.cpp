// setp and set, in every comparison and type.
#include <tuple>

#include "float_functors.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

struct Equal {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {  // false for a NaN: ordered
  template <class T>
  bool operator()(T a, T b) const {
    return a < b || a > b;
  }
};
struct Less {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};
template <class Ordered>
struct OrNan {
  template <class T>
  bool operator()(T a, T b) const {
    return Ordered()(a, b) || is_nan(a) || is_nan(b);
  }
};
struct BothNumbers {
  template <class T>
  bool operator()(T a, T b) const {
    return !is_nan(a) && !is_nan(b);
  }
};
struct EitherNan {
  template <class T>
  bool operator()(T a, T b) const {
    return is_nan(a) || is_nan(b);
  }
};
enum class Combine { none, and_, or_, xor_ };

inline bool combine(int how, bool a, bool b) {
  switch (static_cast<Combine>(how)) {
    case Combine::and_:
      return a && b;
    case Combine::or_:
      return a || b;
    case Combine::xor_:
      return a != b;
    default:
      return a;
  }
}

template <class T, class Compare>
[[gnu::noinline]] void compare_cells(const T* a, const T* b, int32_t* result) {
  for (int l = 0; l < kLanes; ++l) result[l] = to_cell<bool>(Compare()(a[l], b[l]));
}

// Halves are compared as floats, which hold them exactly. `Flush` makes subnormals zero first: those of f16,
// since bf16 has no .ftz.
struct Floats {
  alignas(64) float x[kLanes];
};

inline f16 flushed(f16 a) {
  return (a.bits & 0x7c00) ? a : bit_cast<f16>(static_cast<uint16_t>(a.bits & 0x8000));
}
inline bf16 flushed(bf16 a) { return a; }

template <class T, bool Flush>
[[gnu::noinline]] Floats widened(const Warp& warp, const Operand& operand) {
  const Source<T> a(warp, operand);
  Floats wide;
  for (int l = 0; l < kLanes; ++l) {
    if constexpr (!Flush)
      wide.x[l] = static_cast<float>(a[l]);
    else if constexpr (is_half<T>)
      wide.x[l] = static_cast<float>(flushed(a[l]));
    else
      wide.x[l] = flush(a[l]);
  }
  return wide;
}

template <class H, bool Flush>
[[gnu::noinline]] void widen_pairs(const Warp& warp, const Operand& operand, Floats& low, Floats& high) {
  const Source<Pair<H>> a(warp, operand);
  for (int l = 0; l < kLanes; ++l) {
    const Pair<H> pair = a[l];
    low.x[l] = static_cast<float>(Flush ? flushed(pair.low) : pair.low);
    high.x[l] = static_cast<float>(Flush ? flushed(pair.high) : pair.high);
  }
}

template <class T, class Compare>
[[gnu::noinline]] void compare_low_halves(const Warp& warp, const Operand* operands, int32_t* result) {
  const Source<T> a(warp, operands[0]), b(warp, operands[1]);
  for (int l = 0; l < kLanes; ++l) result[l] = to_cell<bool>(Compare()(a[l], b[l]));
}

template <class T, class Compare, bool Flush>
void compare_lanes(const Warp& warp, const Operand* operands, int32_t* result) {
  if constexpr (is_half<T> || Flush) {
    const Floats a = widened<T, Flush>(warp, operands[0]), b = widened<T, Flush>(warp, operands[1]);
    compare_cells<float, Compare>(a.x, b.x, result);
  } else if constexpr (sizeof(T) == 2) {  // integers, in the low half of their cells
    compare_low_halves<T, Compare>(warp, operands, result);
  } else {
    compare_cells<T, Compare>(source_cells<T>(warp, operands[0]), source_cells<T>(warp, operands[1]), result);
  }
}

template <class H, class Compare, bool Flush>
void compare_pairs(const Warp& warp, const Operand* operands, int32_t* low, int32_t* high) {
  Floats a_low, a_high, b_low, b_high;
  widen_pairs<H, Flush>(warp, operands[0], a_low, a_high);
  widen_pairs<H, Flush>(warp, operands[1], b_low, b_high);
  compare_cells<float, Compare>(a_low.x, b_low.x, low);
  compare_cells<float, Compare>(a_high.x, b_high.x, high);
}

// result = result op c, when the instruction has a c
void combine_with(const Warp& warp, int how, const Operand& operand, int32_t* result) {
  const Source<bool> c(warp, operand);
  for (int l = 0; l < kLanes; ++l) result[l] = to_cell<bool>(combine(how, result[l] != 0, c[l]));
}

// setp p|q, a, b{, c}: p = compare op c, q = !compare op c. The variant is the operation.
[[gnu::noinline]] void write_predicates(const Warp& warp, const Instruction& instruction, int32_t* result) {
  if (instruction.variant == 0 && instruction.operands[1].slot == kAbsent)
    return write_cells(warp, instruction.operands[0], result);
  const Operand &p = instruction.operands[0], &q = instruction.operands[1];
  alignas(64) int32_t opposite[kLanes];
  for (int l = 0; l < kLanes; ++l) opposite[l] = ~result[l];
  if (instruction.variant) {
    combine_with(warp, instruction.variant, instruction.operands[4], result);
    combine_with(warp, instruction.variant, instruction.operands[4], opposite);
  }
  write_cells(warp, p, result);
  write_cells(warp, q, opposite);
}

template <class T, class Compare, bool Flush>
void set_predicate(Warp& warp, const Instruction& instruction) {
  alignas(64) int32_t result[kLanes];
  compare_lanes<T, Compare, Flush>(warp, instruction.operands + 2, result);
  write_predicates(warp, instruction, result);
}

// variant of set: the operation, and 1.0 of a type instead of all ones
constexpr int kOperationBits = 3, kOne = 4, kOneF16 = 8, kOneBf16 = 16;

template <class H>
constexpr int kOneOf = std::is_same_v<H, f16> ? kOneF16 : kOneBf16;

int32_t when_true(int variant) {
  return variant & kOne ? 0x3f800000 : variant & kOneF16 ? 0x3c00 : variant & kOneBf16 ? 0x3f80 : -1;
}

// set d, a, b{, c}
[[gnu::noinline]] void write_register(const Warp& warp, const Instruction& instruction, int32_t* result) {
  const int how = instruction.variant & kOperationBits;
  if (how) combine_with(warp, how, instruction.operands[3], result);
  const int32_t yes = when_true(instruction.variant);
  for (int l = 0; l < kLanes; ++l) result[l] &= yes;
  write_cells(warp, instruction.operands[0], result);
}

template <class T, class Compare, bool Flush>
void set_register(Warp& warp, const Instruction& instruction) {
  alignas(64) int32_t result[kLanes];
  compare_lanes<T, Compare, Flush>(warp, instruction.operands + 1, result);
  write_register(warp, instruction, result);
}

// Comparisons of pairs of halves: two predicates, or two halves of 1.0 or all ones.
[[gnu::noinline]] void write_pair_of_predicates(const Warp& warp, const Instruction& instruction,
                                                int32_t* low, int32_t* high) {
  if (instruction.variant) {
    combine_with(warp, instruction.variant, instruction.operands[4], low);
    combine_with(warp, instruction.variant, instruction.operands[4], high);
  }
  write_cells(warp, instruction.operands[0], low);
  write_cells(warp, instruction.operands[1], high);
}

template <class H, class Compare, bool Flush>
void set_predicates_of_pair(Warp& warp, const Instruction& instruction) {
  alignas(64) int32_t low[kLanes], high[kLanes];
  compare_pairs<H, Compare, Flush>(warp, instruction.operands + 2, low, high);
  write_pair_of_predicates(warp, instruction, low, high);
}

[[gnu::noinline]] void write_pair(const Warp& warp, const Instruction& instruction, const int32_t* low,
                                  const int32_t* high) {
  const uint32_t yes = static_cast<uint32_t>(when_true(instruction.variant)) & 0xffffu;
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    return (static_cast<uint32_t>(low[l]) & yes) | (static_cast<uint32_t>(high[l]) & yes) << 16;
  });
}

template <class H, class Compare, bool Flush>
void set_pair(Warp& warp, const Instruction& instruction) {
  alignas(64) int32_t low[kLanes], high[kLanes];
  compare_pairs<H, Compare, Flush>(warp, instruction.operands + 1, low, high);
  write_pair(warp, instruction, low, high);
}

// ---- table

const std::pair<const char*, int> kCombinations[] = {{"", 0}, {".and", 1}, {".or", 2}, {".xor", 3}};

// Names are put together outside of templates: that is what takes a compiler longest.
void add_setp_and_set(Table& table, const char* compare, const char* ftz, const char* type, char letter,
                      Function setp, Function set) {
  const std::string name = compare, pair(2, letter);
  for (const auto& [boolean, variant] : kCombinations) {
    const std::string c = variant ? "p" : "";
    table.add("setp." + name + boolean + ftz + type, "PP?" + pair + c, setp, variant);
    for (const char* result : {".u32", ".s32"})
      table.add("set." + name + boolean + ftz + result + type, "W" + pair + c, set, variant);
    table.add("set." + name + boolean + ftz + ".f32" + type, "W" + pair + c, set, variant | kOne);
  }
}

template <class T, class Compare, bool Flush = false>
void add_compare(Table& table, const char* compare, const char* type) {
  add_setp_and_set(table, compare, Flush ? ".ftz" : "", type, source_letter<T>(),
                   set_predicate<T, Compare, Flush>, set_register<T, Compare, Flush>);
}

template <class T>
void add_integer(Table& table, const char* type, bool is_signed) {
  using S = std::make_signed_t<T>;
  add_compare<T, Equal>(table, "eq", type);
  add_compare<T, NotEqual>(table, "ne", type);
  if (is_signed) {
    add_compare<S, Less>(table, "lt", type);
    add_compare<S, LessEqual>(table, "le", type);
    add_compare<S, Greater>(table, "gt", type);
    add_compare<S, GreaterEqual>(table, "ge", type);
  } else {
    for (const char* name : {"lt", "lo"}) add_compare<T, Less>(table, name, type);
    for (const char* name : {"le", "ls"}) add_compare<T, LessEqual>(table, name, type);
    for (const char* name : {"gt", "hi"}) add_compare<T, Greater>(table, name, type);
    for (const char* name : {"ge", "hs"}) add_compare<T, GreaterEqual>(table, name, type);
  }
}

// Calls f(comparison, name) for every floating-point comparison.
template <class F>
void each_float_compare(F f) {
  f(Equal(), "eq"), f(NotEqual(), "ne"), f(Less(), "lt"), f(LessEqual(), "le"), f(Greater(), "gt"),
      f(GreaterEqual(), "ge");
  f(OrNan<Equal>(), "equ"), f(OrNan<NotEqual>(), "neu"), f(OrNan<Less>(), "ltu"),
      f(OrNan<LessEqual>(), "leu");
  f(OrNan<Greater>(), "gtu"), f(OrNan<GreaterEqual>(), "geu"), f(BothNumbers(), "num"), f(EitherNan(), "nan");
}

void add_pair_setp_and_set(Table& table, const char* compare, const char* ftz, const char* type, int one,
                           Function setp, Function set) {
  const std::string name = compare;
  for (const auto& [boolean, variant] : kCombinations)
    table.add("setp." + name + boolean + ftz + type, variant ? "PPwwp" : "PPww", setp, variant);
  table.add("set." + name + ftz + type + type, "Www", set, one);
  for (const char* result : {".u32", ".s32"}) table.add("set." + name + ftz + result + type, "Www", set);
}

template <class H, class Compare, bool Flush = false>
void add_pair_compare(Table& table, const char* compare, const char* type) {
  add_pair_setp_and_set(table, compare, Flush ? ".ftz" : "", type, kOneOf<H>,
                        set_predicates_of_pair<H, Compare, Flush>, set_pair<H, Compare, Flush>);
}

// set of one half: a half's 1.0, or all ones in 16 bits
void add_half_results(Table& table, const char* compare, const char* type, int one, Function set) {
  const std::string name = compare;
  for (const auto& [boolean, variant] : kCombinations) {
    const char* operands = variant ? "Wwwp" : "Www";
    table.add("set." + name + boolean + type + type, operands, set, variant | one);
    for (const char* result : {".u16", ".s16"})
      table.add("set." + name + boolean + result + type, operands, set, variant);
  }
}

template <class H, class Compare>
void add_half_compare(Table& table, const char* compare, const char* type, const char* pair) {
  add_compare<H, Compare>(table, compare, type);
  add_half_results(table, compare, type, kOneOf<H>, set_register<H, Compare, false>);
  add_pair_compare<H, Compare>(table, compare, pair);
}

}  // namespace

void add_compare_operations(Table& table) {
  for (const char* type : {".u16", ".b16"}) add_integer<uint16_t>(table, type, false);
  for (const char* type : {".u32", ".b32"}) add_integer<uint32_t>(table, type, false);
  for (const char* type : {".u64", ".b64"}) add_integer<uint64_t>(table, type, false);
  add_integer<uint16_t>(table, ".s16", true);
  add_integer<uint32_t>(table, ".s32", true);
  add_integer<uint64_t>(table, ".s64", true);
  each_float_compare([&](auto op, const char* name) {
    using Compare = decltype(op);
    add_compare<float, Compare>(table, name, ".f32");
    add_compare<float, Compare, true>(table, name, ".f32");
    add_compare<double, Compare>(table, name, ".f64");
    add_half_compare<f16, Compare>(table, name, ".f16", ".f16x2");
    add_half_compare<bf16, Compare>(table, name, ".bf16", ".bf16x2");
    add_compare<f16, Compare, true>(table, name, ".f16");
    add_pair_compare<f16, Compare, true>(table, name, ".f16x2");
  });
}

}  // namespace workbench::emulator::WORKBENCH_ISA
