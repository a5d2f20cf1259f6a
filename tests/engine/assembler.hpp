// Programs written by hand, and what a launch of them left behind.
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <stdexcept>

#include "check.hpp"
#include "engine.hpp"

namespace emu = workbench::emulator;

template <class T>
using Lanes = std::array<T, emu::kLanes>;

template <class T>
Lanes<T> all_lanes(T value) {
  Lanes<T> lanes;
  lanes.fill(value);
  return lanes;
}

class Assembler {
 public:
  Assembler() { next_cell_ = static_cast<int32_t>(emu::Special::count) * 128; }

  emu::Operand cell(int bytes = 4) {
    const emu::Operand operand{next_cell_, bytes, 0};
    next_cell_ += bytes == 8 ? 256 : 128;
    return operand;
  }
  static emu::Operand special(emu::Special which) { return {static_cast<int32_t>(which) * 128, 4, 0}; }
  static emu::Operand absent() { return {emu::kAbsent, 4, 0}; }

  template <class T>
  emu::Operand constant(const Lanes<T>& values) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    const int32_t offset = static_cast<int32_t>(pool_.size());
    pool_.resize(pool_.size() + sizeof values);
    std::memcpy(pool_.data() + offset, values.data(), sizeof values);
    return {~offset, static_cast<int32_t>(sizeof(T)), 0};
  }
  template <class T>
  emu::Operand constant(T value) {
    return constant(all_lanes(value));
  }

  static int operation(const std::string& name) {
    static const auto index = [] {
      std::map<std::string, int> all;
      for (const emu::OperationInfo& operation : emu::operations())
        all.emplace(operation.name, static_cast<int>(all.size()));
      // the list is in table order, so number it by position
      int k = 0;
      for (const emu::OperationInfo& operation : emu::operations()) all[operation.name] = k++;
      return all;
    }();
    const auto found = index.find(name);
    if (found == index.end()) throw std::out_of_range("no operation " + name);
    return found->second;
  }

  // Appends a row and returns its index; a guard is a predicate register, negated when its offset is 1.
  int row(const std::string& name, const std::vector<emu::Operand>& operands = {},
          emu::Operand guard = absent()) {
    emu::Row row{};
    row.operation = operation(name);
    row.guard = guard.slot;
    row.guard_negated = static_cast<int32_t>(guard.offset);
    row.first_operand = static_cast<int32_t>(program_.operands.size());
    row.operand_count = static_cast<int32_t>(operands.size());
    program_.operands.insert(program_.operands.end(), operands.begin(), operands.end());
    program_.rows.push_back(row);
    return static_cast<int>(program_.rows.size()) - 1;
  }
  // A register that nothing has written.
  void unset(emu::Operand cell) { program_.unset.push_back(cell); }
  int branch(int target = 0, emu::Operand guard = absent()) {
    const int at = row("bra", {}, guard);
    program_.rows[static_cast<size_t>(at)].target = target;
    return at;
  }
  int here() const { return static_cast<int>(program_.rows.size()); }
  void land(int branch) { program_.rows[static_cast<size_t>(branch)].target = here(); }

  const emu::Program& program() {
    program_.special_offset = 0;
    program_.register_bytes = next_cell_;
    emu::validate(program_);
    return program_;
  }
  const std::vector<uint8_t>& pool() const { return pool_; }

 private:
  emu::Program program_;
  int32_t next_cell_;
  std::vector<uint8_t> pool_ = std::vector<uint8_t>(256);
};

constexpr uint64_t kMemory = 0x700000000000;  // where the only allocation of these tests lies

class Device {
 public:
  explicit Device(size_t bytes = 4096) : memory(bytes), written(bytes) {}
  std::vector<uint8_t> memory, written;
  emu::Launch launch;
  std::vector<emu::Isa> isas() const {
    return emu::best_isa() == emu::Isa::v3 ? std::vector<emu::Isa>{emu::Isa::baseline, emu::Isa::v3}
                                           : std::vector<emu::Isa>{emu::Isa::baseline};
  }
  emu::Result run(Assembler& assembler, emu::Isa isa = emu::Isa::baseline) {
    const emu::Program& program = assembler.program();
    std::vector<uint8_t> storage(assembler.pool().size() + 128);
    uint8_t* pool = storage.data() + (128 - reinterpret_cast<uintptr_t>(storage.data()) % 128) % 128;
    std::memcpy(pool, assembler.pool().data(), assembler.pool().size());
    launch.constants = pool;
    launch.constant_bytes = assembler.pool().size();
    launch.allocations = {{kMemory, memory.size(), memory.data(), written.data(), true}};
    emu::Result result;
    std::shared_ptr<emu::Series> series;
    emu::run({{&program, &launch, &result}}, isa, series);
    return result;
  }
  template <class T>
  T read(size_t index) const {
    T value;
    std::memcpy(&value, memory.data() + index * sizeof(T), sizeof value);
    return value;
  }
};
