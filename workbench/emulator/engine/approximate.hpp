// Approximations are off by a part of the error that PTX documents: its sign and size are drawn from the seed
// of the launch and the bits of the argument. What is exact stays exact, and seeds 0 and 1 give the nearest
// number.
#pragma once

#include <algorithm>

#include "float_functors.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

inline thread_local uint64_t approximation_seed = 0;

template <class T>
double half_of_last_place(double value) {
  constexpr int bits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, f16> ? 11 : 8;
  constexpr int least = std::is_same_v<T, f16> ? -24 : std::is_same_v<T, float> ? -149 : -133;
  return value == 0 ? std::ldexp(0.5, least) : std::ldexp(0.5, std::max(std::ilogb(value) - bits + 1, least));
}

// Documented errors, of a result near `value` in type T for the argument `a`.
// A subnormal result is a normal one that is scaled, which rounds it once more.
template <int Units>
struct UnitsInLastPlace {
  template <class T>
  static double of(double value, double) {
    constexpr int bits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, f16> ? 11 : 8;
    return value == 0 ? 0 : std::ldexp(Units, std::ilogb(value) - bits + 1);
  }
};
template <int Tenths>  // of a negative exponent of two
struct Relative {
  template <class T>
  static double of(double value, double) {
    return std::fabs(value) * std::exp2(-Tenths / 10.0);
  }
};
template <int Tenths>
struct Absolute {
  template <class T>
  static double of(double, double) {
    return std::exp2(-Tenths / 10.0);
  }
};
struct OfWave {  // documented for two periods; beyond them the error is that of the argument
  template <class T>
  static double of(double, double a) {
    return std::exp2(-20.5) * std::max(1.0, std::fabs(a) / 6.2831853);
  }
};
struct OfLogarithm {
  template <class T>
  static double of(double value, double a) {
    return std::exp2(-22.0) * (a > 0.5 && a < 2 ? 1.0 : std::fabs(value));
  }
};

// From -1 to 1. Of four seeds one has all errors positive, and one all negative.
inline double drawn_error(uint64_t argument) {
  Random random{approximation_seed};
  const uint64_t mode = random.next();
  const double size = 0.25 + 0.75 * static_cast<double>(random.next() >> 11) * 0x1p-53;
  if (mode % 4 == 0) return size;
  if (mode % 4 == 1) return -size;
  Random of_argument{approximation_seed ^ argument * 0x9e3779b97f4a7c15ull};
  return size * (static_cast<double>(of_argument.next() >> 11) * 0x1p-52 - 1.0);
}

inline double widened(double a) { return a; }
inline double widened(float a) { return static_cast<double>(a); }
template <class H, class = std::enable_if_t<is_half<H>>>
double widened(H a) {
  return static_cast<double>(static_cast<float>(a));
}

template <class Op, class Error>
struct Approximate {
  template <class T, class... A>
  T operator()(T a, A... rest) const {
    const T nearest = Op()(a, rest...);
    if (approximation_seed == 0) return nearest;
    const double exact = Op()(widened(a), widened(rest)...), first = widened(a);
    if (!std::isfinite(exact) || !std::isfinite(widened(nearest)) || widened(nearest) == exact)
      return nearest;
    const double room = Error::template of<T>(exact, first) - half_of_last_place<T>(exact);
    uint64_t argument = bit_cast<uint64_t>(first);
    ((argument = argument * 31 + bit_cast<uint64_t>(widened(rest))), ...);
    const double moved = exact + std::max(room, 0.0) * drawn_error(argument);
    const T result = T(static_cast<float>(moved));
    return std::isfinite(widened(result)) ? result : nearest;
  }
};

template <class Op, class R, class... A>
void approximated(Warp& warp, const Instruction& instruction) {
  approximation_seed = warp.machine->launch->seed >> 1;  // other orders of warps have the same errors
  lanewise<Op, R, A...>(warp, instruction);
}
template <class Op, class R, class... A>
void add_approximation(Table& table, const std::string& name) {
  table.add(name, signature_of<R, A...>(), approximated<Op, R, A...>);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
