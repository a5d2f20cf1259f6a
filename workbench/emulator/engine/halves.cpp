// f16, bf16 and their pairs.
#include <tuple>

#include "approximate.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

struct Exponential2 {
  template <class T>
  T operator()(T a) const {
    if constexpr (is_half<T>)
      return T(std::exp2(static_cast<float>(a)));
    else
      return std::exp2(a);
  }
};
struct HyperbolicTangent {
  template <class T>
  T operator()(T a) const {
    if constexpr (is_half<T>)
      return T(std::tanh(static_cast<float>(a)));
    else
      return std::tanh(a);
  }
};

// One operation on H and on pairs of H; A is how many sources it has. Subnormals are left alone: a half that
// is subnormal is never flushed by default, and .ftz on halves is accepted without effect for bf16, which PTX
// defines so.
template <class Op, class H, int Sources>
void add_both(Table& table, const std::string& name, const std::string& type) {
  using P = Pair<H>;
  if constexpr (Sources == 1) {
    add_lanewise<Op, H, H>(table, name + type);
    add_lanewise<Both<Op>, P, P>(table, name + type + "x2");
  } else if constexpr (Sources == 2) {
    add_lanewise<Op, H, H, H>(table, name + type);
    add_lanewise<Both<Op>, P, P, P>(table, name + type + "x2");
  } else {
    add_lanewise<Op, H, H, H, H>(table, name + type);
    add_lanewise<Both<Op>, P, P, P, P>(table, name + type + "x2");
  }
}

template <class Op, class H>
void add_approximate(Table& table, const std::string& name, const std::string& type) {
  using P = Pair<H>;
  add_approximation<Op, H, H>(table, name + type);
  add_approximation<Both<Op>, P, P>(table, name + type + "x2");
}

// subnormal halves become zero
template <class Op>
struct FtzHalf {
  template <class H>
  static H flush16(H a) {
    constexpr int exponent = std::is_same_v<H, f16> ? 0x7c00 : 0x7f80;
    return (a.bits & exponent) ? a : bit_cast<H>(static_cast<uint16_t>(a.bits & 0x8000));
  }
  template <class H, class... A>
  H operator()(H a, A... rest) const {
    const H result = Op()(flush16(a), flush16(rest)...);
    if constexpr (Exact<Op>::known && std::is_same_v<H, f16>) {
      const auto wide = [](H x) { return static_cast<double>(static_cast<float>(flush16(x))); };
      if (is_tiny<Op, f16>(wide(a), wide(rest)...))
        return bit_cast<H>(static_cast<uint16_t>(result.bits & 0x8000));
    }
    return flush16(result);
  }
};

template <class Op, int Sources>
void add_f16(Table& table, const std::string& name) {
  add_both<Op, f16, Sources>(table, name, ".f16");
  add_both<FtzHalf<Op>, f16, Sources>(table, name + ".ftz", ".f16");
}

template <bool Max, class H>
void add_extremes(Table& table, const std::string& name, const std::string& type) {
  using Number = FloatExtreme<Max, false>;
  using Nan = FloatExtreme<Max, true>;
  add_both<Number, H, 2>(table, name, type);
  add_both<Nan, H, 2>(table, name + ".NaN", type);
  add_both<XorSignAbsolute<Number>, H, 2>(table, name + ".xorsign.abs", type);
  add_both<XorSignAbsolute<Nan>, H, 2>(table, name + ".NaN.xorsign.abs", type);
}

template <bool Max>
void add_f16_extremes(Table& table, const std::string& name) {
  using Number = FloatExtreme<Max, false>;
  using Nan = FloatExtreme<Max, true>;
  add_extremes<Max, f16>(table, name, ".f16");
  add_both<FtzHalf<Number>, f16, 2>(table, name + ".ftz", ".f16");
  add_both<FtzHalf<Nan>, f16, 2>(table, name + ".ftz.NaN", ".f16");
  add_both<FtzHalf<XorSignAbsolute<Number>>, f16, 2>(table, name + ".ftz.xorsign.abs", ".f16");
  add_both<FtzHalf<XorSignAbsolute<Nan>>, f16, 2>(table, name + ".ftz.NaN.xorsign.abs", ".f16");
}

}  // namespace

void add_half_operations(Table& table) {
  for (const char* rounding : {"", ".rn"}) {
    const auto name = [&](const char* base) { return base + std::string(rounding); };
    add_f16<FloatAdd, 2>(table, name("add"));
    add_f16<FloatSubtract, 2>(table, name("sub"));
    add_f16<FloatMultiply, 2>(table, name("mul"));
    add_both<Sat<FloatAdd>, f16, 2>(table, name("add") + ".sat", ".f16");
    add_both<Sat<FloatSubtract>, f16, 2>(table, name("sub") + ".sat", ".f16");
    add_both<Sat<FloatMultiply>, f16, 2>(table, name("mul") + ".sat", ".f16");
    add_both<FtzHalf<Sat<FloatAdd>>, f16, 2>(table, name("add") + ".ftz.sat", ".f16");
    add_both<FtzHalf<Sat<FloatSubtract>>, f16, 2>(table, name("sub") + ".ftz.sat", ".f16");
    add_both<FtzHalf<Sat<FloatMultiply>>, f16, 2>(table, name("mul") + ".ftz.sat", ".f16");
    add_both<FloatAdd, bf16, 2>(table, name("add"), ".bf16");
    add_both<FloatSubtract, bf16, 2>(table, name("sub"), ".bf16");
    add_both<FloatMultiply, bf16, 2>(table, name("mul"), ".bf16");
  }
  add_f16<Fused, 3>(table, "fma.rn");
  add_both<Sat<Fused>, f16, 3>(table, "fma.rn.sat", ".f16");
  add_both<ReluOf<Fused>, f16, 3>(table, "fma.rn.relu", ".f16");
  add_both<FtzHalf<Sat<Fused>>, f16, 3>(table, "fma.rn.ftz.sat", ".f16");
  add_both<FtzHalf<ReluOf<Fused>>, f16, 3>(table, "fma.rn.ftz.relu", ".f16");
  add_both<Fused, bf16, 3>(table, "fma.rn", ".bf16");
  add_both<ReluOf<Fused>, bf16, 3>(table, "fma.rn.relu", ".bf16");
  add_f16<FloatNegate, 1>(table, "neg");
  add_f16<FloatAbsolute, 1>(table, "abs");
  add_both<FloatNegate, bf16, 1>(table, "neg", ".bf16");
  add_both<FloatAbsolute, bf16, 1>(table, "abs", ".bf16");
  add_f16_extremes<false>(table, "min");
  add_f16_extremes<true>(table, "max");
  add_extremes<false, bf16>(table, "min", ".bf16");
  add_extremes<true, bf16>(table, "max", ".bf16");
  using Ex2 = Exponential2;
  using Tanh = HyperbolicTangent;
  add_approximate<Approximate<Ex2, Relative<99>>, f16>(table, "ex2.approx", ".f16");
  add_approximate<FtzHalf<Approximate<Ex2, Relative<70>>>, bf16>(table, "ex2.approx.ftz", ".bf16");
  add_approximate<Approximate<Tanh, Absolute<110>>, f16>(table, "tanh.approx", ".f16");
  add_approximate<Approximate<Tanh, Absolute<80>>, bf16>(table, "tanh.approx", ".bf16");
}

}  // namespace workbench::emulator::WORKBENCH_ISA
