// Floating-point formats narrower than 32 bits, and the exact roundings into them.
//
// Arithmetic on them is done in float and rounded once more: a float has more than twice their bits, so for +
// - * / and sqrt the second rounding is innocent. For fma it is not; see `fused` in floating.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "isa.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

template <class To, class From>
inline To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// The float next to `x` that is odd unless `x` is a float itself: rounding it again, to anything at least two
// bits narrower, gives what one rounding of `x` would have given.
inline float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  uint32_t bits = bit_cast<uint32_t>(nearest);
  const uint32_t finite = (bits & 0x7f800000u) != 0x7f800000u ? 1u : 0u;
  const uint32_t inexact = back != x ? 1u : 0u;
  const uint32_t overshot = std::fabs(back) > std::fabs(x) ? 1u : 0u;
  const uint32_t overflowed = (1u - finite) & (std::fabs(x) < INFINITY ? 1u : 0u);
  // an even neighbour moves to the odd one on the other side of x; an odd neighbour stays
  const uint32_t move = (finite | overflowed) & inexact & (~bits & 1u);
  bits += move * (1u - 2u * (overshot | overflowed));
  return bit_cast<float>(bits);
}

inline float half_to_float(uint32_t h) {
  const uint32_t magnitude = (h & 0x7fffu) << 13;
  const float scaled =
      bit_cast<float>(magnitude) * 0x1p112f;  // moves the exponent bias; exact for subnormals too
  uint32_t bits = bit_cast<uint32_t>(scaled);
  bits |= (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return bit_cast<float>(bits | (h & 0x8000u) << 16);
}

inline uint32_t float_to_half(float f) {
  const uint32_t bits = bit_cast<uint32_t>(f), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  const uint32_t normal =
      (magnitude + 0xc8000fffu + (magnitude >> 13 & 1u)) >> 13;  // carries into infinity by itself
  // adding 0.5 lines the last bit of a subnormal half up with the last bit of the sum, so the addition rounds
  const uint32_t subnormal = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x47800000u ? 0x7c00u : result;
  return magnitude > 0x7f800000u ? 0x7fffu : sign | result;  // a NaN becomes the canonical one
}

inline float bfloat_to_float(uint32_t b) { return bit_cast<float>(b << 16); }

inline uint32_t float_to_bfloat(float f) {
  const uint32_t bits = bit_cast<uint32_t>(f);
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

// The conversions to float are implicit so that one arithmetic template serves all types; the roundings are
// not.
struct f16 {
  uint16_t bits;
  f16() = default;
  explicit f16(float f) : bits(static_cast<uint16_t>(float_to_half(f))) {}
  operator float() const { return half_to_float(bits); }
};

struct bf16 {
  uint16_t bits;
  bf16() = default;
  explicit bf16(float f) : bits(static_cast<uint16_t>(float_to_bfloat(f))) {}
  operator float() const { return bfloat_to_float(bits); }
};

template <class H>
struct Pair {  // f16x2, bf16x2, and the integer pairs
  H low, high;
};
using f16x2 = Pair<f16>;
using bf16x2 = Pair<bf16>;
static_assert(sizeof(f16x2) == 4);

template <class T>
constexpr bool is_half = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

// ---- any small format, any rounding; not fast

enum class Rounding { nearest, zero, down, up, away };  // away: to nearest, ties away from zero

struct Format {
  int mantissa_bits, exponent_bits, bias;
  bool has_infinity;      // e4m3 has none and only one NaN
  uint32_t largest, nan;  // encodings without sign
};
constexpr Format kHalf{10, 5, 15, true, 0x7bff, 0x7fff};
constexpr Format kBfloat{7, 8, 127, true, 0x7f7f, 0x7fff};
constexpr Format kE4m3{3, 4, 7, false, 0x7e, 0x7f};
constexpr Format kE5m2{2, 5, 15, true, 0x7b, 0x7f};
constexpr Format kTf32{10, 8, 127, true, 0x3fbff, 0x3ffff};

inline double round_integral(double x, Rounding mode) {
  switch (mode) {
    case Rounding::nearest:
      return std::nearbyint(x);
    case Rounding::zero:
      return std::trunc(x);
    case Rounding::down:
      return std::floor(x);
    case Rounding::up:
      return std::ceil(x);
    case Rounding::away:
      return std::round(x);
  }
  return x;
}

// The encoding of `x`; `saturate` gives the largest finite value instead of infinity.
inline uint32_t encode(double x, const Format& format, Rounding mode, bool saturate) {
  const uint32_t sign = (std::signbit(x) ? 1u : 0u) << (format.mantissa_bits + format.exponent_bits);
  if (x != x) return format.nan;
  const uint32_t infinity = format.has_infinity ? format.largest + 1 : format.nan;
  const uint32_t beyond = sign | (saturate ? format.largest : infinity);
  if (std::isinf(x)) return beyond;
  if (x == 0) return sign;
  int exponent = std::ilogb(x);
  const int smallest = 1 - format.bias;
  if (exponent < smallest) exponent = smallest;
  const double steps = round_integral(std::ldexp(x, format.mantissa_bits - exponent), mode);
  // counted in units of the last place, mantissa and exponent are one integer, and a carry goes where it
  // should
  const int64_t magnitude = static_cast<int64_t>(std::fabs(steps)) +
                            (static_cast<int64_t>(exponent - smallest) << format.mantissa_bits);
  if (magnitude > static_cast<int64_t>(format.largest)) {
    const bool inward =
        mode == Rounding::zero || (mode == Rounding::down && x > 0) || (mode == Rounding::up && x < 0);
    return inward ? sign | format.largest : beyond;
  }
  return sign | static_cast<uint32_t>(magnitude);
}

inline float decode(uint32_t code, const Format& format) {
  const uint32_t magnitude = code & ((1u << (format.mantissa_bits + format.exponent_bits)) - 1);
  const float sign = code >> (format.mantissa_bits + format.exponent_bits) & 1 ? -1.0f : 1.0f;
  if (magnitude > format.largest)
    return format.has_infinity && magnitude == format.largest + 1 ? sign * INFINITY : NAN;
  const uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const double value =
      exponent ? std::ldexp(static_cast<double>(mantissa | 1u << format.mantissa_bits),
                            exponent - format.bias - format.mantissa_bits)
               : std::ldexp(static_cast<double>(mantissa), 1 - format.bias - format.mantissa_bits);
  return sign * static_cast<float>(value);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
