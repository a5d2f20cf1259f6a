// Control: branches, exit, and the barriers of a block, a warp and a cluster.
#include "launches.hpp"
#include "race.hpp"
#include "scheduler.hpp"
#include "warpgroup.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// ---- named barriers
//
// Threads wait at a barrier as groups. A barrier with a thread count completes when that many have arrived,
// where an aligned barrier counts a warp as 32 once all its live lanes are there; one without a count
// completes when all threads of the block that have not exited wait at it.

namespace {

enum Form { kAligned = 1, kReduce = 2, kPopulation = 4, kAnd = 8, kOr = 16 };

const Instruction& instruction_at(const Block& block, int32_t pc) {
  return block.machine->code[static_cast<size_t>(pc)];
}

// Where a barrier instruction keeps its number and its count.
const Operand& number_operand(const Instruction& i) { return i.operands[i.variant & kReduce ? 1 : 0]; }
const Operand& count_operand(const Instruction& i) { return i.operands[i.variant & kReduce ? 2 : 1]; }

int waiting_lanes(const Block& block, int number, const Warp& warp) {
  uint32_t lanes = 0;
  bool aligned = false;
  for (const Group& group : warp.groups)
    if (group.wait == Wait::barrier && group.key == static_cast<uint64_t>(number)) {
      lanes |= group.mask;
      aligned |= (instruction_at(block, group.pc).variant & kAligned) != 0;
    }
  if (aligned && lanes) return lanes == warp.alive ? kLanes : 0;
  return __builtin_popcount(lanes);
}

void write_reduction(Block& block, int number) {
  uint32_t population = 0, threads = 0;
  for (Warp& warp : block.warps)
    for (const Group& group : warp.groups) {
      if (group.wait != Wait::barrier || group.key != static_cast<uint64_t>(number)) continue;
      const Instruction& instruction = instruction_at(block, group.pc);
      if (!(instruction.variant & kReduce)) continue;
      const Source<bool> value(warp, instruction.operands[3]);
      for_lanes(group.mask, [&](int l) { population += value[l], ++threads; });
    }
  for (Warp& warp : block.warps)
    for (const Group& group : warp.groups) {
      if (group.wait != Wait::barrier || group.key != static_cast<uint64_t>(number)) continue;
      const Instruction& instruction = instruction_at(block, group.pc);
      if (!(instruction.variant & kReduce)) continue;
      const bool truth = instruction.variant & kAnd ? population == threads : population != 0;
      const uint32_t result = instruction.variant & kPopulation ? population : truth ? ~0u : 0u;
      const uint32_t active = warp.active;
      warp.set_active(group.mask);
      write_lanes<uint32_t>(warp, instruction.operands[0], [&](int) { return result; });
      warp.set_active(active);
    }
}

// A barrier of all threads completes without those that have gone where they come to none any more.
void check_leaver(Block& block, int number) {
  const Leaver& leaver = block.leaver;
  if (leaver.pc < 0 || block.barriers[number].expected) return;
  for (Warp& warp : block.warps)
    for (const Group& group : warp.groups) {
      if (group.wait != Wait::barrier || group.key != static_cast<uint64_t>(number)) continue;
      Fault fault;
      fault.kind = FaultKind::barrier_diverged;
      fault.pc = group.pc;
      fault.block = block.id;
      fault.warp = warp.id;
      fault.lane = __builtin_ctz(group.mask);
      fault.other_pc = leaver.pc;
      fault.other_block = block.id;
      fault.other_warp = leaver.warp;
      fault.other_lane = leaver.lane;
      fault.detail = kLeftBefore;
      return report(*block.cluster, fault);
    }
}

void complete(Block& block, int number) {
  check_leaver(block, number);
  write_reduction(block, number);
  race_barrier_completed(block, number, block.barriers[number].expected == 0);
  for (Warp& warp : block.warps) {
    for (Group& group : warp.groups) {
      if (group.wait != Wait::barrier || group.key != static_cast<uint64_t>(number)) continue;
      group.wait = Wait::none;
      ++group.pc;
      if (group.mask == warp.alive) warp.apart = false;
    }
  }
  block.barriers[number] = NamedBarrier{};
}

}  // namespace

int barrier_expected(const Block& block, int number) {
  const int count = block.barriers[number].expected;
  return count ? count : static_cast<int>(block.alive);
}

int barrier_arrived(const Block& block, int number) {
  int arrived = block.barriers[number].arrived;
  for (const Warp& warp : block.warps) {
    const int lanes = waiting_lanes(block, number, warp);
    // without a count, exited threads and lanes that never existed do not matter
    arrived += block.barriers[number].expected || lanes < kLanes ? lanes : __builtin_popcount(warp.alive);
  }
  return arrived;
}

bool barrier_lacks_lanes(const Block& block, const Warp& warp, const Group& group) {
  return group.wait == Wait::barrier && (instruction_at(block, group.pc).variant & kAligned) &&
         waiting_lanes(block, static_cast<int>(group.key), warp) == 0;
}

bool barriers_lack_lanes(const Cluster& cluster) {
  for (const Block& block : cluster.blocks)
    for (const Warp& warp : block.warps)
      for (const Group& group : warp.groups)
        if (barrier_lacks_lanes(block, warp, group)) return true;
  return false;
}

void forget_suspected(Cluster& cluster) {
  cluster.suspected = Fault{};
  cluster.more_suspected.clear();
  cluster.suspected_at.clear();
}

void check_barriers(Block& block) {
  for (int number = 0; number < 16; ++number)
    if (block.barriers[number].in_use && barrier_arrived(block, number) >= barrier_expected(block, number))
      complete(block, number);
}

namespace {

Flow exit_lanes(Warp& warp, const Instruction&, uint32_t lanes);

// Number and count, which all lanes must agree on, entered into the barrier.
int enter_barrier(Warp& warp, const Instruction& instruction, uint32_t lanes, int& count) {
  const int lane = __builtin_ctz(lanes);
  const uint32_t number = source_cells<uint32_t>(warp, number_operand(instruction))[lane];
  const Operand& counted = count_operand(instruction);
  const bool has_count =
      instruction.count > (instruction.variant & kReduce ? 2 : 1) && counted.slot != kAbsent;
  count = has_count ? static_cast<int>(source_cells<uint32_t>(warp, counted)[lane]) : 0;
  if (number >= 16) warp.fault(FaultKind::barrier_count, lane, number, Space::none, count, number);
  if (has_count && (count <= 0 || count % kLanes != 0 || count > 1024))
    warp.fault(FaultKind::barrier_count, lane, number, Space::none, count, number);
  NamedBarrier& barrier = warp.block->barriers[number];
  if (barrier.in_use && barrier.expected != count)
    warp.fault(FaultKind::barrier_mismatch, lane, number, Space::none, count, barrier.expected,
               barrier.first_pc);
  if (!barrier.in_use) barrier.first_pc = warp.pc;
  barrier.in_use = true;
  barrier.expected = count;
  return static_cast<int>(number);
}

// Of a warp that must come together, the lanes that are neither here nor about to exit: should they exit
// without coming, they have gone past the barrier.
uint32_t lanes_elsewhere(const Warp& warp) {
  uint32_t elsewhere = 0;
  for (const Group& group : warp.groups) {
    int32_t pc = group.pc;
    const Instruction* next = &instruction_at(*warp.block, pc);
    for (int hops = 0; hops < 4 && next->kind == Kind::branch && next->guard == kNoGuard; ++hops)
      next = &instruction_at(*warp.block, pc = next->target);
    if (next->control != exit_lanes || next->guard != kNoGuard) elsewhere |= group.mask;
  }
  return elsewhere;
}

Flow wait_at_barrier(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  int count;
  const int number = enter_barrier(warp, instruction, lanes, count);
  const bool split = (instruction.variant & kAligned) && lanes != warp.alive;
  for (const Group& group : warp.groups)  // an aligned barrier is one instruction for the whole warp
    if (split && group.wait == Wait::barrier && group.key == static_cast<uint64_t>(number) &&
        group.pc != warp.pc) {
      forget_suspected(*warp.block->cluster);
      warp.fault(FaultKind::barrier_diverged, __builtin_ctz(lanes), group.key, Space::none, lanes, 0,
                 group.pc);
    }
  const uint64_t elsewhere = split ? lanes_elsewhere(warp) : 0;
  warp.groups.push_back({lanes, warp.pc, Wait::barrier, static_cast<uint64_t>(number), elsewhere});
  check_barriers(*warp.block);
  return {0};
}

}  // namespace

void find_ways_beyond_barriers(Code& code) {
  const auto& all = code.instructions;
  std::vector<bool> reaches(all.size());  // a barrier that counts all threads of the block
  const auto reached_from = [&](size_t row) { return row < all.size() && reaches[row]; };
  const auto counts_all = [](const Instruction& i) {
    const int at = i.variant & kReduce ? 2 : 1;
    return i.control == wait_at_barrier && (i.count <= at || i.operands[at].slot == kAbsent);
  };
  for (bool more = true; more;) {
    more = false;
    for (size_t row = all.size(); row-- > 0;) {
      const Instruction& i = all[row];
      if (reaches[row]) continue;
      const bool jumps = i.kind == Kind::branch,
                 ends = i.guard == kNoGuard && (jumps || i.control == exit_lanes);
      reaches[row] = counts_all(i) || (jumps && reached_from(static_cast<size_t>(i.target))) ||
                     (!ends && reached_from(row + 1));
      more |= reaches[row];
    }
  }
  for (size_t row = 0; row < all.size(); ++row) {
    Instruction& i = code.instructions[row];
    i.beyond = BeyondBarriers::none;
    if (i.kind != Kind::branch || i.guard == kNoGuard) continue;
    const bool taken = reached_from(static_cast<size_t>(i.target)), passed = reached_from(row + 1);
    if (taken != passed) i.beyond = taken ? BeyondBarriers::not_taken : BeyondBarriers::taken;
  }
}

namespace {

Flow arrive_at_barrier(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  if ((instruction.variant & kAligned) && lanes != warp.alive) {  // a warp arrives once, as a whole
    const uint32_t* numbers = source_cells<uint32_t>(warp, number_operand(instruction));
    park_for_collective(warp, lanes, Wait::aligned, numbers[__builtin_ctz(lanes)], warp.alive,
                        lanes_elsewhere(warp));
    return {0};
  }
  int count;
  const int number = enter_barrier(warp, instruction, lanes, count);
  if (warp.races) race_arrive(warp, warp.block->races->barriers[number]);
  warp.block->barriers[number].arrived += instruction.variant & kAligned ? kLanes : __builtin_popcount(lanes);
  check_barriers(*warp.block);
  return {lanes};
}

// ---- a warp's own barrier: lanes may wait at different instructions

// The lanes that name one mask; those that may go on.
uint32_t join_warp_barrier(Warp& warp, uint32_t members, uint32_t lanes) {
  if (lanes & ~members)
    warp.fault(FaultKind::not_member, __builtin_ctz(lanes & ~members), 0, Space::none, members);
  if ((members & ~warp.alive) && warp.machine->check_exited)
    warp.finding(FaultKind::exited_member, __builtin_ctz(lanes), 0, Space::none, members,
                 members & ~warp.alive);
  uint32_t here = lanes;
  for (const Group& group : warp.groups)
    if (group.wait == Wait::warp_barrier && group.key == members) here |= group.mask;
  const uint32_t needed = members & warp.alive;
  if ((here & needed) != needed) {
    warp.groups.push_back({lanes, warp.pc, Wait::warp_barrier, members});
    return 0;
  }
  race_lanes_joined(warp, here);
  lanes_met(warp, here);
  if (here == lanes) return lanes;
  for (Group& group : warp.groups)
    if (group.wait == Wait::warp_barrier && group.key == members) {
      group.wait = Wait::none;
      ++group.pc;
    }
  warp.groups.push_back({lanes, warp.pc + 1});  // to go on with the others
  return 0;
}

Flow warp_barrier(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const uint32_t* masks = source_cells<uint32_t>(warp, instruction.operands[0]);
  uint32_t through = 0;
  for (uint32_t left = lanes; left;) {
    const uint32_t members = masks[__builtin_ctz(left)];
    uint32_t here = 0;
    for_lanes(left, [&](int l) { here |= (masks[l] == members ? 1u : 0u) << l; });
    left &= ~here;
    through |= join_warp_barrier(warp, members, here);
  }
  return {through};
}

// ---- the cluster's barrier: every thread arrives once a phase; waiting is separate

uint32_t threads_alive(const Cluster& cluster) {
  uint32_t alive = 0;
  for (const Block& block : cluster.blocks) alive += block.alive;
  return alive;
}

constexpr int kRelaxed = 1;

Flow cluster_arrive(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  Cluster& cluster = *warp.block->cluster;
  for_lanes(lanes, [&](int l) {
    if (warp.cluster_phase[l] > cluster.barrier_phase)
      warp.fault(FaultKind::barrier_mismatch, l, 0, Space::none, 1, 1);  // arrived twice without waiting
    warp.cluster_phase[l] = cluster.barrier_phase + 1;
  });
  if (warp.races) race_meets(warp);
  if (warp.races && instruction.variant != kRelaxed) race_arrive(warp, cluster.races->arriving);
  if (warp.races && instruction.variant == kRelaxed)
    race_arrive_relaxed(
        warp, cluster.races->arriving,
        cluster.blocks.size() > 1 ? warp.races->known.fenced_cluster : warp.races->known.fenced_block);
  cluster.barrier_arrived += static_cast<uint32_t>(__builtin_popcount(lanes));
  check_cluster_barrier(cluster);
  return {lanes};
}

Flow cluster_wait(Warp& warp, const Instruction&, uint32_t lanes) {
  Cluster& cluster = *warp.block->cluster;
  uint32_t through = 0;
  for_lanes(lanes, [&](int l) {
    if (warp.cluster_phase[l] == 0)
      warp.fault(FaultKind::barrier_mismatch, l, 0, Space::none, 0, 1);  // never arrived
    if (warp.cluster_phase[l] <= cluster.barrier_phase) through |= 1u << l;
  });
  if (lanes & ~through) warp.groups.push_back({lanes & ~through, warp.pc, Wait::cluster});
  if (warp.races && through) {
    race_learn(warp, cluster.races->completed, through);  // what its own lanes told, too
    race_met(warp);
    race_initialised_joined(warp);
  }
  return {through};
}

// ---- the end of threads

Flow exit_lanes(Warp& warp, const Instruction&, uint32_t lanes) {
  Block& block = *warp.block;
  for (const Group& group : warp.groups)
    if ((group.wait == Wait::barrier || group.wait == Wait::aligned) && (group.expected & lanes)) {
      const int32_t exit_pc = std::exchange(warp.pc, group.pc);
      forget_suspected(*block.cluster);
      warp.fault(FaultKind::barrier_diverged, __builtin_ctz(group.mask), group.key, Space::none, group.mask,
                 0, exit_pc);
    }
  check_finished(warp, lanes);
  for (const auto& unit : block.cluster->units) unit->warp_exits(warp, lanes);
  race_exit(warp);
  Cluster& cluster = *block.cluster;
  for_lanes(lanes, [&](int l) {  // a thread that has exited counts as arrived, once
    if (warp.cluster_phase[l] > cluster.barrier_phase) --cluster.barrier_arrived;
  });
  warp.alive &= ~lanes;
  block.alive -= static_cast<uint32_t>(__builtin_popcount(lanes));
  warpgroup_exit(warp);
  if (block.alive == 0) {
    block.exit_pc = warp.pc;
    race_block_exited(warp, block);
  }
  for (Group& group : warp.groups)
    if (group.wait == Wait::member || group.wait == Wait::aligned) {
      group.wait = Wait::none;  // fewer lanes to wait for: let it look again
    } else if (group.wait == Wait::warp_barrier) {
      uint32_t here = 0;
      for (const Group& other : warp.groups)
        if (other.wait == Wait::warp_barrier && other.key == group.key) here |= other.mask;
      if ((here & group.key & warp.alive) == (group.key & warp.alive)) group.wait = Wait::none;
    }
  check_barriers(block);
  check_cluster_barrier(cluster);
  return {0};
}

Flow trap(Warp& warp, const Instruction&, uint32_t lanes) {
  warp.fault(FaultKind::trap, __builtin_ctz(lanes));
}

Flow failed_assertion(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const int l = __builtin_ctz(lanes);
  warp.fault(FaultKind::assertion, l, source_cells<uint64_t>(warp, instruction.operands[0])[l], Space::none,
             source_cells<uint32_t>(warp, instruction.operands[2])[l],
             static_cast<int64_t>(source_cells<uint64_t>(warp, instruction.operands[1])[l]));
}

Flow yield(Warp&, const Instruction&, uint32_t lanes) { return {lanes, true}; }

void nothing(Warp&, const Instruction&) {}

Flow grid_wait(Warp& warp, const Instruction&, uint32_t lanes) {
  if (launch_waits(*warp.machine)) {
    warp.groups.push_back({lanes, warp.pc + 1, Wait::grid});
    return {0};
  }
  const Knowledge told = launch_waited(*warp.machine);
  if (told.now.far) race_learn(warp, told, lanes);
  return {lanes};
}

Flow launch_dependents(Warp& warp, const Instruction&, uint32_t lanes) {
  launch_triggers(warp, lanes);
  if (warp.machine->together) {  // those may begin now
    warp.run_until = 0;
    warp.block->cluster->gives_way = true;
  }
  return {lanes};
}

void fence(Warp& warp, const Instruction& instruction) {
  race_fence(warp, instruction.flags);
  may_give_way(warp, true);
}

void proxy_fence(Warp& warp, const Instruction&) { race_proxy_fence(warp); }

void mbarrier_fence(Warp& warp, const Instruction&) { race_mbarrier_fence(warp); }

}  // namespace

void check_cluster_barrier(Cluster& cluster) {
  if (cluster.barrier_arrived == 0 || cluster.barrier_arrived < threads_alive(cluster)) return;
  cluster.barrier_arrived = 0;
  ++cluster.barrier_phase;
  if (cluster.races) race_cluster_completed(*cluster.races);
  for (Warp* warp : cluster.warps)
    for (Group& group : warp->groups)
      if (group.wait == Wait::cluster) group.wait = Wait::none;  // the wait is tried again, and passes
}

void add_control_operations(Table& table) {
  table.add_branch("bra");
  table.add_branch("bra.uni");
  table.add_control("exit", "", exit_lanes);
  table.add_control("ret", "", exit_lanes);
  table.add_control("ret.uni", "", exit_lanes);
  table.add_control("trap", "", trap);
  table.add_control("brkpt", "", trap);
  table.add_control("assertfail", "ddwdd", failed_assertion);
  table.add_control("nanosleep.u32", "w", yield);

  const std::pair<const char*, int> prefixes[] = {
      {"bar", kAligned}, {"bar.cta", kAligned}, {"barrier", 0}, {"barrier.cta", 0}};
  for (const auto& [prefix, aligned] : prefixes) {
    for (const char* suffix : {"", ".aligned"}) {
      const int form = *suffix ? kAligned : aligned;
      const std::string name(prefix), end(suffix);
      table.add_control(name + ".sync" + end, "ww?", wait_at_barrier, form);
      table.add_control(name + ".arrive" + end, "ww", arrive_at_barrier, form);
      table.add_control(name + ".red.popc" + end + ".u32", "Www?p", wait_at_barrier,
                        form | kReduce | kPopulation);
      table.add_control(name + ".red.and" + end + ".pred", "Pww?p", wait_at_barrier, form | kReduce | kAnd);
      table.add_control(name + ".red.or" + end + ".pred", "Pww?p", wait_at_barrier, form | kReduce | kOr);
    }
  }
  table.add_control("bar.warp.sync", "w", warp_barrier);
  for (const char* aligned : {"", ".aligned"}) {
    for (const char* order : {"", ".release", ".relaxed"})
      table.add_control("barrier.cluster.arrive" + std::string(order) + aligned, "", cluster_arrive,
                        std::string(order) == ".relaxed" ? kRelaxed : 0);
    for (const char* order : {"", ".acquire"})
      table.add_control("barrier.cluster.wait" + std::string(order) + aligned, "", cluster_wait);
  }

  table.add("nop", "", nothing);
  table.add_control("griddepcontrol.wait", "", grid_wait);
  table.add_control("griddepcontrol.launch_dependents", "", launch_dependents);
  table.add("fence.proxy", "", proxy_fence);
  table.add("fence.mbarrier_init", "", mbarrier_fence);
  table.add("fence", "", fence);
  table.add("pmevent", "w", nothing);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
