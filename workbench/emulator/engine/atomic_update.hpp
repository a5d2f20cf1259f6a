// Updates of memory that no other host thread can come between, and the functions they apply.
#pragma once

#include "float_functors.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

struct AtomicAdd {
  template <class T>
  T operator()(T old, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) +
                            static_cast<std::make_unsigned_t<T>>(b));
    else
      return FloatAdd()(old, b);
  }
};
struct AtomicMinimum {
  template <class T>
  T operator()(T old, T b) const {
    if constexpr (std::is_integral_v<T>)
      return b < old ? b : old;
    else
      return FloatExtreme<false, false>()(old, b);
  }
};
struct AtomicMaximum {
  template <class T>
  T operator()(T old, T b) const {
    if constexpr (std::is_integral_v<T>)
      return old < b ? b : old;
    else
      return FloatExtreme<true, false>()(old, b);
  }
};
struct AtomicIncrement {
  template <class T>
  T operator()(T old, T b) const {
    return old >= b ? T(0) : static_cast<T>(old + 1);
  }
};
struct AtomicDecrement {
  template <class T>
  T operator()(T old, T b) const {
    return old == 0 || old > b ? b : static_cast<T>(old - 1);
  }
};
struct AtomicAnd {
  template <class T>
  T operator()(T old, T b) const {
    return static_cast<T>(old & b);
  }
};
struct AtomicOr {
  template <class T>
  T operator()(T old, T b) const {
    return static_cast<T>(old | b);
  }
};
struct AtomicXor {
  template <class T>
  T operator()(T old, T b) const {
    return static_cast<T>(old ^ b);
  }
};

// Replaces what is at `p` by next(it), and returns what was there.
template <class T, class F>
T update(uint8_t* p, F next) {
  auto* word = reinterpret_cast<Bits<T>*>(p);
  Bits<T> old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, bit_cast<Bits<T>>(next(bit_cast<T>(old))), false,
                                      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  return bit_cast<T>(old);
}

// ---- reductions of bulk copies, by number: add, min, max, inc, dec, and, or, xor

constexpr int kReductions = 8;
const char* const* reduction_names();                               // ".add", ...
const std::vector<std::pair<std::string, int>>& reducible_types();  // PTX name, CUtensorMapDataType

// global[i] = global[i] op from[i]; false when the type does not have the operation.
bool reduce_bytes(int reduction, int element_type, uint8_t* global, const uint8_t* from, size_t bytes);

}  // namespace workbench::emulator::WORKBENCH_ISA
