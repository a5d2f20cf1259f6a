// What operations on integers compute, where lanes and reductions over lanes share it.
#pragma once

#include "isa.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};

}  // namespace workbench::emulator::WORKBENCH_ISA
