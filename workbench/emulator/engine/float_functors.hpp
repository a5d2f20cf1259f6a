// What the floating-point operations compute, for all types, and the modifiers that wrap them.
#pragma once

#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// a * b + c rounded once.
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

// The nearest double to p + c, moved to the odd neighbour when it is not exact.
inline double add_to_odd(double p, double c) {
  const double sum = p + c, q = sum - p, error = (p - (sum - q)) + (c - q);
  uint64_t bits = bit_cast<uint64_t>(sum);
  const uint64_t finite = (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u ? 1 : 0;
  const uint64_t even = ~bits & 1, inexact = error != 0 ? 1 : 0;
  const uint64_t outward = (bit_cast<uint64_t>(error) ^ bits) >> 63;  // 1: the true sum is nearer to zero
  bits += (finite & even & inexact) * (1 - 2 * outward);
  return bit_cast<double>(bits);
}

inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  // without the instruction: the product is exact in double, and a sum rounded to odd survives the second
  // rounding
  return static_cast<float>(
      add_to_odd(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
#endif
}

inline f16 fused(f16 a, f16 b, f16 c) {
  return f16(round_to_odd(add_to_odd(static_cast<double>(static_cast<float>(a) * static_cast<float>(b)),
                                     static_cast<double>(static_cast<float>(c)))));
}
inline bf16 fused(bf16 a, bf16 b, bf16 c) {
  return bf16(round_to_odd(
      add_to_odd(static_cast<double>(static_cast<float>(a)) * static_cast<double>(static_cast<float>(b)),
                 static_cast<double>(static_cast<float>(c)))));
}

template <class T>
inline bool is_nan(T a) {
  if constexpr (is_half<T>) {
    constexpr int infinity = std::is_same_v<T, f16> ? 0x7c00 : 0x7f80;
    return (a.bits & 0x7fff) > infinity;
  } else {
    return a != a;
  }
}

template <class T>
inline T canonical_nan() {
  if constexpr (std::is_same_v<T, double>)
    return bit_cast<double>(0x7ff8000000000000u);
  else if constexpr (std::is_same_v<T, float>)
    return bit_cast<float>(0x7fffffffu);
  else
    return bit_cast<T>(static_cast<uint16_t>(0x7fff));
}

template <class T>
inline bool sign_bit(T a) {
  if constexpr (is_half<T>)
    return a.bits >> 15;
  else
    return std::signbit(a);
}

template <class T>
using Bits =
    std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
template <class T>
constexpr Bits<T> kSign = static_cast<Bits<T>>(Bits<T>(1) << (8 * sizeof(T) - 1));

struct FloatAdd {
  template <class T>
  T operator()(T a, T b) const {
    return T(a + b);
  }
};
struct FloatSubtract {
  template <class T>
  T operator()(T a, T b) const {
    return T(a - b);
  }
};
struct FloatMultiply {
  template <class T>
  T operator()(T a, T b) const {
    return T(a * b);
  }
};
struct FloatDivide {
  template <class T>
  T operator()(T a, T b) const {
    return T(a / b);
  }
};
struct Fused {
  template <class T>
  T operator()(T a, T b, T c) const {
    return fused(a, b, c);
  }
};
struct FloatNegate {
  template <class T>
  T operator()(T a) const {
    return bit_cast<T>(static_cast<Bits<T>>(bit_cast<Bits<T>>(a) ^ kSign<T>));
  }
};
struct FloatAbsolute {
  template <class T>
  T operator()(T a) const {
    return bit_cast<T>(static_cast<Bits<T>>(bit_cast<Bits<T>>(a) & ~kSign<T>));
  }
};
struct Narrow {
  float operator()(double a) const { return static_cast<float>(a); }
};
struct CopySign {  // the sign of a on b
  template <class T>
  T operator()(T a, T b) const {
    return bit_cast<T>(
        static_cast<Bits<T>>((bit_cast<Bits<T>>(a) & kSign<T>) | (bit_cast<Bits<T>>(b) & ~kSign<T>)));
  }
};

// min and max: of a number and a NaN the number (or, with .NaN, the NaN), and -0 is less than +0
template <bool Max, bool PropagateNan>
struct FloatExtreme {
  template <class T>
  T operator()(T a, T b) const {
    const bool a_nan = is_nan(a), b_nan = is_nan(b);
    const bool a_less = a < b || (a == b && sign_bit(a));
    T result = a_less != Max ? a : b;
    if (PropagateNan) return a_nan || b_nan ? canonical_nan<T>() : result;
    result = a_nan ? b : result;
    result = b_nan ? a : result;
    return a_nan && b_nan ? canonical_nan<T>() : result;
  }
};
template <class Extreme>
struct XorSignAbsolute {
  template <class T>
  T operator()(T a, T b) const {
    const Bits<T> sign = static_cast<Bits<T>>((bit_cast<Bits<T>>(a) ^ bit_cast<Bits<T>>(b)) & kSign<T>);
    const T magnitude = Extreme()(FloatAbsolute()(a), FloatAbsolute()(b));
    return is_nan(magnitude) ? magnitude
                             : bit_cast<T>(static_cast<Bits<T>>(bit_cast<Bits<T>>(magnitude) | sign));
  }
};

// ---- modifiers

inline float flush(float a) { return std::fabs(a) < 0x1p-126f ? std::copysign(0.0f, a) : a; }
template <class T>
inline T flush(T a) {
  return a;
}

// What .ftz flushes, as an H200 has it: results that are below the smallest normal number after they were
// rounded as if exponents had no limit.

// Of rounded operations on operands as doubles, value(a...), which rounds as the exact result does: in
// double, products are exact, and quotients no closer to a power of two than they were. Of other operations
// the rounded result is asked.
template <class Op>
struct Exact {
  static constexpr bool known = false;
};
template <>
struct Exact<FloatMultiply> {
  static constexpr bool known = true;
  static double value(double a, double b) { return a * b; }
};
template <>
struct Exact<FloatDivide> {
  static constexpr bool known = true;
  static double value(double a, double b) { return a / b; }
};
template <>
struct Exact<Fused> {
  static constexpr bool known = true;
  static double value(double a, double b, double c) { return add_to_odd(a * b, c); }
};
template <>
struct Exact<Narrow> {
  static constexpr bool known = true;
  static double value(double a) { return a; }
};

inline float rounded(double a, float) { return static_cast<float>(a); }
inline float rounded(double a, f16) { return static_cast<float>(f16(round_to_odd(a))); }

// Whether .ftz flushes the result of Op, a T, for operands as doubles.
template <class Op, class T, class... A>
bool is_tiny(A... a) {
  constexpr double smallest = std::is_same_v<T, f16> ? 0x1p-14 : 0x1p-126;
  return std::fabs(rounded(Exact<Op>::value(a...) / smallest, T())) < 1;  // far from where exponents end
}

template <class Op>
struct Ftz {
  template <class... A>
  auto operator()(A... a) const {
    const auto result = Op()(flush(a)...);
    if constexpr (Exact<Op>::known)
      return is_tiny<Op, float>(static_cast<double>(flush(a))...) ? std::copysign(0.0f, result) : result;
    else
      return flush(result);
  }
};
template <class Op>
struct Sat {
  template <class... A>
  auto operator()(A... a) const {
    const auto r = Op()(a...);
    using R = std::remove_const_t<decltype(r)>;
    return !(r > R(0.0f)) ? R(0.0f) : r > R(1.0f) ? R(1.0f) : r;  // NaN becomes 0
  }
};
template <class Op>
struct ReluOf {
  template <class... A>
  auto operator()(A... a) const {
    const auto r = Op()(a...);
    using R = std::remove_const_t<decltype(r)>;
    return is_nan(r) ? canonical_nan<R>() : r > R(0.0f) ? r : R(0.0f);
  }
};
template <class Op>
struct Exact<Sat<Op>> : Exact<Op> {};
template <class Op>
struct Exact<ReluOf<Op>> : Exact<Op> {};
template <class Op>
struct Both {  // on each half of a pair
  template <class H, class... A>
  Pair<H> operator()(Pair<H> a, A... rest) const {
    return {Op()(a.low, rest.low...), Op()(a.high, rest.high...)};
  }
};

// Two numbers in one register of 64 bits.
template <class Op>
struct EachOfTwo {
  template <class... A>
  uint64_t operator()(A... a) const {
    const auto half = [&](int shift) {
      return uint64_t{bit_cast<uint32_t>(Op()(bit_cast<float>(static_cast<uint32_t>(a >> shift))...))}
             << shift;
    };
    return half(0) | half(32);
  }
};
}  // namespace workbench::emulator::WORKBENCH_ISA
