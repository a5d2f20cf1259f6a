// atom and red. Host threads may run blocks that meet in global memory, so every update is a
// compare-and-swap.
#include <tuple>

#include "atomic_update.hpp"
#include "memory.hpp"
#include "race.hpp"
#include "scheduler.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

struct Exchange {
  template <class T>
  T operator()(T, T b) const {
    return b;
  }
};
struct CompareAndSwap {
  template <class T>
  T operator()(T old, T compare, T value) const {
    return old == compare ? value : old;
  }
};

// variant: the space, and whether there is a destination (atom) or none (red)
constexpr int kReduction = 16;

// Sums of f32 in global memory know no subnormal numbers, those in shared memory do.
template <class T>
T flushed_sum(T a, T b) {
  return flush(AtomicAdd()(flush(a), flush(b)));
}
Space space_of(const Instruction& instruction) { return static_cast<Space>(instruction.variant & 15); }

template <class T, class Op, int Sources>
void atomic(Warp& warp, const Instruction& instruction) {
  const bool reduction = (instruction.variant & kReduction) != 0;
  const Operand* operands = instruction.operands + (reduction ? 0 : 1);
  uint64_t address[kLanes];
  uint8_t* pointer[kLanes];
  read_addresses(warp, operands[0], address);
  resolve(warp, static_cast<Space>(instruction.variant & 15), address, sizeof(T), Access::atomic, pointer);
  race_released(warp, static_cast<Space>(instruction.variant & 15), address, instruction.flags, true);
  const Source<T> b(warp, operands[1]), c(warp, operands[Sources]);
  Cell<T> old[kLanes] = {};
  {
    const auto in_order = race_in_order(warp);
    for_lanes(warp.active, [&](int l) {
      old[l] = to_cell<T>(update<T>(pointer[l], [&](T value) {
        if constexpr (std::is_same_v<Op, AtomicAdd> && std::is_same_v<T, float>)
          if (in_global(space_of(instruction), address[l])) return flushed_sum(value, b[l]);
        if constexpr (Sources == 2)
          return Op()(value, b[l], c[l]);
        else
          return Op()(value, b[l]);
      }));
    });
    race_observed(warp, static_cast<Space>(instruction.variant & 15), address, sizeof(T), Access::atomic);
  }
  const int first = __builtin_ctz(warp.active);
  may_give_way(warp, in_global(space_of(instruction), address[first]), reduction ? nullptr : pointer[first],
               sizeof(T));
  if (reduction) return;
  race_acquired(warp, static_cast<Space>(instruction.variant & 15), address, instruction.flags, false);
  write_cells(warp, instruction.operands[0], old);
}

// 16 bytes: no processor updates them at once everywhere.
std::mutex& wide_mutex() {
  static std::mutex mutex;
  return mutex;
}

// atom.exch.b128 and atom.cas.b128, each value as its low and its high half
template <bool Compare>
void atomic_wide(Warp& warp, const Instruction& instruction) {
  const Space space = static_cast<Space>(instruction.variant);
  const Operand* operands = instruction.operands;
  uint64_t address[kLanes];
  uint8_t* pointer[kLanes];
  read_addresses(warp, operands[2], address);
  resolve(warp, space, address, 16, Access::atomic, pointer);
  race_released(warp, space, address, instruction.flags, true);
  const int value = Compare ? 5 : 3;
  const Source<uint64_t> compare_low(warp, operands[3]), compare_high(warp, operands[4]),
      low(warp, operands[value]), high(warp, operands[value + 1]);
  uint64_t old_low[kLanes] = {}, old_high[kLanes] = {};
  {
    std::lock_guard<std::mutex> lock(wide_mutex());
    const auto in_order = race_in_order(warp);
    for_lanes(warp.active, [&](int l) {
      const uint64_t updated[2] = {low[l], high[l]};
      std::memcpy(&old_low[l], pointer[l], 8);
      std::memcpy(&old_high[l], pointer[l] + 8, 8);
      if (!Compare || (old_low[l] == compare_low[l] && old_high[l] == compare_high[l]))
        std::memcpy(pointer[l], updated, 16);
    });
    race_observed(warp, space, address, 16, Access::atomic);
  }
  may_give_way(warp, in_global(space_of(instruction), address[__builtin_ctz(warp.active)]));
  race_acquired(warp, space, address, instruction.flags, false);
  write_cells(warp, operands[0], old_low);
  write_cells(warp, operands[1], old_high);
}

// red and atom on a vector in global memory: each element is atomic by itself
template <class T, class Op>
void atomic_vector(Warp& warp, const Instruction& instruction) {
  const bool reduction = (instruction.variant & kReduction) != 0;
  const int n = instruction.variant >> 5, first = reduction ? 0 : n;
  uint64_t address[kLanes];
  uint8_t* pointer[kLanes];
  read_addresses(warp, instruction.operands[first], address);
  resolve_global(warp, address, static_cast<uint32_t>(n) * sizeof(T), Access::atomic, pointer);
  const auto in_order = race_in_order(warp);
  for (int k = 0; k < n; ++k) {
    const Source<T> b(warp, instruction.operands[first + 1 + k]);
    Cell<T> old[kLanes] = {};
    for_lanes(warp.active, [&](int l) {
      old[l] = to_cell<T>(update<T>(pointer[l] + static_cast<size_t>(k) * sizeof(T), [&](T value) {
        if constexpr (std::is_same_v<T, float>)  // of which PTX has the sum alone
          return flushed_sum(value, b[l]);
        else
          return Op()(value, b[l]);
      }));
    });
    if (!reduction) write_cells(warp, instruction.operands[k], old);
  }
  race_observed(warp, Space::global, address, static_cast<uint32_t>(n) * sizeof(T), Access::atomic);
  may_give_way(warp, true);
}

template <class T, class Op, int Sources = 1>
void add(Table& table, const std::string& operation) {
  const std::pair<const char*, Space> spaces[] = {{"", Space::none},
                                                  {".global", Space::global},
                                                  {".shared", Space::shared},
                                                  {".shared::cluster", Space::shared}};
  const std::string source(Sources, source_letter<T>()), destination = sizeof(T) == 8 ? "D" : "W";
  for (const auto& [name, space] : spaces) {
    const int variant = static_cast<int>(space);
    table.add("atom" + std::string(name) + operation, destination + "a" + source, atomic<T, Op, Sources>,
              variant);
    table.add("red" + std::string(name) + operation, "a" + source, atomic<T, Op, Sources>,
              variant | kReduction);
  }
}

template <class T>
void add_bits(Table& table, const std::string& type) {
  add<T, AtomicAnd>(table, ".and" + type);
  add<T, AtomicOr>(table, ".or" + type);
  add<T, AtomicXor>(table, ".xor" + type);
  add<T, Exchange>(table, ".exch" + type);
}

template <class T>
void add_order(Table& table, const std::string& type) {
  add<T, AtomicAdd>(table, ".add" + type);
  add<T, AtomicMinimum>(table, ".min" + type);
  add<T, AtomicMaximum>(table, ".max" + type);
}

// The vector and its type may stand on either side of the operation.
template <class T, class Op>
void add_vectors(Table& table, const std::string& operation, const std::string& type,
                 std::initializer_list<int> lengths) {
  for (const int n : lengths) {
    const std::string vector = ".v" + std::to_string(n) + type, count = std::to_string(n);
    const std::string source = source_letter<T>() + count;
    for (const std::string& name : {vector + operation, operation + vector}) {
      table.add("red.global" + name, "a" + source, atomic_vector<T, Op>, n << 5 | kReduction);
      table.add("atom.global" + name, "W" + count + "a" + source, atomic_vector<T, Op>, n << 5);
    }
  }
}

template <class H>
void add_half_vectors(Table& table, const std::string& type) {
  add_vectors<H, FloatAdd>(table, ".add.noftz", type, {2, 4, 8});
  add_vectors<H, AtomicMinimum>(table, ".min.noftz", type, {2, 4, 8});
  add_vectors<H, AtomicMaximum>(table, ".max.noftz", type, {2, 4, 8});
  add_vectors<Pair<H>, Both<FloatAdd>>(table, ".add.noftz", type + "x2", {2, 4});
  add_vectors<Pair<H>, Both<AtomicMinimum>>(table, ".min.noftz", type + "x2", {2, 4});
  add_vectors<Pair<H>, Both<AtomicMaximum>>(table, ".max.noftz", type + "x2", {2, 4});
}

void add_wide(Table& table) {
  const std::pair<const char*, Space> spaces[] = {{"", Space::none},
                                                  {".global", Space::global},
                                                  {".shared", Space::shared},
                                                  {".shared::cluster", Space::shared}};
  for (const auto& [name, space] : spaces) {
    table.add("atom" + std::string(name) + ".exch.b128", "D2ad2", atomic_wide<false>,
              static_cast<int>(space));
    table.add("atom" + std::string(name) + ".cas.b128", "D2ad4", atomic_wide<true>, static_cast<int>(space));
  }
}

template <class T>
bool reduce_elements(int reduction, uint8_t* global, const uint8_t* from, size_t bytes) {
  const auto all = [&](auto op) {
    for (size_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
      T b;
      std::memcpy(&b, from + at, sizeof b);
      update<T>(global + at, [&](T old) { return op(old, b); });
    }
    return true;
  };
  switch (reduction) {
    case 0:
      return all(AtomicAdd());
    case 1:
      return all(AtomicMinimum());
    case 2:
      return all(AtomicMaximum());
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (reduction) {
      case 3:
        return all(AtomicIncrement());
      case 4:
        return all(AtomicDecrement());
      case 5:
        return all(AtomicAnd());
      case 6:
        return all(AtomicOr());
      case 7:
        return all(AtomicXor());
      default:
        break;
    }
  }
  return false;
}

}  // namespace

const char* const* reduction_names() {
  static const char* const names[kReductions] = {".add", ".min", ".max", ".inc",
                                                 ".dec", ".and", ".or",  ".xor"};
  return names;
}

const std::vector<std::pair<std::string, int>>& reducible_types() {
  static const std::vector<std::pair<std::string, int>> types = {
      {".u32", 2}, {".b32", 2}, {".s32", 3},  {".u64", 4}, {".b64", 4},
      {".s64", 5}, {".f16", 6}, {".bf16", 9}, {".f32", 7}, {".f64", 8}};
  return types;
}

bool reduce_bytes(int reduction, int element_type, uint8_t* global, const uint8_t* from, size_t bytes) {
  switch (element_type) {
    case 2:
      return reduce_elements<uint32_t>(reduction, global, from, bytes);
    case 3:
      return reduce_elements<int32_t>(reduction, global, from, bytes);
    case 4:
      return reduce_elements<uint64_t>(reduction, global, from, bytes);
    case 5:
      return reduce_elements<int64_t>(reduction, global, from, bytes);
    case 6:
      return reduce_elements<f16>(reduction, global, from, bytes);
    case 7:
      return reduce_elements<float>(reduction, global, from, bytes);
    case 8:
      return reduce_elements<double>(reduction, global, from, bytes);
    case 9:
      return reduce_elements<bf16>(reduction, global, from, bytes);
    default:
      return false;
  }
}

void add_atomic_operations(Table& table) {
  for (const char* type : {".b32", ".u32", ".s32"}) {
    add_bits<uint32_t>(table, type);
    add<uint32_t, CompareAndSwap, 2>(table, std::string(".cas") + type);
  }
  for (const char* type : {".b64", ".u64", ".s64"}) {
    add_bits<uint64_t>(table, type);
    add<uint64_t, CompareAndSwap, 2>(table, std::string(".cas") + type);
  }
  add<uint16_t, CompareAndSwap, 2>(table, ".cas.b16");
  add<float, Exchange>(table, ".exch.f32");
  add<double, Exchange>(table, ".exch.f64");
  add_order<uint32_t>(table, ".u32");
  add_order<int32_t>(table, ".s32");
  add_order<uint64_t>(table, ".u64");
  add_order<int64_t>(table, ".s64");
  add<uint32_t, AtomicIncrement>(table, ".inc.u32");
  add<uint32_t, AtomicDecrement>(table, ".dec.u32");
  add<float, AtomicAdd>(table, ".add.f32");
  add<double, AtomicAdd>(table, ".add.f64");
  for (const char* form : {".add", ".add.noftz"}) {
    add<f16, AtomicAdd>(table, form + std::string(".f16"));
    add<bf16, AtomicAdd>(table, form + std::string(".bf16"));
    add<f16x2, Both<FloatAdd>>(table, form + std::string(".f16x2"));
    add<bf16x2, Both<FloatAdd>>(table, form + std::string(".bf16x2"));
  }
  add_vectors<float, FloatAdd>(table, ".add", ".f32", {2, 4});
  add_half_vectors<f16>(table, ".f16");
  add_half_vectors<bf16>(table, ".bf16");
  add_wide(table);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
