// mbarriers: a phase ends when all expected arrivals and all announced bytes have come; then the next one
// begins.
#include "mbarrier.hpp"

#include <algorithm>

#include "memory.hpp"
#include "race.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

constexpr int64_t kLargest = (1 << 20) - 1;  // of counts and transactions

MbarrierPlace mbarrier_place(const Warp& warp, uint64_t address, int lane, bool generic) {
  if (generic && address >> 32 != kSharedWindow >> 32)
    warp.fault(FaultKind::mbarrier_invalid, lane, address, Space::global, 5);
  MbarrierPlace place;
  place.block = &shared_block(warp, static_cast<uint32_t>(address), lane, place.offset);
  const size_t size = place.block->shared.size();
  if (size < 8 || place.offset > size - 8)
    warp.fault(FaultKind::out_of_bounds, lane, address, Space::shared, 8);
  if (place.offset % 8) warp.fault(FaultKind::misaligned, lane, address, Space::shared, 8);
  return place;
}

namespace {

Mbarrier* find(Block& block, uint32_t offset) {
  for (Mbarrier& barrier : block.mbarriers)
    if (barrier.address == offset && barrier.valid) return &barrier;
  return nullptr;
}

// Bytes that a store writes over an mbarrier by mistake are not these.
uint64_t new_signature(Block& block, uint32_t offset) {
  return Random{uint64_t{++block.initialisations} << 32 | offset}.next();
}

void check_intact(const Warp& warp, MbarrierPlace place, const Mbarrier& barrier, int lane) {
  uint64_t bytes;
  std::memcpy(&bytes, place.block->shared.data() + place.offset, sizeof bytes);
  if (bytes == barrier.signature) return;
  const auto changed = static_cast<uint32_t>(__builtin_ctzll(bytes ^ barrier.signature) / 8);
  race_mbarrier_overwritten(warp, *place.block, place.offset, place.offset + changed, barrier.pc, lane);
}

uint64_t mbarrier_address(const Warp& warp, MbarrierPlace place) {
  return place.block == warp.block ? place.offset : cluster_address(*place.block, place.offset);
}

// No copy of a phase may still be on its way when the phase ends.
void check_nothing_left(const Warp& warp, MbarrierPlace place, const Mbarrier& barrier) {
  for (const Transfer& load : place.block->cluster->loads) {
    if (load.barrier_block != place.block || load.barrier != place.offset || load.phase != barrier.phase)
      continue;
    Fault fault;
    fault.kind = FaultKind::mbarrier_bytes;
    fault.pc = load.pc;
    fault.other_pc = barrier.expect_pc;
    fault.block = load.issuer->id;
    fault.warp = load.warp;
    fault.lane = load.lane;
    fault.address = mbarrier_address(warp, place);
    fault.space = Space::shared;
    fault.info = load.bytes;
    fault.detail = 1;
    throw fault;
  }
}

// A new phase: whoever waited on this barrier looks again.
void complete_phase(Block& block, Mbarrier& barrier) {
  race_mbarrier_completed(block, barrier.address);
  ++barrier.phase;
  barrier.pending = barrier.expected;
  std::fill(barrier.arrived.begin(), barrier.arrived.end(), 0u);
  barrier.again_pc = -1;
  for (Warp& warp : block.warps)
    for (Group& group : warp.groups)
      if (group.wait == Wait::mbarrier && group.key == barrier.address) group.wait = Wait::none;
}

}  // namespace

Mbarrier& require_mbarrier(const Warp& warp, MbarrierPlace place, int lane) {
  Mbarrier* barrier = find(*place.block, place.offset);
  if (!barrier) warp.fault(FaultKind::mbarrier_invalid, lane, place.offset, Space::shared);
  check_intact(warp, place, *barrier, lane);
  return *barrier;
}

void mbarrier_update(const Warp& warp, MbarrierPlace place, int lane, int32_t arrivals,
                     int64_t transactions) {
  Mbarrier& barrier = require_mbarrier(warp, place, lane);
  if (arrivals > barrier.pending)
    warp.fault(FaultKind::mbarrier_overflow, lane, mbarrier_address(warp, place), Space::shared,
               barrier.expected, barrier.phase ? 2 : 0);
  barrier.transactions += transactions;
  if (barrier.transactions > kLargest || barrier.transactions < -kLargest)
    warp.fault(FaultKind::mbarrier_transactions, lane, place.offset, Space::shared, barrier.transactions);
  barrier.pending -= arrivals;
  if (barrier.pending != 0) return;
  if (barrier.transactions < 0)
    warp.fault(FaultKind::mbarrier_bytes, lane, place.offset, Space::shared, -barrier.transactions, 0,
               barrier.expect_pc);
  if (barrier.transactions > 0) return;
  check_nothing_left(warp, place, barrier);
  complete_phase(*place.block, barrier);
}

namespace {

enum Form {
  kGeneric = 1,
  kExpect = 2,    // the operand is a number of bytes, and the arrival is one
  kDrop = 4,      // this thread will not take part in later phases
  kParity = 8,    // wait for a phase of that parity, not for a state
  kBlocking = 16  // try_wait
};

MbarrierPlace place_of(const Warp& warp, const Instruction& instruction, const uint64_t* address, int lane) {
  return mbarrier_place(warp, address[lane], lane, (instruction.variant & kGeneric) != 0);
}

void initialise(Warp& warp, const Instruction& instruction) {
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  const Source<int32_t> count(warp, instruction.operands[1]);
  for_lanes(warp.active, [&](int l) {
    const MbarrierPlace place = place_of(warp, instruction, address, l);
    if (count[l] < 1 || count[l] > kLargest)
      warp.fault(FaultKind::mbarrier_count, l, place.offset, Space::shared, count[l]);
    check_shared_run(warp, *place.block, place.offset, 8, Access::write, l);
    Mbarrier* barrier = find(*place.block, place.offset);
    const bool used =
        barrier && (barrier->phase || barrier->pending != barrier->expected || barrier->transactions);
    if (used)  // initialising a barrier that is in use needs an inval first
      warp.fault(FaultKind::mbarrier_invalid, l, place.offset, Space::shared, 1, 0, barrier->pc);
    if (!barrier)
      barrier = &place.block->mbarriers.emplace_back();
    else
      race_mbarrier_gone(warp, *place.block, place.offset, l);
    const uint64_t signature = new_signature(*place.block, place.offset);
    *barrier = {place.offset, true, count[l], count[l], 0, 0, warp.pc, -1, signature, {}, -1, {}};
    std::memcpy(place.block->shared.data() + place.offset, &signature, sizeof signature);
    race_mbarrier_initialised(warp, *place.block, place.offset, l);
  });
}

void invalidate(Warp& warp, const Instruction& instruction) {
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  for_lanes(warp.active, [&](int l) {
    const MbarrierPlace place = place_of(warp, instruction, address, l);
    Mbarrier& barrier = require_mbarrier(warp, place, l);
    race_mbarrier_gone(warp, *place.block, place.offset, l);
    place.block->mbarriers.erase(place.block->mbarriers.begin() + (&barrier - place.block->mbarriers.data()));
  });
}

// A thread arrives. Where there are too many arrivals, it is told whether a thread came twice in the phase:
// then it has not waited for its end.
void note_arrival(const Warp& warp, MbarrierPlace place, Mbarrier& barrier, int lane, int32_t arrivals) {
  const size_t warps = warp.block->warps.size();
  barrier.arrived.resize(warp.block->cluster->blocks.size() * warps);
  uint32_t& lanes = barrier.arrived[warp.block->rank * warps + static_cast<size_t>(warp.id)];
  if ((lanes >> lane & 1) && barrier.again_pc < 0) barrier.again_pc = warp.pc;
  lanes |= 1u << lane;
  if (arrivals > barrier.pending && barrier.again_pc >= 0)
    warp.fault(FaultKind::mbarrier_overflow, lane, mbarrier_address(warp, place), Space::shared,
               barrier.expected, 1, barrier.again_pc);
}

// A state is the phase it was taken in, and how many arrivals were then pending.
uint64_t state_of(const Mbarrier& barrier) {
  return barrier.phase << 20 | static_cast<uint64_t>(barrier.pending);
}

void arrive(Warp& warp, const Instruction& instruction) {  // state, [barrier]{, count}
  uint64_t address[kLanes], states[kLanes] = {};
  read_addresses(warp, instruction.operands[1], address);
  const Operand& count = instruction.operands[2];
  for_lanes(warp.active, [&](int l) {
    const MbarrierPlace place = place_of(warp, instruction, address, l);
    const int32_t value = count.slot == kAbsent ? 1 : source_cells<int32_t>(warp, count)[l];
    Mbarrier& barrier = require_mbarrier(warp, place, l);
    states[l] = state_of(barrier);
    const int32_t arrivals = instruction.variant & kExpect ? 1 : value;
    if (arrivals < 1) warp.fault(FaultKind::mbarrier_count, l, place.offset, Space::shared, arrivals);
    race_mbarrier_used(warp, *place.block, place.offset, l, false);
    note_arrival(warp, place, barrier, l, arrivals);
    if (instruction.variant & kDrop) barrier.expected -= arrivals;
    race_mbarrier_arrive(warp, *place.block, place.offset, instruction.flags, static_cast<uint32_t>(l));
    if (instruction.variant & kExpect) barrier.expect_pc = warp.pc;
    mbarrier_update(warp, place, l, arrivals,
                    instruction.variant & kExpect ? static_cast<uint32_t>(value) : 0);
  });
  write_cells(warp, instruction.operands[0], states);
}

template <int Sign>
void change_transactions(Warp& warp, const Instruction& instruction) {
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  const Source<uint32_t> bytes(warp, instruction.operands[1]);
  for_lanes(warp.active, [&](int l) {
    const MbarrierPlace place = place_of(warp, instruction, address, l);
    Mbarrier& barrier = require_mbarrier(warp, place, l);
    race_mbarrier_used(warp, *place.block, place.offset, l, false);
    if (Sign > 0) barrier.expect_pc = warp.pc;
    mbarrier_update(warp, place, l, 0, Sign * static_cast<int64_t>(bytes[l]));
  });
}

void pending_count(Warp& warp, const Instruction& instruction) {
  const Source<uint64_t> state(warp, instruction.operands[1]);
  write_lanes<uint32_t>(warp, instruction.operands[0],
                        [&](int l) { return static_cast<uint32_t>(state[l] & kLargest); });
}

// Who passes the end of the same phase twice has waited for a parity that was not the next one.
void note_passed(const Warp& warp, Mbarrier& barrier, int lane) {
  const size_t number = static_cast<size_t>(warp.id);
  if (barrier.passed.size() <= number) barrier.passed.resize(warp.block->warps.size());
  Passed& passed = barrier.passed[number];
  if (passed.phases != barrier.phase) passed.lanes = 0;
  passed.phases = barrier.phase;
  const uint32_t bit = 1u << lane;
  if ((passed.lanes & bit) && barrier.phase) {
    if (!passed.again) passed.again_pc = warp.pc, passed.again_phases = barrier.phase;
    if (passed.again_pc == warp.pc && passed.again_phases == barrier.phase) passed.again |= bit;
  }
  passed.lanes |= bit;
}

// test_wait and try_wait: p, [barrier], state or parity. A try_wait that fails waits until the phase ends
// instead, if it is tried again: a kernel must expect that it does, and a deadlock shows at once.
Flow wait(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[1], address);
  const bool parity = (instruction.variant & kParity) != 0;
  uint32_t over = 0;
  uint64_t awaited[kLanes], visible = ~uint64_t{0};
  for_lanes(lanes, [&](int l) {
    const MbarrierPlace place = place_of(warp, instruction, address, l);
    if (place.block != warp.block) warp.fault(FaultKind::mbarrier_invalid, l, address[l], Space::shared, 2);
    Mbarrier& barrier = require_mbarrier(warp, place, l);
    if (place.offset != visible && race_mbarrier_used(warp, *place.block, place.offset, l, false))
      visible = place.offset;
    const Operand& which = instruction.operands[2];
    awaited[l] =
        parity ? source_cells<uint32_t>(warp, which)[l] : source_cells<uint64_t>(warp, which)[l] >> 20;
    // devices read bit 0 (`SHF.L 31` before the test), and Triton widens a bit with its sign
    if (parity && awaited[l] == 0xffffffff) awaited[l] = 1;
    if (parity && awaited[l] > 1)
      warp.fault(FaultKind::mbarrier_invalid, l, place.offset, Space::shared, 3, awaited[l]);
    const bool ended = parity ? (barrier.phase & 1) != awaited[l] : barrier.phase != awaited[l];
    over |= (ended ? 1u : 0u) << l;
    if (ended) {
      note_passed(warp, barrier, l);
    }
    address[l] = place.offset;
  });
  if (warp.races && over) {
    for (uint32_t left = over; left;) {
      const uint64_t passed = address[__builtin_ctz(left)];
      uint32_t here = 0;
      for_lanes(left, [&](int l) { here |= (address[l] == passed ? 1u : 0u) << l; });
      race_mbarrier_passed(warp, static_cast<uint32_t>(passed), here, instruction.flags);
      left &= ~here;
    }
  }
  const bool blocking = (instruction.variant & kBlocking) != 0;
  warp.set_active(blocking ? over : lanes);
  write_lanes<bool>(warp, instruction.operands[0], [&](int l) { return (over >> l & 1) != 0; });
  if (!blocking) return {lanes, over != lanes};
  for (uint32_t left = lanes & ~over; left;) {
    const int first = __builtin_ctz(left);
    uint32_t same = 0;
    for_lanes(left, [&](int l) {
      same |= (address[l] == address[first] && awaited[l] == awaited[first] ? 1u : 0u) << l;
    });
    warp.groups.push_back({same, warp.pc, Wait::mbarrier, address[first], awaited[first]});
    left &= ~same;
  }
  return {over};
}

// Whether another instruction may read what one of them writes first.
bool is_read(const Code& code, const Instruction& writer) {
  const int32_t slot = writer.operands[0].slot;
  if (slot == kAbsent) return false;
  for (const Instruction& reader : code.instructions) {
    if (reader.guard == slot) return true;
    for (int k = 0; k < reader.count; ++k)
      if (reader.operands[k].slot == slot && (reader.access[k] >= 'a' || reader.access[k] == 'U'))
        return true;
  }
  return false;
}

// Whether control may come back to a row within a few instructions.
bool loops_soon(const Code& code, int32_t row) {
  constexpr size_t kMostRows = 64;
  std::vector<int32_t> reached{row + 1};
  for (size_t k = 0; k < reached.size() && k < kMostRows; ++k) {
    if (reached[k] == row) return true;
    const Instruction& here = code.instructions[static_cast<size_t>(reached[k])];
    const bool branches = here.kind == Kind::branch;
    const auto add = [&](int32_t next) {
      if (next >= static_cast<int32_t>(code.instructions.size())) return;
      if (std::find(reached.begin(), reached.end(), next) == reached.end()) reached.push_back(next);
    };
    if (branches) add(here.target);
    if (!branches || here.guard != kNoGuard) add(reached[k] + 1);
  }
  return false;
}

}  // namespace

void find_single_tries(Code& code) {
  for (size_t row = 0; row < code.instructions.size(); ++row) {
    Instruction& tried = code.instructions[row];
    if (tried.control != wait || !(tried.variant & kBlocking)) continue;
    if (!is_read(code, tried) || !loops_soon(code, static_cast<int32_t>(row))) tried.variant &= ~kBlocking;
  }
}

void add_mbarrier_operations(Table& table) {
  const std::pair<const char*, int> spaces[] = {{".shared", 0}, {"", kGeneric}, {".shared::cluster", 0}};
  for (const auto& [space, generic] : spaces) {
    const std::string end = std::string(space) + ".b64";
    table.add("mbarrier.init" + end, "aw", initialise, generic);
    table.add("mbarrier.inval" + end, "a", invalidate, generic);
    table.add("mbarrier.arrive" + end, "D?aw?", arrive, generic);
    table.add("mbarrier.arrive.noComplete" + end, "D?aw", arrive, generic);
    table.add("mbarrier.arrive.expect_tx" + end, "D?aw", arrive, generic | kExpect);
    table.add("mbarrier.arrive_drop" + end, "D?aw?", arrive, generic | kDrop);
    table.add("mbarrier.arrive_drop.noComplete" + end, "D?aw", arrive, generic | kDrop);
    table.add("mbarrier.arrive_drop.expect_tx" + end, "D?aw", arrive, generic | kDrop | kExpect);
    table.add("mbarrier.expect_tx" + end, "aw", change_transactions<1>, generic);
    table.add("mbarrier.complete_tx" + end, "aw", change_transactions<-1>, generic);
    table.add_control("mbarrier.test_wait" + end, "Pad", wait, generic);
    table.add_control("mbarrier.test_wait.parity" + end, "Paw", wait, generic | kParity);
    table.add_control("mbarrier.try_wait" + end, "Padw?", wait, generic | kBlocking);
    table.add_control("mbarrier.try_wait.parity" + end, "Paww?", wait, generic | kBlocking | kParity);
  }
  table.add("mbarrier.pending_count.b64", "Wd", pending_count);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
