// What the four warps of a warpgroup must do alike, and what they do with registers around it: wgmma and
// setmaxnreg.
#include "warpgroup.hpp"

#include "scheduler.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr uint32_t kWarps = 4;  // of a warpgroup

[[noreturn]] void diverged(const Warp& warp, int32_t pc, int32_t other_pc, int64_t warps) {
  Fault fault;
  fault.kind = FaultKind::warpgroup_diverged;
  fault.pc = std::min(pc, other_pc);  // what was left out comes before what is done instead
  fault.other_pc = std::max(pc, other_pc);
  fault.block = warp.block->id;
  fault.warp = warp.id;
  fault.info = warps;
  throw fault;
}

bool come_as_far(const Warpgroup& group, uint64_t steps) {
  return *std::min_element(group.done, group.done + kWarps) >= steps;
}

}  // namespace

void warpgroup_step(Warp& warp, uint32_t registers) {
  Block& block = *warp.block;
  const uint32_t index = static_cast<uint32_t>(warp.id) / kWarps,
                 member = static_cast<uint32_t>(warp.id) % kWarps;
  const auto warps = static_cast<uint32_t>(block.warps.size()) - index * kWarps;
  if (warps < kWarps) diverged(warp, warp.pc, warp.pc, warps);
  if (block.warpgroups.size() <= index) block.warpgroups.resize(index + 1);
  Warpgroup& group = block.warpgroups[index];
  const uint64_t step = group.done[member]++;
  if (step == group.first + group.steps.size()) {
    for (uint32_t w = index * kWarps; w < (index + 1) * kWarps; ++w)
      if (!block.warps[w].alive) diverged(block.warps[w], warp.pc, block.warps[w].pc, 0);
    group.steps.push_back({warp.pc, registers});
  } else if (const WarpgroupStep& one = group.steps[static_cast<size_t>(step - group.first)];
             one.pc != warp.pc) {
    if (registers == 0 || registers != one.registers) diverged(warp, one.pc, warp.pc, 0);
    warp.finding(FaultKind::warpgroup_apart, 0, 0, Space::none, 0, 0, one.pc);
  }
  while (!group.steps.empty() && *std::min_element(group.done, group.done + kWarps) > group.first) {
    group.steps.pop_front();
    ++group.first;
  }
  for (uint32_t w = index * kWarps; w < (index + 1) * kWarps; ++w)
    for (Group& waiting : block.warps[w].groups)
      if (waiting.wait == Wait::warpgroup && come_as_far(group, group.done[w % kWarps] - 1)) {
        waiting.wait = Wait::none;
        warpgroup_waited(block.warps[w], static_cast<uint32_t>(waiting.expected));
      }
}

bool warpgroup_together(const Warp& warp) {
  const Warpgroup& group = warp.block->warpgroups[static_cast<size_t>(warp.id) / kWarps];
  return come_as_far(group, group.done[static_cast<uint32_t>(warp.id) % kWarps]);
}

void warpgroup_exit(Warp& warp) {
  Block& block = *warp.block;
  const uint32_t index = static_cast<uint32_t>(warp.id) / kWarps;
  if (warp.alive || block.warpgroups.size() <= index) return;
  const Warpgroup& group = block.warpgroups[index];
  const uint64_t done = group.done[static_cast<uint32_t>(warp.id) % kWarps];
  if (done < group.first + group.steps.size())
    diverged(warp, group.steps[static_cast<size_t>(done - group.first)].pc, warp.pc, 0);
}

// ---- registers that a wgmma uses and others write

namespace {

// Calls f(cell) for the cells that an operand of this signature letter writes.
template <class F>
void each_written(const Operand& operand, char letter, F f) {
  if (operand.slot < 0 || (letter != 'W' && letter != 'D' && letter != 'P' && letter != 'U')) return;
  f(static_cast<size_t>(operand.slot / 128));
  if (letter == 'D') f(static_cast<size_t>(operand.slot / 128 + 1));
}

// Whether it copies one 4-byte register to another.
bool copies(const Instruction& instruction) {
  return instruction.is_move && instruction.count == 2 && instruction.access[0] == 'W';
}

// Takes note of who wrote a register, then: a copy hands on what is known of its source, a constant is
// nobody's.
void noted_write(Warp& warp, const Instruction& instruction) {
  const int32_t pc = warp.pc;
  warp.machine->prepared->untracked[static_cast<size_t>(pc)](warp, instruction);
  RegisterWrite write{warp.fences, pc};
  if (copies(instruction)) {
    write = warp.written[static_cast<size_t>(instruction.operands[1].slot / 128)];
  } else {
    bool constant = true;
    for (int k = 0; k < instruction.count; ++k)
      constant &= instruction.access[k] < 'a' || instruction.operands[k].slot < 0;
    if (constant) write = RegisterWrite{};
  }
  for (int k = 0; k < instruction.count; ++k)
    each_written(instruction.operands[k], instruction.access[k],
                 [&](size_t cell) { warp.written[cell] = write; });
}

}  // namespace

void track_registers(const Program& program, Code& code) {
  std::vector<bool> tracked;
  const auto add = [&](const Operand& operand) {
    const auto cell = static_cast<size_t>(operand.slot / 128);
    const bool is_new = operand.slot >= 0 && !tracked[cell];
    if (is_new) tracked[cell] = true;
    return is_new;
  };
  for (const Instruction& product : code.instructions) {
    if (!product.is_product) continue;
    if (tracked.empty()) tracked.resize(static_cast<size_t>(program.register_bytes / 128) + 1);
    for (int i = 0; i < product.count; ++i)
      if (product.access[i] == 'U' || product.access[i] == 'w') add(product.operands[i]);
  }
  if (tracked.empty()) return;
  std::vector<const Instruction*> moves;
  for (const Instruction& i : code.instructions)
    if (copies(i)) moves.push_back(&i);
  for (bool grew = true; grew;) {
    grew = false;
    for (auto move = moves.rbegin(); move != moves.rend(); ++move)
      if (tracked[static_cast<size_t>((*move)->operands[0].slot / 128)]) grew |= add((*move)->operands[1]);
  }
  code.untracked.resize(code.instructions.size());
  for (size_t k = 0; k < code.instructions.size(); ++k) {
    Instruction& instruction = code.instructions[k];
    if (!instruction.function || instruction.is_product) continue;
    bool writes = false;
    for (int i = 0; i < instruction.count; ++i)
      each_written(instruction.operands[i], instruction.access[i],
                   [&](size_t cell) { writes |= tracked[cell]; });
    if (!writes) continue;
    code.untracked[k] = instruction.function;
    instruction.function = noted_write;
  }
}

void require_fenced(const Warp& warp, const Operand* registers, int count) {
  if (!warp.machine->check_in_flight || warp.machine->prepared->untracked.empty()) return;
  if (warp.fences == 0) return warp.finding(FaultKind::wgmma_fence, 0);
  for (int k = 0; k < count; ++k) {
    if (registers[k].slot < 0) continue;
    const RegisterWrite& write = warp.written[static_cast<size_t>(registers[k].slot / 128)];
    if (write.pc >= 0 && write.fence == warp.fences)
      warp.finding(FaultKind::wgmma_fence, 0, static_cast<uint64_t>(registers[k].slot), Space::none, 0, 0,
                   write.pc);
  }
}

// ---- setmaxnreg

namespace {

enum Problem { kRange = 1, kGrows, kShrinks };  // of a reallocation

constexpr uint32_t kLeast = 24, kMost = 256, kUnit = 8;
constexpr int kIncrease = 1;

void check_reallocation(const Warp& warp, uint32_t count, bool increase) {
  const auto fail = [&](Problem problem, int64_t detail) {
    warp.fault(FaultKind::register_misuse, 0, count, Space::none, problem, detail);
  };
  if (count < kLeast || count > kMost || count % kUnit) fail(kRange, 0);
  if (warp.machine->launch->registers == 0) warp.finding(FaultKind::registers_unlimited, 0, count);
  if (warp.thread_registers == kUnknownRegisters) return;
  if (increase && count < warp.thread_registers) fail(kShrinks, warp.thread_registers);
  if (!increase && count > warp.thread_registers) fail(kGrows, warp.thread_registers);
}

// The registers that a warp gives up go to its block, where others wait for them.
Flow reallocate(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  if (!gather(warp, lanes)) return {0};
  const bool increase = instruction.variant == kIncrease;
  const uint32_t count = uniform(warp, instruction.operands[0]);
  check_reallocation(warp, count, increase);
  if (warp.thread_registers != kUnknownRegisters) {
    Block& block = *warp.block;
    const int64_t wanted = (int64_t{count} - warp.thread_registers) * kLanes;
    if (wanted > block.free_registers) {
      warp.groups.push_back({lanes, warp.pc, Wait::registers, count, static_cast<uint64_t>(wanted)});
      return {0};
    }
    block.free_registers -= wanted;
    warp.thread_registers = count;
    for (Warp& other : block.warps)
      for (Group& group : other.groups)
        if (group.wait == Wait::registers) group.wait = Wait::none;  // it tries again
  }
  warpgroup_step(warp, 2 * count + increase);
  return {lanes};
}

}  // namespace

void add_warpgroup_operations(Table& table) {
  table.add_control("setmaxnreg.inc.sync.aligned.u32", "w", reallocate, kIncrease);
  table.add_control("setmaxnreg.dec.sync.aligned.u32", "w", reallocate);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
