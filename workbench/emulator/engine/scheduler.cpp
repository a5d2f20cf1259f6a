// Which lanes run when.
//
// The lanes of a warp are split into groups that share a program counter. The runnable group with the lowest
// counter runs, until it meets another one and joins it: code is laid out so that the lowest counter is the
// one that others wait for. A group runs until it has to wait or its time slice ends; then another warp of
// the cluster is drawn from the seed. When a slice ends inside a divergent warp the next group goes first, so
// that lanes may wait for each other. A warp gives way earlier, by the draw, after what threads talk to each
// other with: otherwise nobody would see a lock that is held or a value that the next update replaces.
//
// Asynchronous copies land when nothing else can run, or now and then by the draw: late enough to show a
// missing wait, in an order that no kernel may rely on.
#include "scheduler.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "counters.hpp"
#include "launches.hpp"
#include "race.hpp"
#include "trace.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

namespace {

Fault fault_of(const Warp& warp, FaultKind kind, int lane, uint64_t address, Space space, int64_t info,
               int64_t detail, int other_pc) {
  Fault fault;
  fault.kind = kind;
  fault.pc = warp.pc;
  fault.other_pc = other_pc;
  fault.block = warp.block->id;
  fault.warp = warp.id;
  fault.lane = lane;
  fault.address = address;
  fault.space = space;
  fault.info = info;
  fault.detail = detail;
  return fault;
}

}  // namespace

void Warp::fault(FaultKind kind, int lane, uint64_t address, Space space, int64_t info, int64_t detail,
                 int other_pc) const {
  throw fault_of(*this, kind, lane, address, space, info, detail, other_pc);
}

void Warp::finding(FaultKind kind, int lane, uint64_t address, Space space, int64_t info, int64_t detail,
                   int other_pc) const {
  report(*block->cluster, fault_of(*this, kind, lane, address, space, info, detail, other_pc));
}

namespace {

constexpr uint64_t kMostAfterRace = 1 << 20;  // warp instructions of a cluster after a race within a warp
constexpr uint32_t kLandingOdds = 16;         // a copy lands early at one resumption in so many
constexpr uint32_t kTurnOdds = 8;             // a warp gives way after one atomic access in so many
constexpr uint32_t kPolls = 16;  // equal reads of one place in turn, after which a cluster's slice has ended

bool guard_lanes(const Warp& warp, const Instruction& instruction, uint32_t& lanes) {
  if (instruction.guard == kNoGuard) return true;
  const uint32_t set = lanes_of(source_cells<int32_t>(warp, Operand{instruction.guard, 4, 0}));
  lanes &= instruction.guard_negated ? ~set : set;
  return lanes != 0;
}

void execute(Warp& warp, const Instruction& instruction) {
  if (warp.tracking)
    execute_tracked(warp, instruction);
  else
    instruction.function(warp, instruction);
}

// An instruction is about to run, and has run, where that is counted or shown.
void observe(Warp& warp, const Instruction& instruction, uint32_t active, uint32_t lanes) {
  if (warp.block->cluster->counters) count_instruction(warp, instruction, active, lanes);
  if (warp.block->cluster->trace) trace_instruction(warp);
}
void observe_end(Warp& warp, const Instruction& instruction) {
  if (warp.block->cluster->counters && instruction.kind != Kind::straight) count_blocked(warp);
  if (warp.block->cluster->trace) trace_executed(warp, instruction);
}

// Accumulators in flight or undefined values: true when the instruction has been dealt with.
template <bool Observed>
bool watch(Warp& warp, const Instruction& instruction, uint32_t mask) {
  if (warp.tracking) check_guard(warp, instruction, mask);
  uint32_t lanes = mask;
  guard_lanes(warp, instruction, lanes);
  bool deferred = false;
  if (!warp.locked.empty()) {
    const auto& units = warp.block->cluster->units;
    for (const auto& unit : units) unit->touch(warp, instruction, lanes);
    deferred = units.empty() && defer_or_check(warp, instruction, lanes);
  }
  const bool follows = warp.tracking && (deferred || instruction.kind == Kind::straight);
  if constexpr (Observed)
    if (deferred || follows) observe(warp, instruction, mask, lanes);
  if (!follows) return deferred;
  if (lanes) {
    warp.set_active(lanes);
    if (deferred)
      follow_move(warp, instruction);
    else
      execute_tracked(warp, instruction);
    warp.set_active(mask);
  }
  if constexpr (Observed) observe_end(warp, instruction);
  return true;
}

}  // namespace

void park_for_collective(Warp& warp, uint32_t lanes, Wait wait, uint64_t key, uint32_t needed,
                         uint64_t expected) {
  for (Group& group : warp.groups) {
    if (group.wait != wait || group.pc != warp.pc || group.key != key) continue;
    group.mask |= lanes;
    if ((group.mask & needed) == needed) group.wait = Wait::none;
    return;
  }
  warp.groups.push_back({lanes, warp.pc, wait, key, expected});
}

void may_give_way(Warp& warp, bool clusters_can_tell, const uint8_t* place, uint32_t bytes) {
  Cluster& cluster = *warp.block->cluster;
  Polled& last = warp.polled;
  const bool same = place && last.pc == warp.pc && last.place == place;
  if (same && !last.changed()) {
    ++last.times;
  } else {  // who has polled long reads once more before it polls in vain again
    const uint32_t times = same && last.times >= kPolls ? kPolls - 1 : 0;
    last = {warp.pc, times, std::min<uint32_t>(bytes, sizeof last.value), place, 0};
    if (place) std::memcpy(&last.value, place, last.bytes);
  }
  const bool polls = last.times && last.times % kPolls == 0;
  if (!polls && cluster.turns.below(kTurnOdds)) return;
  cluster.polls |= polls && clusters_can_tell;
  warp.run_until = 0;
  cluster.gives_way |= clusters_can_tell;
}

bool gather(Warp& warp, uint32_t lanes) {
  if (warp.alive != ~0u)
    warp.fault(FaultKind::barrier_diverged, __builtin_ctz(lanes), 0, Space::none, lanes, ~warp.alive);
  if (lanes == ~0u) return true;
  park_for_collective(warp, lanes, Wait::aligned, 0, ~0u);
  return false;
}

namespace {

// A collective with a member mask: runs for each set of lanes that name the same mask and are all here.
uint32_t run_member(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const uint32_t* masks = source_cells<uint32_t>(warp, instruction.operands[instruction.member_operand]);
  uint32_t done = 0;
  for (uint32_t left = lanes; left;) {
    const uint32_t members = masks[__builtin_ctz(left)];
    uint32_t here = 0;
    for (int l = 0; l < kLanes; ++l) here |= (masks[l] == members ? 1u : 0u) << l;
    here &= left;
    left &= ~here;
    if (here & ~members)
      warp.fault(FaultKind::not_member, __builtin_ctz(here & ~members), 0, Space::none, members);
    if ((members & ~warp.alive) && warp.machine->check_exited)
      warp.finding(FaultKind::exited_member, __builtin_ctz(here), 0, Space::none, members,
                   members & ~warp.alive);
    const uint32_t needed = members & warp.alive;
    if ((here & needed) == needed) {
      warp.set_active(here);
      execute(warp, instruction);
      race_lanes_joined(warp, here);
      lanes_met(warp, here);
      done |= here;
    } else {
      park_for_collective(warp, here, Wait::member, members, needed);
    }
  }
  return done;
}

uint32_t run_aligned(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  if (!gather(warp, lanes)) return 0;
  warp.apart = false;
  execute(warp, instruction);
  return lanes;
}

void goes_beyond_barriers(Warp& warp, const Instruction& branch, uint32_t mask, uint32_t lanes, bool some) {
  const uint32_t taking = some ? lanes : 0;
  const uint32_t leaving = branch.beyond == BeyondBarriers::taken ? taking : mask & ~taking;
  if (leaving) warp.block->leaver = {warp.pc, warp.id, __builtin_ctz(leaving)};
}

// Takes the group to run next out of the list; false when all are waiting. `meet` is where to stop and look
// again.
bool take_group(Warp& warp, uint32_t& mask, int32_t& pc, int32_t& meet) {
  auto& groups = warp.groups;
  int runnable = 0, chosen = -1;
  for (const Group& group : groups) runnable += group.wait == Wait::none;
  if (runnable == 0) return false;
  const int skip = warp.rotate ? warp.turn % runnable : 0;
  warp.rotate = false;
  int32_t floor = -1;
  for (int round = 0; round <= skip; ++round) {  // the skip-th lowest, among distinct counters
    int32_t lowest = INT_MAX;
    for (size_t k = 0; k < groups.size(); ++k)
      if (groups[k].wait == Wait::none && groups[k].pc > floor && groups[k].pc < lowest)
        lowest = groups[k].pc, chosen = static_cast<int>(k);
    floor = lowest;
  }
  pc = groups[static_cast<size_t>(chosen)].pc;
  mask = 0;
  meet = INT_MAX;
  for (size_t k = groups.size(); k-- > 0;) {
    if (groups[k].wait != Wait::none) continue;
    if (groups[k].pc == pc) {
      mask |= groups[k].mask;
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(k));
    } else if (groups[k].pc > pc) {
      meet = std::min(meet, groups[k].pc);
    }
  }
  return true;
}

// Runs one warp until all its lanes wait, or its time slice ends. Where instructions are observed, that is
// another build of this loop.
template <bool Observed>
void run_warp(Warp& warp, uint64_t* counts) {
  Machine& machine = *warp.machine;
  Block& block = *warp.block;
  const Instruction* code = machine.code;
  const uint32_t ran = std::exchange(warp.ran, 0), slice = machine.launch->time_slice - ran;
  warp.run_until = slice;
  uint32_t executed = 0, mask;
  int32_t pc, meet;
  struct Account {  // also when a fault ends the run
    Block& block;
    const uint32_t& executed;
    ~Account() { block.executed += executed; }
  } account{block, executed};

  while (take_group(warp, mask, pc, meet)) {
    warp.set_active(mask);
    for (;;) {
      if (pc >= meet) break;
      if (executed >= warp.run_until) {
        warp.groups.push_back({mask, pc});
        if (executed >= slice)
          warp.next_turn();
        else
          warp.ran = ran + executed;
        return;
      }
      const Instruction& instruction = code[pc];
      ++counts[pc];
      ++executed;
      warp.pc = pc;
      if (__builtin_expect(warp.tracking | !warp.locked.empty(), 0) &&
          watch<Observed>(warp, instruction, mask)) {
        ++pc;
        continue;
      }

      if (__builtin_expect(instruction.kind == Kind::straight, 1)) {
        if (__builtin_expect(instruction.guard == kNoGuard, 1)) {
          if constexpr (Observed) observe(warp, instruction, mask, mask);
          instruction.function(warp, instruction);
        } else {
          uint32_t lanes = mask;
          const bool some = guard_lanes(warp, instruction, lanes);
          if constexpr (Observed) observe(warp, instruction, mask, lanes);
          if (some) {
            warp.set_active(lanes);
            instruction.function(warp, instruction);
            warp.set_active(mask);
          }
        }
        if constexpr (Observed) observe_end(warp, instruction);
        ++pc;
        continue;
      }

      uint32_t lanes = mask;
      const bool some = guard_lanes(warp, instruction, lanes);
      if constexpr (Observed)  // a collective that lanes are missing for is not executed yet
        if (!some || instruction.kind != Kind::aligned || lanes == ~0u)
          observe(warp, instruction, mask, lanes);
      if (instruction.beyond != BeyondBarriers::none)
        goes_beyond_barriers(warp, instruction, mask, lanes, some);
      if (!some) {
        ++pc;
        continue;
      }
      if (instruction.kind == Kind::branch) {
        if (lanes == mask) {
          pc = instruction.target;
          continue;
        }
        if (!warp.apart) warp.way = {};
        warp.apart = true;
        warp.take_one_way(lanes);
        if constexpr (Observed)
          if (warp.block->cluster->counters) count_divergence(warp);
        warp.groups.push_back({lanes, instruction.target});
        warp.groups.push_back({mask & ~lanes, pc + 1});
        mask = 0;
        break;
      }
      Flow flow{0};
      if (instruction.kind == Kind::control) {
        warp.set_active(lanes);
        if (warp.tracking) follow_control(warp, instruction);
        flow = instruction.control(warp, instruction, lanes);
      } else {
        flow.stay = instruction.kind == Kind::member ? run_member(warp, instruction, lanes)
                                                     : run_aligned(warp, instruction, lanes);
      }
      if constexpr (Observed) observe_end(warp, instruction);
      const uint32_t staying = flow.stay | (mask & ~lanes);
      if (staying == mask && !flow.yield) {
        warp.set_active(mask);
        ++pc;
        continue;
      }
      if (staying) warp.groups.push_back({staying, pc + 1});
      mask = 0;
      if (flow.yield) {
        warp.next_turn();
        return;
      }
      break;
    }
    if (mask) warp.groups.push_back({mask, pc});
  }
}

// ---- what everyone waits for, when nothing moves

Waiting describe(const Block& block, const Warp& warp, const Group& group) {
  Waiting waiting{};
  waiting.block = block.id;
  waiting.warp = warp.id;
  waiting.pc = group.pc;
  waiting.lanes = group.mask;
  waiting.address = group.key;
  switch (group.wait) {
    case Wait::none:
      waiting.reason = WaitReason::none;
      break;
    case Wait::barrier: {
      waiting.reason = WaitReason::barrier;
      waiting.expected = static_cast<int64_t>(barrier_expected(block, static_cast<int>(group.key)));
      waiting.pending = barrier_arrived(block, static_cast<int>(group.key));
      break;
    }
    case Wait::mbarrier: {
      waiting.reason = WaitReason::mbarrier;
      waiting.expected = static_cast<int64_t>(group.expected & 1);
      for (const Mbarrier& barrier : block.mbarriers)
        if (barrier.valid && barrier.address == group.key) {
          waiting.phase = static_cast<int64_t>(barrier.phase);
          waiting.pending = barrier.pending;
          waiting.transactions = barrier.transactions;
          const size_t number = static_cast<size_t>(warp.id);
          const uint64_t passed = number < barrier.passed.size() ? barrier.passed[number].phases : 0;
          waiting.unseen = static_cast<int64_t>(barrier.phase - passed);
        }
      break;
    }
    case Wait::member:
    case Wait::warp_barrier:
      waiting.reason = WaitReason::collective;
      waiting.expected = static_cast<int64_t>(group.key & warp.alive & ~group.mask);
      break;
    case Wait::aligned:
      waiting.reason = WaitReason::collective;
      waiting.address = warp.exists;
      waiting.expected = static_cast<int64_t>(warp.exists & ~group.mask);
      break;
    case Wait::cluster:
      waiting.reason = WaitReason::cluster_barrier;
      break;
    case Wait::warpgroup:
      waiting.pc = group.pc - 1;  // it goes on behind the instruction
      waiting.reason = WaitReason::warpgroup;
      break;
    case Wait::unit:
      waiting.reason = WaitReason::unit;
      break;
    case Wait::grid:
      waiting.pc = group.pc - 1;
      waiting.reason = WaitReason::grid;
      break;
    case Wait::registers:
      waiting.reason = WaitReason::registers;
      waiting.expected = static_cast<int64_t>(group.expected);
      waiting.pending = block.free_registers;
      break;
  }
  return waiting;
}

}  // namespace

std::vector<Waiting> Cluster::waiting() const {
  if (!suspected_at.empty()) return suspected_at;
  std::vector<Waiting> all;
  for (const Block& block : blocks) {
    for (const Warp& warp : block.warps) {
      for (const Group& group : warp.groups) all.push_back(describe(block, warp, group));
      if (const uint32_t exited = warp.exists & ~warp.alive) {
        Waiting waiting{};
        waiting.block = block.id;
        waiting.warp = warp.id;
        waiting.pc = -1;
        waiting.lanes = exited;
        waiting.reason = WaitReason::exited;
        all.push_back(waiting);
      }
    }
    for (const Mbarrier& barrier : block.mbarriers)
      for (size_t w = 0; w < barrier.passed.size(); ++w)
        if (const Passed& passed = barrier.passed[w]; passed.again) {
          Waiting waiting{};
          waiting.block = block.id;
          waiting.warp = static_cast<int32_t>(w);
          waiting.pc = passed.again_pc;
          waiting.lanes = passed.again;
          waiting.reason = WaitReason::passed_again;
          waiting.address = barrier.address;
          waiting.phase = static_cast<int64_t>(passed.again_phases);
          all.push_back(waiting);
        }
  }
  return all;
}

namespace {

// How much a wait says about why nothing moves: part of a warp alone at a collective, bytes or registers that
// do not come, anything else.
int tells(const Warp& warp, const Group& group) {
  if (group.wait == Wait::member || group.wait == Wait::warp_barrier) return 4;
  if (group.wait == Wait::aligned || barrier_lacks_lanes(*warp.block, warp, group)) {
    for (const Group& other : warp.groups)  // a lane that would come, once its own wait has ended
      if (other.wait == Wait::mbarrier) return -1;
    return 3;
  }
  if (group.wait == Wait::registers) return 2;
  if (group.wait == Wait::mbarrier)
    for (const Mbarrier& barrier : warp.block->mbarriers)
      if (barrier.valid && barrier.address == group.key && barrier.transactions) return 1;
  return 0;
}

// Nothing can move. Says so at the most telling place.
[[noreturn]] void deadlock(Cluster& cluster) {
  Fault of_unit;
  for (const auto& unit : cluster.units)
    if (unit->explain_standstill(of_unit)) throw of_unit;
  const Warp* warp = nullptr;
  const Group* group = nullptr;
  for (const Warp* w : cluster.warps)
    for (const Group& g : w->groups)
      if (!group || tells(*w, g) > tells(*warp, *group)) warp = w, group = &g;
  Fault fault;
  fault.kind = tells(*warp, *group) == 3 ? FaultKind::barrier_diverged : FaultKind::deadlock;
  if (fault.kind == FaultKind::barrier_diverged) forget_suspected(cluster);
  fault.pc = group->pc;
  fault.block = warp->block->id;
  fault.warp = warp->id;
  fault.lane = __builtin_ctz(group->mask);
  fault.address = group->key;
  fault.info = group->mask;
  throw fault;
}

}  // namespace

void Cluster::start(int64_t index) {
  const Launch& launch = *machine->launch;
  const uint32_t size = machine->cluster_size;
  if (blocks.empty()) {
    blocks.resize(size);
    counts.assign(machine->prepared->instructions.size(), 0);
    outcomes.assign(counts.size(), 0);
    start_counters(*this);
    for (const MakeUnit make : machine->prepared->units) units.push_back(make(*this));
    for (uint32_t rank = 0; rank < size; ++rank) {
      blocks[rank].cluster = this;
      blocks[rank].machine = machine;
      blocks[rank].rank = rank;
      allocate(blocks[rank]);
      for (Warp& warp : blocks[rank].warps) warps.push_back(&warp);
    }
  }
  uint32_t position[3];
  place_cluster(launch, index, position);
  for (uint32_t rank = 0; rank < size; ++rank) {
    const uint32_t within[3] = {rank % launch.cluster[0], rank / launch.cluster[0] % launch.cluster[1],
                                rank / launch.cluster[0] / launch.cluster[1]};
    reset(blocks[rank], position, within);
  }
  start_races(*this, index);
  undefined.reset();
  suspected = Fault{};
  more_suspected.clear();
  raced = false;
  suspected_at.clear();
  after_race = 0;
  for (Warp* warp : warps) {
    warp->undefined.reset();
    warp->polled = {};
    warp->tracking = warp->read_unwritten = false;
    if (machine->check_initialised) start_undefined(*warp);
  }
  start_trace(*this);
  loads.clear();
  for (const auto& unit : units) unit->start();
  barrier_phase = barrier_arrived = 0;
  refused_pc = -1;
  arrivals_in_flight = 0;
  turns.state = random.state = launch.seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(index);
  gives_way = polls = false;
  fuel_left = 0;
}

bool Cluster::polls_in_vain() const {
  bool any = false;
  for (const Warp* warp : warps) {
    if (!warp->runnable()) continue;
    if (warp->polled.times < kPolls || warp->polled.changed()) return false;
    any = true;
  }
  return any;
}

bool Cluster::waits_for_launches() const {
  for (const Warp* warp : warps)
    for (const Group& group : warp->groups)
      if (group.wait == Wait::grid) return true;
  return false;
}

Fault Cluster::hung(int64_t limit, bool seconds) const {
  Fault fault;
  fault.kind = FaultKind::budget;
  fault.pc = last->pc;
  fault.block = last->block->id;
  fault.warp = last->id;
  fault.lane = last->active ? __builtin_ctz(last->active) : 0;
  fault.info = limit;
  fault.detail = seconds;
  return fault;
}

bool Cluster::run(uint64_t fuel) {
  const uint64_t budget = machine->launch->budget;
  uint64_t spent = 0;
  fuel_left = 0;
  for (;;) {
    ready.clear();
    for (Warp* warp : warps)
      if (warp->runnable()) ready.push_back(warp);
    uint32_t in_flight = static_cast<uint32_t>(loads.size()) + (arrivals_in_flight > 0);
    const uint32_t copies = in_flight;
    for (const auto& unit : units) in_flight += static_cast<uint32_t>(unit->in_flight());
    if (in_flight && (ready.empty() || random.below(kLandingOdds) == 0)) {
      uint32_t drawn = random.below(in_flight);
      if (drawn >= copies) {
        drawn -= copies;
        auto unit = units.begin();
        for (; drawn >= (*unit)->in_flight(); ++unit) drawn -= static_cast<uint32_t>((*unit)->in_flight());
        (*unit)->complete(drawn);
        continue;
      }
      const bool is_load = drawn < loads.size();
      const Transfer landing = is_load && trace ? loads[drawn] : Transfer{};
      if (is_load)
        land_transfer(*this, drawn);
      else
        land_copy_arrival(*this);
      if (trace) trace_landed(*this, is_load ? static_cast<int64_t>(drawn) : -1, landing);
      continue;
    }
    if (ready.empty()) {
      if (waits_for_launches()) return false;
      for (const Block& block : blocks)
        if (block.alive) deadlock(*this);
      return true;
    }
    if (spent >= fuel) return false;
    Warp& warp = *ready[ready.size() == 1 ? 0 : random.below(static_cast<uint32_t>(ready.size()))];
    ++switches;
    const uint64_t before = warp.block->executed;
    last = &warp;
    if (trace) trace_resumed(warp);
    if (counters || trace)
      run_warp<true>(warp, counts.data());
    else
      run_warp<false>(warp, counts.data());
    if (trace) trace_stopped(warp);
    spent += warp.block->executed - before + 1;
    if (suspected.kind == FaultKind::race && (after_race += warp.block->executed - before) > kMostAfterRace)
      report_suspected();
    if (warp.block->executed > budget) throw hung(static_cast<int64_t>(budget), false);
    if (std::exchange(gives_way, false)) {
      fuel_left = std::exchange(polls, false) ? 0 : fuel - std::min(fuel, spent);
      return false;
    }
  }
}

void Cluster::report_suspected() {
  const Fault first = std::exchange(suspected, Fault{});
  const std::vector<Fault> more = std::exchange(more_suspected, {});
  after_race = 0;
  if (first.kind != FaultKind::none) report(*this, first);
  for (const Fault& fault : more) report(*this, fault);
  suspected_at.clear();  // not before: who reports says where warps were
}

}  // namespace workbench::emulator::WORKBENCH_ISA
