// Integer arithmetic. Everything wraps: it is computed unsigned, where C++ lets it.
#include <limits>
#include <tuple>

#include "integer_functors.hpp"
#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// unsigned and at least an int, so that u16 * u16 does not overflow one
template <class T>
constexpr auto wrap(T value) {
  return static_cast<std::conditional_t<sizeof(T) < 4, uint32_t, Unsigned<T>>>(value);
}

template <class T>
struct Wider;
template <>
struct Wider<int16_t> {
  using type = int32_t;
};
template <>
struct Wider<uint16_t> {
  using type = uint32_t;
};
template <>
struct Wider<int32_t> {
  using type = int64_t;
};
template <>
struct Wider<uint32_t> {
  using type = uint64_t;
};
template <>
struct Wider<int64_t> {
  using type = __int128;
};
template <>
struct Wider<uint64_t> {
  using type = unsigned __int128;
};
template <class T>
using Wide = typename Wider<T>::type;

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(wrap(a) + wrap(b));
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(wrap(a) - wrap(b));
  }
};
struct MultiplyLow {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(wrap(a) * wrap(b));
  }
};
struct MultiplyHigh {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b) >> (8 * sizeof(T)));
  }
};
struct MultiplyWide {
  template <class T>
  Wide<T> operator()(T a, T b) const {
    return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);
  }
};
template <class Multiply>
struct ThenAdd {
  template <class T, class R>
  R operator()(T a, T b, R c) const {
    return Add()(static_cast<R>(Multiply()(a, b)), c);
  }
};
struct Multiply24Low {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(product(a, b));
  }
  template <class T>
  static Wide<T> product(T a, T b) {
    const auto low24 = [](T x) { return static_cast<T>(static_cast<T>(static_cast<uint32_t>(x) << 8) >> 8); };
    return static_cast<Wide<T>>(low24(a)) * static_cast<Wide<T>>(low24(b));
  }
};
struct Multiply24High {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(Multiply24Low::product(a, b) >> 16);
  }
};
struct Divide {  // PTX leaves the quotient by zero open; hardware gives all ones
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - wrap(a));
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Negate {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(0 - wrap(a));
  }
};
struct Absolute {
  template <class T>
  T operator()(T a) const {
    return a < 0 ? static_cast<T>(0 - wrap(a)) : a;
  }
};
template <class Op>
struct Relu {
  template <class T>
  T operator()(T a, T b) const {
    return Maximum()(Op()(a, b), T(0));
  }
};
struct DifferenceSum {  // sad: c + |a - b|
  template <class T>
  T operator()(T a, T b, T c) const {
    return static_cast<T>(wrap(c) + (a < b ? wrap(b) - wrap(a) : wrap(a) - wrap(b)));
  }
};
struct Saturate {
  static int32_t clamp(int64_t x) {
    return static_cast<int32_t>(x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : x);
  }
};
struct AddSaturated {
  int32_t operator()(int32_t a, int32_t b) const { return Saturate::clamp(int64_t{a} + b); }
};
struct SubtractSaturated {
  int32_t operator()(int32_t a, int32_t b) const { return Saturate::clamp(int64_t{a} - b); }
};
struct MadHighSaturated {
  int32_t operator()(int32_t a, int32_t b, int32_t c) const {
    return Saturate::clamp(int64_t{MultiplyHigh()(a, b)} + c);
  }
};
struct Mad24HighSaturated {
  int32_t operator()(int32_t a, int32_t b, int32_t c) const {
    return Saturate::clamp(int64_t{Multiply24High()(a, b)} + c);
  }
};
// Of four bytes each: the absolute differences, or c and their sum.
template <class Byte, bool Sum>
struct AbsoluteDifferences {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    uint32_t all = Sum ? c : 0;
    for (int shift = 0; shift < 32; shift += 8) {
      const int difference = static_cast<Byte>(a >> shift) - static_cast<Byte>(b >> shift);
      const uint32_t absolute = static_cast<uint32_t>(difference < 0 ? -difference : difference);
      all += Sum ? absolute : absolute << shift;
    }
    return all;
  }
};
template <class Op>
struct InPairs {
  template <class H>
  Pair<H> operator()(Pair<H> a, Pair<H> b) const {
    return {Op()(a.low, b.low), Op()(a.high, b.high)};
  }
};

template <class To>
int32_t extended(uint32_t word, int byte) {
  return static_cast<To>(word >> (8 * byte));
}
template <class A, class B>
struct DotFourBytes {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (int k = 0; k < 4; ++k) c += static_cast<uint32_t>(extended<A>(a, k) * extended<B>(b, k));
    return c;
  }
};
template <class A, class B, int First>  // two halves of a with two bytes of b
struct DotTwoBytes {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    using A16 = std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>;
    for (int k = 0; k < 2; ++k)
      c += static_cast<uint32_t>(extended<A16>(a, 2 * k)) * static_cast<uint32_t>(extended<B>(b, First + k));
    return c;
  }
};

// ---- carries: variant 1 takes the carry in, variant 2 puts it out

enum { kCarryIn = 1, kCarryOut = 2 };

template <class T, class F>
void with_carry(Warp& warp, const Instruction& instruction, F sum) {
  T values[kLanes];
  uint32_t carry = 0;
  for (int l = 0; l < kLanes; ++l) {
    const unsigned in = instruction.variant & kCarryIn ? warp.carry >> l & 1 : 0;
    bool out = false;
    values[l] = sum(l, in, out);
    carry |= (out ? 1u : 0u) << l;
  }
  write_cells(warp, instruction.operands[0], values);
  if (instruction.variant & kCarryOut) warp.carry = (warp.carry & ~warp.active) | (carry & warp.active);
}

template <class T>
T add_with_carry(T a, T b, unsigned in, bool& out) {
  const T partial = static_cast<T>(a + b), sum = static_cast<T>(partial + in);
  out = partial < a || sum < partial;
  return sum;
}

template <class T>
void add_carry(Warp& warp, const Instruction& instruction) {
  const Source<T> a(warp, instruction.operands[1]), b(warp, instruction.operands[2]);
  with_carry<T>(warp, instruction,
                [&](int l, unsigned in, bool& out) { return add_with_carry(a[l], b[l], in, out); });
}

template <class T>
void subtract_borrow(Warp& warp, const Instruction& instruction) {
  // a + ~b + 1: the carry is set where nothing is borrowed, and an addc may be what takes it
  const Source<T> a(warp, instruction.operands[1]), b(warp, instruction.operands[2]);
  const bool first = !(instruction.variant & kCarryIn);
  with_carry<T>(warp, instruction, [&](int l, unsigned in, bool& out) {
    return add_with_carry(a[l], static_cast<T>(~b[l]), first ? 1u : in, out);
  });
}

template <class Multiply, class T>
void mad_carry(Warp& warp, const Instruction& instruction) {
  const Source<T> a(warp, instruction.operands[1]), b(warp, instruction.operands[2]),
      c(warp, instruction.operands[3]);
  with_carry<Unsigned<T>>(warp, instruction, [&](int l, unsigned in, bool& out) {
    return add_with_carry<Unsigned<T>>(static_cast<Unsigned<T>>(Multiply()(a[l], b[l])),
                                       static_cast<Unsigned<T>>(c[l]), in, out);
  });
}

template <class T>
void add_carries(Table& table, const std::string& type) {
  using U = Unsigned<T>;
  const std::string pair = sizeof(T) == 8 ? "Ddd" : "Www", triple = sizeof(T) == 8 ? "Dddd" : "Wwww";
  const std::pair<const char*, int> forms[] = {
      {".cc", kCarryOut}, {"c", kCarryIn}, {"c.cc", kCarryIn | kCarryOut}};
  for (const auto& [form, variant] : forms) {
    table.add(std::string("add") + form + type, pair, add_carry<U>, variant);
    table.add(std::string("sub") + form + type, pair, subtract_borrow<U>, variant);
    const std::string mad = form[0] == 'c' ? "madc" : "mad", suffix = form[0] == 'c' ? form + 1 : form;
    table.add(mad + ".lo" + suffix + type, triple, mad_carry<MultiplyLow, T>, variant);
    table.add(mad + ".hi" + suffix + type, triple, mad_carry<MultiplyHigh, T>, variant);
  }
}

// ---- table

template <class T>
void add_type(Table& table, const std::string& type) {
  using U = Unsigned<T>;
  add_lanewise<Add, U, U, U>(table, "add" + type);
  add_lanewise<Subtract, U, U, U>(table, "sub" + type);
  add_lanewise<MultiplyLow, U, U, U>(table, "mul.lo" + type);
  add_lanewise<MultiplyHigh, T, T, T>(table, "mul.hi" + type);
  add_lanewise<ThenAdd<MultiplyLow>, U, U, U, U>(table, "mad.lo" + type);
  add_lanewise<ThenAdd<MultiplyHigh>, T, T, T, T>(table, "mad.hi" + type);
  add_lanewise<Divide, T, T, T>(table, "div" + type);
  add_lanewise<Remainder, T, T, T>(table, "rem" + type);
  add_lanewise<Minimum, T, T, T>(table, "min" + type);
  add_lanewise<Maximum, T, T, T>(table, "max" + type);
  add_lanewise<DifferenceSum, T, T, T, T>(table, "sad" + type);
  if constexpr (sizeof(T) < 8) {
    add_lanewise<MultiplyWide, Wide<T>, T, T>(table, "mul.wide" + type);
    add_lanewise<ThenAdd<MultiplyWide>, Wide<T>, T, T, Wide<T>>(table, "mad.wide" + type);
  }
  if constexpr (std::is_signed_v<T>) {
    add_lanewise<Negate, U, U>(table, "neg" + type);
    add_lanewise<Absolute, T, T>(table, "abs" + type);
  }
  if constexpr (sizeof(T) >= 4) add_carries<T>(table, type);
}

template <class A, class B>
void add_dots(Table& table, const std::string& types) {
  add_lanewise<DotFourBytes<A, B>, uint32_t, uint32_t, uint32_t, uint32_t>(table, "dp4a" + types);
  add_lanewise<DotTwoBytes<A, B, 0>, uint32_t, uint32_t, uint32_t, uint32_t>(table, "dp2a.lo" + types);
  add_lanewise<DotTwoBytes<A, B, 2>, uint32_t, uint32_t, uint32_t, uint32_t>(table, "dp2a.hi" + types);
}

template <class T>
void add_pairs(Table& table, const std::string& type) {
  using P = Pair<T>;
  add_lanewise<InPairs<Add>, P, P, P>(table, "add" + type);
  add_lanewise<InPairs<Minimum>, P, P, P>(table, "min" + type);
  add_lanewise<InPairs<Maximum>, P, P, P>(table, "max" + type);
}

}  // namespace

void add_integer_operations(Table& table) {
  add_type<uint16_t>(table, ".u16");
  add_type<int16_t>(table, ".s16");
  add_type<uint32_t>(table, ".u32");
  add_type<int32_t>(table, ".s32");
  add_type<uint64_t>(table, ".u64");
  add_type<int64_t>(table, ".s64");
  add_pairs<uint16_t>(table, ".u16x2");
  add_pairs<int16_t>(table, ".s16x2");
  add_lanewise<Relu<Minimum>, int32_t, int32_t, int32_t>(table, "min.relu.s32");
  add_lanewise<Relu<Maximum>, int32_t, int32_t, int32_t>(table, "max.relu.s32");
  add_lanewise<AddSaturated, int32_t, int32_t, int32_t>(table, "add.sat.s32");
  add_lanewise<SubtractSaturated, int32_t, int32_t, int32_t>(table, "sub.sat.s32");
  add_lanewise<MadHighSaturated, int32_t, int32_t, int32_t, int32_t>(table, "mad.hi.sat.s32");
  add_lanewise<Multiply24Low, uint32_t, uint32_t, uint32_t>(table, "mul24.lo.u32");
  add_lanewise<Multiply24Low, int32_t, int32_t, int32_t>(table, "mul24.lo.s32");
  add_lanewise<Multiply24High, uint32_t, uint32_t, uint32_t>(table, "mul24.hi.u32");
  add_lanewise<Multiply24High, int32_t, int32_t, int32_t>(table, "mul24.hi.s32");
  add_lanewise<ThenAdd<Multiply24High>, uint32_t, uint32_t, uint32_t, uint32_t>(table, "mad24.hi.u32");
  add_lanewise<ThenAdd<Multiply24High>, int32_t, int32_t, int32_t, int32_t>(table, "mad24.hi.s32");
  add_lanewise<Mad24HighSaturated, int32_t, int32_t, int32_t, int32_t>(table, "mad24.hi.sat.s32");
  add_lanewise<InPairs<Relu<Minimum>>, Pair<int16_t>, Pair<int16_t>, Pair<int16_t>>(table, "min.relu.s16x2");
  add_lanewise<InPairs<Relu<Maximum>>, Pair<int16_t>, Pair<int16_t>, Pair<int16_t>>(table, "max.relu.s16x2");
  for (const char* result : {".u32", ".s32"}) {
    const std::string name = "vabsdiff4" + std::string(result);
    add_lanewise<AbsoluteDifferences<uint8_t, false>, uint32_t, uint32_t, uint32_t, uint32_t>(
        table, name + ".u32.u32");
    add_lanewise<AbsoluteDifferences<int8_t, false>, uint32_t, uint32_t, uint32_t, uint32_t>(
        table, name + ".s32.s32");
    add_lanewise<AbsoluteDifferences<uint8_t, true>, uint32_t, uint32_t, uint32_t, uint32_t>(
        table, name + ".u32.u32.add");
    add_lanewise<AbsoluteDifferences<int8_t, true>, uint32_t, uint32_t, uint32_t, uint32_t>(
        table, name + ".s32.s32.add");
  }
  add_lanewise<ThenAdd<Multiply24Low>, uint32_t, uint32_t, uint32_t, uint32_t>(table, "mad24.lo.u32");
  add_lanewise<ThenAdd<Multiply24Low>, int32_t, int32_t, int32_t, int32_t>(table, "mad24.lo.s32");
  add_dots<uint8_t, uint8_t>(table, ".u32.u32");
  add_dots<uint8_t, int8_t>(table, ".u32.s32");
  add_dots<int8_t, uint8_t>(table, ".s32.u32");
  add_dots<int8_t, int8_t>(table, ".s32.s32");
}

}  // namespace workbench::emulator::WORKBENCH_ISA
