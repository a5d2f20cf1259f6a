// Arithmetic and conversions that round towards zero, down or up. The host rounds: this file is built with
// -frounding-math, so that the compiler neither computes nor moves anything across the change of mode.
#include <cfenv>
#include <tuple>

#include "float_functors.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

class RoundingMode {
 public:
  explicit RoundingMode(int mode) { std::fesetround(mode); }
  ~RoundingMode() { std::fesetround(FE_TONEAREST); }
};

struct DirectedFused {  // std::fma heeds the mode, with and without the instruction
  template <class T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
struct DirectedReciprocal {
  template <class T>
  T operator()(T a) const {
    return T(1) / a;
  }
};
struct DirectedSquareRoot {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
}  // namespace
template <>
struct Exact<DirectedFused> : Exact<Fused> {  // rounding twice in one direction is rounding once
  static double value(double a, double b, double c) { return a * b + c; }
};
template <>
struct Exact<DirectedReciprocal> {
  static constexpr bool known = true;
  static double value(double a) { return 1 / a; }
  static bool below(double smallest, double a) { return std::fabs(value(a)) < smallest; }
};
namespace {

template <class T>
struct ConvertTo {
  template <class S>
  T operator()(S a) const {
    return static_cast<T>(a);
  }
};

template <int Mode, class Op, class R, class... A>
void directed(Warp& warp, const Instruction& instruction) {
  const RoundingMode mode(Mode);
  lanewise<Op, R, A...>(warp, instruction);
}

template <int Mode, class Op, class R, class... A>
void add_directed(Table& table, const std::string& name) {
  table.add(name, signature_of<R, A...>(), directed<Mode, Op, R, A...>);
}

template <int Mode, class Op, class... A>
void add_floats(Table& table, const std::string& name) {
  add_directed<Mode, Op, float, A...>(table, name + ".f32");
  add_directed<Mode, Ftz<Op>, float, A...>(table, name + ".ftz.f32");
  add_directed<Mode, Sat<Op>, float, A...>(table, name + ".sat.f32");
  add_directed<Mode, Sat<Ftz<Op>>, float, A...>(table, name + ".ftz.sat.f32");
}

template <int Mode, class Op, class... A>
void add_pairs(Table& table, const std::string& name) {
  add_directed<Mode, EachOfTwo<Op>, uint64_t, A...>(table, name + ".f32x2");
  add_directed<Mode, EachOfTwo<Ftz<Op>>, uint64_t, A...>(table, name + ".ftz.f32x2");
}

template <int Mode, class S>
void add_from_integer(Table& table, const std::string& rounding, const std::string& source) {
  add_directed<Mode, ConvertTo<float>, float, S>(table, "cvt" + rounding + ".f32" + source);
  add_directed<Mode, ConvertTo<double>, double, S>(table, "cvt" + rounding + ".f64" + source);
}

template <int Mode>
void add_mode(Table& table, const std::string& rounding) {
  using D = double;
  add_floats<Mode, FloatAdd, float, float>(table, "add" + rounding);
  add_floats<Mode, FloatSubtract, float, float>(table, "sub" + rounding);
  add_floats<Mode, FloatMultiply, float, float>(table, "mul" + rounding);
  add_floats<Mode, FloatDivide, float, float>(table, "div" + rounding);
  add_floats<Mode, DirectedFused, float, float, float>(table, "fma" + rounding);
  add_floats<Mode, DirectedReciprocal, float>(table, "rcp" + rounding);
  add_floats<Mode, DirectedSquareRoot, float>(table, "sqrt" + rounding);
  using P = uint64_t;
  add_pairs<Mode, FloatAdd, P, P>(table, "add" + rounding);
  add_pairs<Mode, FloatSubtract, P, P>(table, "sub" + rounding);
  add_pairs<Mode, FloatMultiply, P, P>(table, "mul" + rounding);
  add_pairs<Mode, DirectedFused, P, P, P>(table, "fma" + rounding);
  add_directed<Mode, FloatAdd, D, D, D>(table, "add" + rounding + ".f64");
  add_directed<Mode, FloatSubtract, D, D, D>(table, "sub" + rounding + ".f64");
  add_directed<Mode, FloatMultiply, D, D, D>(table, "mul" + rounding + ".f64");
  add_directed<Mode, FloatDivide, D, D, D>(table, "div" + rounding + ".f64");
  add_directed<Mode, DirectedFused, D, D, D, D>(table, "fma" + rounding + ".f64");
  add_directed<Mode, DirectedReciprocal, D, D>(table, "rcp" + rounding + ".f64");
  add_directed<Mode, DirectedSquareRoot, D, D>(table, "sqrt" + rounding + ".f64");
  add_directed<Mode, ConvertTo<float>, float, D>(table, "cvt" + rounding + ".f32.f64");
  add_directed<Mode, Ftz<Narrow>, float, D>(table, "cvt" + rounding + ".ftz.f32.f64");
  add_from_integer<Mode, uint8_t>(table, rounding, ".u8");
  add_from_integer<Mode, int8_t>(table, rounding, ".s8");
  add_from_integer<Mode, uint16_t>(table, rounding, ".u16");
  add_from_integer<Mode, int16_t>(table, rounding, ".s16");
  add_from_integer<Mode, uint32_t>(table, rounding, ".u32");
  add_from_integer<Mode, int32_t>(table, rounding, ".s32");
  add_from_integer<Mode, uint64_t>(table, rounding, ".u64");
  add_from_integer<Mode, int64_t>(table, rounding, ".s64");
}

}  // namespace

void add_directed_rounding_operations(Table& table) {
  add_mode<FE_TOWARDZERO>(table, ".rz");
  add_mode<FE_DOWNWARD>(table, ".rm");
  add_mode<FE_UPWARD>(table, ".rp");
}

}  // namespace workbench::emulator::WORKBENCH_ISA
