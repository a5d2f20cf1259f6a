// f32 and f64 arithmetic, rounded to nearest. The .approx functions are within the bounds that PTX states but
// not bit for bit what a GPU gives.
#include <tuple>

#include "approximate.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

struct Reciprocal {
  template <class T>
  T operator()(T a) const {
    return T(1) / a;
  }
};
struct SquareRoot {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct ReciprocalSquareRoot {
  float operator()(float a) const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }
  double operator()(double a) const { return 1.0 / std::sqrt(a); }
};
template <class Op>
struct Coarse {  // rcp/rsqrt.approx.ftz.f64: the low half of the result is zero, as are subnormal numbers
  static double flushed(double a) { return std::fabs(a) < 0x1p-1022 ? std::copysign(0.0, a) : a; }
  double operator()(double a) const {
    return bit_cast<double>(bit_cast<uint64_t>(flushed(Op()(flushed(a)))) & ~0xffffffffull);
  }
};
struct Sine {
  template <class T>
  T operator()(T a) const {
    return std::isinf(a) ? T(NAN) : std::sin(a);
  }
};
struct Cosine {
  template <class T>
  T operator()(T a) const {
    return std::isinf(a) ? T(NAN) : std::cos(a);
  }
};
struct Exponential2 {
  template <class T>
  T operator()(T a) const {
    return std::exp2(a);
  }
};
struct Logarithm2 {
  template <class T>
  T operator()(T a) const {
    return std::log2(a);
  }
};
struct HyperbolicTangent {
  template <class T>
  T operator()(T a) const {
    return std::tanh(a);
  }
};

// a * (1 / b), where the reciprocal of the largest b is flushed to zero (PTX ISA, div)
struct FastDivide {
  template <class T>
  T operator()(T a, T b) const {
    return std::isfinite(b) && std::fabs(b) > T(0x1p126) ? a * std::copysign(T(0), b) : a / b;
  }
};

enum { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

template <int What>
struct IsClass {
  template <class T>
  bool operator()(T a) const {
    switch (What) {
      case kFinite:
        return std::isfinite(a);
      case kInfinite:
        return std::isinf(a);
      case kNumber:
        return a == a;
      case kNotANumber:
        return a != a;
      case kNormal:
        return a == 0 || std::isnormal(a);  // zeros count as normal
      default:
        return std::fpclassify(a) == FP_SUBNORMAL;
    }
  }
};

template <class Op, class... A>
void add_with_ftz(Table& table, const std::string& name) {
  add_lanewise<Op, float, A...>(table, name + ".f32");
  add_lanewise<Ftz<Op>, float, A...>(table, name + ".ftz.f32");
}

template <class Op, class Error, class... A>
void add_approximate(Table& table, const std::string& name) {
  using Inexact = Approximate<Op, Error>;
  add_approximation<Inexact, float, A...>(table, name + ".f32");
  add_approximation<Ftz<Inexact>, float, A...>(table, name + ".ftz.f32");
}

// name, name.rn, with and without .ftz and .sat
template <class Op, class... A>
void add_arithmetic(Table& table, const std::string& name) {
  for (const char* rounding : {"", ".rn"}) {
    add_with_ftz<Op, A...>(table, name + rounding);
    add_lanewise<Sat<Op>, float, A...>(table, name + rounding + ".sat.f32");
    add_lanewise<Sat<Ftz<Op>>, float, A...>(table, name + rounding + ".ftz.sat.f32");
  }
}

template <class Op, class... A>
void add_pairs(Table& table, const std::string& name) {
  for (const char* rounding : {"", ".rn"}) {
    add_lanewise<EachOfTwo<Op>, uint64_t, A...>(table, name + rounding + ".f32x2");
    add_lanewise<EachOfTwo<Ftz<Op>>, uint64_t, A...>(table, name + rounding + ".ftz.f32x2");
  }
}

template <class Op>
void add_double(Table& table, const std::string& name) {
  for (const char* rounding : {"", ".rn"})
    add_lanewise<Op, double, double, double>(table, name + rounding + ".f64");
}

template <bool Max>
void add_extremes(Table& table, const std::string& name) {
  using Number = FloatExtreme<Max, false>;
  using Nan = FloatExtreme<Max, true>;
  for (const char* ftz : {"", ".ftz"}) {
    const auto add = [&](auto op, const char* form) {
      add_lanewise<decltype(op), float, float, float>(table, name + ftz + form + ".f32");
    };
    if (*ftz) {
      add(Ftz<Number>(), ""), add(Ftz<Nan>(), ".NaN");
      add(Ftz<XorSignAbsolute<Number>>(), ".xorsign.abs"),
          add(Ftz<XorSignAbsolute<Nan>>(), ".NaN.xorsign.abs");
    } else {
      add(Number(), ""), add(Nan(), ".NaN");
      add(XorSignAbsolute<Number>(), ".xorsign.abs"), add(XorSignAbsolute<Nan>(), ".NaN.xorsign.abs");
    }
  }
  add_lanewise<FloatExtreme<Max, false>, double, double, double>(table, name + ".f64");
}

template <int What>
void add_class(Table& table, const std::string& name) {
  add_lanewise<IsClass<What>, bool, float>(table, "testp." + name + ".f32");
  add_lanewise<IsClass<What>, bool, double>(table, "testp." + name + ".f64");
}

}  // namespace

void add_float_operations(Table& table) {
  add_arithmetic<FloatAdd, float, float>(table, "add");
  add_arithmetic<FloatSubtract, float, float>(table, "sub");
  add_arithmetic<FloatMultiply, float, float>(table, "mul");
  add_arithmetic<Fused, float, float, float>(table, "fma");
  add_pairs<FloatAdd, uint64_t, uint64_t>(table, "add");
  add_pairs<FloatSubtract, uint64_t, uint64_t>(table, "sub");
  add_pairs<FloatMultiply, uint64_t, uint64_t>(table, "mul");
  add_pairs<Fused, uint64_t, uint64_t, uint64_t>(table, "fma");
  add_double<FloatAdd>(table, "add");
  add_double<FloatSubtract>(table, "sub");
  add_double<FloatMultiply>(table, "mul");
  add_lanewise<Fused, double, double, double, double>(table, "fma.rn.f64");
  add_with_ftz<FloatDivide, float, float>(table, "div.rn");
  add_approximate<FastDivide, UnitsInLastPlace<2>, float, float>(table, "div.approx");
  add_approximate<FloatDivide, UnitsInLastPlace<2>, float, float>(table, "div.full");
  add_lanewise<FloatDivide, double, double, double>(table, "div.rn.f64");

  add_with_ftz<FloatNegate, float>(table, "neg");
  add_with_ftz<FloatAbsolute, float>(table, "abs");
  add_lanewise<FloatNegate, double, double>(table, "neg.f64");
  add_lanewise<FloatAbsolute, double, double>(table, "abs.f64");
  add_lanewise<CopySign, float, float, float>(table, "copysign.f32");
  add_lanewise<CopySign, double, double, double>(table, "copysign.f64");
  add_extremes<false>(table, "min");
  add_extremes<true>(table, "max");

  add_with_ftz<Reciprocal, float>(table, "rcp.rn");
  add_with_ftz<SquareRoot, float>(table, "sqrt.rn");
  add_approximate<Reciprocal, UnitsInLastPlace<1>, float>(table, "rcp.approx");
  add_approximate<SquareRoot, Relative<230>, float>(table, "sqrt.approx");
  add_lanewise<Reciprocal, double, double>(table, "rcp.rn.f64");
  add_lanewise<SquareRoot, double, double>(table, "sqrt.rn.f64");
  add_lanewise<Coarse<Reciprocal>, double, double>(table, "rcp.approx.ftz.f64");
  add_lanewise<Coarse<ReciprocalSquareRoot>, double, double>(table, "rsqrt.approx.ftz.f64");
  add_lanewise<ReciprocalSquareRoot, double, double>(table, "rsqrt.approx.f64");
  add_approximate<ReciprocalSquareRoot, Relative<229>, float>(table, "rsqrt.approx");
  add_approximate<Sine, OfWave, float>(table, "sin.approx");
  add_approximate<Cosine, OfWave, float>(table, "cos.approx");
  add_approximate<Exponential2, UnitsInLastPlace<2>, float>(table, "ex2.approx");
  add_approximate<Logarithm2, OfLogarithm, float>(table, "lg2.approx");
  add_approximation<Approximate<HyperbolicTangent, Relative<110>>, float, float>(table, "tanh.approx.f32");

  add_class<kFinite>(table, "finite");
  add_class<kInfinite>(table, "infinite");
  add_class<kNumber>(table, "number");
  add_class<kNotANumber>(table, "notanumber");
  add_class<kNormal>(table, "normal");
  add_class<kSubnormal>(table, "subnormal");
}

}  // namespace workbench::emulator::WORKBENCH_ISA
