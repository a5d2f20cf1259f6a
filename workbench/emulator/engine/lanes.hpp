// How operations read and write registers: 32 lanes at a time, through a temporary.
//
// A result is computed for all 32 lanes into an array of its own and then stored where lanes are active. The
// temporary costs little, lets the compiler vectorise without knowing whether registers overlap, and makes an
// instruction whose destination is one of its sources right, whatever the widths. Registers are read as
// whatever type an instruction wants; the engine is therefore built with -fno-strict-aliasing.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "half.hpp"
#include "machine.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// The element that a value of type T lies in: 32 bits for everything that is not 64 bits wide.
template <class T>
using Cell = std::conditional_t<
    sizeof(T) == 8 || std::is_same_v<T, float>, T,
    std::conditional_t<std::is_same_v<T, int32_t> || std::is_same_v<T, bool>, int32_t, uint32_t>>;

template <class T>
inline T from_cell(Cell<T> cell) {
  if constexpr (std::is_same_v<T, bool>)
    return cell != 0;
  else if constexpr (is_half<T>)
    return bit_cast<T>(static_cast<uint16_t>(cell));
  else if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(cell);
  else
    return bit_cast<T>(cell);
}

template <class T>
inline Cell<T> to_cell(T value) {
  if constexpr (std::is_same_v<T, bool>)
    return -static_cast<int32_t>(value);
  else if constexpr (is_half<T>)
    return value.bits;
  else if constexpr (std::is_arithmetic_v<T>)
    return static_cast<Cell<T>>(value);
  else
    return bit_cast<Cell<T>>(value);
}

template <class C>
inline const C* source_cells(const Warp& warp, const Operand& operand) {
  const uint8_t* cells = operand.slot >= 0 ? warp.registers + operand.slot : warp.constants + ~operand.slot;
  return reinterpret_cast<const C*>(__builtin_assume_aligned(cells, 128));
}

template <class C>
inline C* register_cells(const Warp& warp, const Operand& operand) {
  return reinterpret_cast<C*>(__builtin_assume_aligned(warp.registers + operand.slot, 128));
}

template <class T>
class Source {
 public:
  Source(const Warp& warp, const Operand& operand) : cells_(source_cells<Cell<T>>(warp, operand)) {
    if constexpr (std::is_same_v<T, bool>) negated_ = operand.offset != 0;
  }
  T operator[](int lane) const {
    if constexpr (std::is_same_v<T, bool>)
      return (cells_[lane] != 0) != negated_;
    else
      return from_cell<T>(cells_[lane]);
  }

 private:
  const Cell<T>* cells_;
  bool negated_ = false;
};

// Stores 32 results where lanes are active.
template <class C>
inline void write_cells(const Warp& warp, const Operand& operand, const C* values) {
  if (operand.slot == kAbsent) return;
  C* cells = register_cells<C>(warp, operand);
  if (warp.active == ~0u) {
    std::memcpy(cells, values, sizeof(C) * kLanes);
  } else {
    for (int l = 0; l < kLanes; ++l) cells[l] = warp.lane_mask[l] ? values[l] : cells[l];
  }
}

template <class R, class F>
inline void write_lanes(const Warp& warp, const Operand& operand, F value) {
  alignas(64) Cell<R> values[kLanes];
  for (int l = 0; l < kLanes; ++l) values[l] = to_cell<R>(value(l));
  write_cells(warp, operand, values);
}

template <class Op, class R, class... A, size_t... I>
inline void apply_lanes(const Warp& warp, const Instruction& instruction, std::index_sequence<I...>) {
  const std::tuple<Source<A>...> sources{Source<A>(warp, instruction.operands[I + 1])...};
  write_lanes<R>(warp, instruction.operands[0], [&](int l) { return Op()(std::get<I>(sources)[l]...); });
}

// The operation `destination = Op(sources...)` on every lane; nearly all arithmetic is an instance of this.
template <class Op, class R, class... A>
void lanewise(Warp& warp, const Instruction& instruction) {
  apply_lanes<Op, R, A...>(warp, instruction, std::index_sequence_for<A...>());
}

template <class T>
constexpr char source_letter() {
  if constexpr (std::is_same_v<T, bool>)
    return 'p';
  else if constexpr (std::is_same_v<T, float>)
    return 'f';
  else if constexpr (std::is_same_v<T, double>)
    return 'e';
  else
    return sizeof(T) == 8 ? 'd' : 'w';
}

template <class R, class... A>
constexpr char kSignature[] = {std::is_same_v<R, bool> ? 'P'
                               : sizeof(R) == 8        ? 'D'
                                                       : 'W',
                               source_letter<A>()..., '\0'};

template <class R, class... A>
std::string signature_of() {
  return kSignature<R, A...>;
}

template <class Op, class R, class... A>
void add_lanewise(Table& table, const std::string& name) {
  table.add(name, signature_of<R, A...>(), lanewise<Op, R, A...>);
}

template <class Op, class R, class... A>
void add_lanewise(Table& table, std::initializer_list<const char*> name) {
  table.add(name, kSignature<R, A...>, lanewise<Op, R, A...>);
}

template <class F>
inline void for_lanes(uint32_t mask, F f) {
  for (; mask; mask &= mask - 1) f(__builtin_ctz(mask));
}

inline uint32_t lanes_of(const int32_t* predicate) {
  uint32_t mask = 0;
  for (int l = 0; l < kLanes; ++l) mask |= (predicate[l] ? 1u : 0u) << l;
  return mask;
}

// Addresses of all lanes, offset included.
inline void read_addresses(const Warp& warp, const Operand& operand, uint64_t* address) {
  const uint64_t offset = static_cast<uint64_t>(operand.offset);
  if (operand.bytes == 8) {
    const uint64_t* cells = source_cells<uint64_t>(warp, operand);
    for (int l = 0; l < kLanes; ++l) address[l] = cells[l] + offset;
  } else {
    const uint32_t* cells = source_cells<uint32_t>(warp, operand);
    for (int l = 0; l < kLanes; ++l)
      address[l] = static_cast<uint32_t>(cells[l] + static_cast<uint32_t>(offset));
  }
}

// The value of an operand that must be the same for the whole warp; read from the first active lane.
inline uint32_t uniform(const Warp& warp, const Operand& operand) {
  return source_cells<uint32_t>(warp, operand)[__builtin_ctz(warp.active)];
}

}  // namespace workbench::emulator::WORKBENCH_ISA
