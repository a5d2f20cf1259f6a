// Allocation, order and completion of what uses tensor memory.
#include "tensor_memory.hpp"

#include <algorithm>

#include "float_functors.hpp"
#include "mbarrier.hpp"
#include "scheduler.hpp"
#include "trace.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

std::unique_ptr<AsyncUnit> make_tensor_unit(Cluster& cluster) {
  return std::make_unique<TensorUnit>(cluster);
}

TensorUnit& TensorUnit::of(const Warp& warp) {
  for (const auto& unit : warp.block->cluster->units)
    if (auto* found = dynamic_cast<TensorUnit*>(unit.get())) return *found;
  std::abort();  // a program with such an instruction has the unit
}

size_t TensorUnit::warps_per_block() const { return cluster_.machine->warps_per_block; }

void TensorUnit::start() {
  memories_.assign(cluster_.blocks.size(), TensorMemory{});
  warps_.assign(cluster_.blocks.size() * warps_per_block(), OfWarp{});
  records_.assign(1, TensorRecord{});
  commits_.clear();
}

// ---- blocks and pairs

Block& TensorUnit::peer(const Warp& warp, int lane) {
  const uint32_t rank = warp.block->rank ^ 1;
  if (rank >= cluster_.blocks.size()) warp.fault(FaultKind::tensor_pair, lane, 0, Space::none, kNoPeer);
  Block& other = cluster_.blocks[rank];
  if (other.alive == 0)
    warp.fault(FaultKind::tensor_pair, lane, 0, Space::none, kPeerExited, 0, other.exit_pc);
  return other;
}

void TensorUnit::require_group(const Warp& warp, const Instruction& instruction, int lane) {
  TensorMemory& own = memory(*warp.block);
  const int group = instruction.flags & kTensorPair ? 2 : 1;
  if (own.group == 0) own.group = group, own.group_pc = warp.pc;
  if (own.group != group) warp.fault(FaultKind::tensor_group, lane, 0, Space::none, group, 0, own.group_pc);
}

// ---- allocation

int64_t TensorUnit::find_columns(TensorMemory& own, TensorMemory* other, uint32_t columns) {
  const auto is_free = [&](const TensorMemory& memory, uint32_t first) {
    return first >= memory.reserved &&
           std::none_of(memory.allocations.begin(), memory.allocations.end(), [&](const TensorAllocation& a) {
             return a.freed_pc < 0 && first < a.first + a.columns && a.first < first + columns;
           });
  };
  for (uint32_t first = 0; first + columns <= kTensorColumns; first += columns)
    if (is_free(own, first) && (!other || is_free(*other, first))) return first;
  return -1;
}

void TensorUnit::grant(Warp& warp, Block& block, uint32_t first, uint32_t columns, int32_t pc, bool pair) {
  TensorMemory& own = memory(block);
  if (own.cells.empty()) {
    own.cells.resize(size_t{kTensorLanes} * kTensorColumns);
    own.written.resize(size_t{kBands} * kTensorColumns);
    own.defined.resize(size_t{kBands} * kTensorColumns);
    own.shadow.resize(size_t{kBands} * kTensorColumns);
  }
  own.allocations.push_back({first, columns, pc, -1, pair});
  const TensorRegion region{0xff, kAllOfBand, first, columns};
  note_written(block, region, false);
  const int32_t at = std::exchange(warp.pc, pc);
  const uint32_t number = issue(warp, -1, TensorUse::allocated);
  own.allocations.back().number = number;
  for (uint32_t band = 0; band < kBands; ++band)
    for (uint32_t c = first; c < first + columns; ++c) own.shadow[band * kTensorColumns + c] = {number, {}};
  warp.pc = at;
}

void TensorUnit::store_address(Warp& warp, const Instruction& instruction, uint32_t address) {
  uint64_t place[kLanes];
  read_addresses(warp, instruction.operands[0], place);
  uint32_t offset;
  Block& block = shared_block(warp, static_cast<uint32_t>(place[0]), 0, offset);
  if (offset % 4) warp.fault(FaultKind::misaligned, 0, offset, Space::shared, 4);
  check_shared_run(warp, block, offset, 4, Access::write, 0);
  std::memcpy(block.shared.data() + offset, &address, sizeof address);
}

// [address in shared memory], columns. Waits until there are as many, and for the other block of a pair.
Flow TensorUnit::allocate(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  if (!gather(warp, lanes)) return {0};
  require_group(warp, instruction, 0);
  Block& block = *warp.block;
  TensorMemory& own = memory(block);
  const bool pair = (instruction.flags & kTensorPair) != 0;
  if (own.asked.granted >= 0 && own.asked.warp == warp.id && own.asked.pc == warp.pc) {
    store_address(warp, instruction, static_cast<uint32_t>(own.asked.granted));
    own.asked = {};
    return {lanes};
  }
  const uint32_t columns = uniform(warp, instruction.operands[1]);
  if (columns < 32 || columns > kTensorColumns || (columns & (columns - 1)))
    warp.fault(FaultKind::tensor_allocation, 0, columns, Space::none, kBadColumns);
  if (own.relinquished_pc >= 0)
    warp.fault(FaultKind::tensor_allocation, 0, columns, Space::none, kAfterRelinquish, 0,
               own.relinquished_pc);
  if (own.allocations.empty() && own.reserved == 0 && columns < kTensorColumns && !pair)
    // another block on the multiprocessor has been there before, now and then
    own.reserved = cluster_.machine->launch->seed ? cluster_.random.below(2) * columns : 0;
  TensorMemory* other = nullptr;
  const auto wait = [&]() -> Flow {
    own.asked.pc = warp.pc;
    own.asked.warp = warp.id;
    own.asked.columns = columns;
    warp.groups.push_back({lanes, warp.pc, Wait::unit, columns});
    return {0};
  };
  if (pair) {
    Block& partner = peer(warp, 0);
    other = &memory(partner);
    if (other->asked.pc < 0 || other->asked.granted >= 0) return wait();
    if (other->asked.columns != columns)
      warp.fault(FaultKind::tensor_pair, 0, columns, Space::none, kPeerDiffers, other->asked.columns,
                 other->asked.pc);
  }
  int64_t first = find_columns(own, other, columns);
  if (first < 0 && own.reserved) {  // the other block has ended meanwhile
    own.reserved = 0;
    first = find_columns(own, other, columns);
  }
  if (first < 0) return wait();
  if (pair) {
    Block& partner = peer(warp, 0);
    Warp& asking = partner.warps[static_cast<size_t>(other->asked.warp)];
    grant(asking, partner, static_cast<uint32_t>(first), columns, other->asked.pc, true);
    other->asked.granted = first;
    wake();
  }
  own.asked = {};
  grant(warp, block, static_cast<uint32_t>(first), columns, warp.pc, pair);
  store_address(warp, instruction, static_cast<uint32_t>(first));
  return {lanes};
}

void TensorUnit::wake() {
  for (Warp* warp : cluster_.warps)
    for (Group& group : warp->groups)
      if (group.wait == Wait::unit) group.wait = Wait::none;
}

// A device faults where the even block of a pair frees before the allocation of the odd one has ended.
void TensorUnit::check_peer_has_allocated(const Warp& warp, const TensorAllocation& freed) {
  if (!warp.races) return;
  for (const TensorAllocation& theirs : memories_[warp.block->rank + 1].allocations) {
    const TensorRecord& record = records_[theirs.number];
    if (theirs.first != freed.first || theirs.freed_pc >= 0 ||
        some_lane_knows(*warp.races, warp.races->cluster, record.agent, record.clock) ||
        has_met(*warp.races, record.agent, record.clock))
      continue;
    warp.finding(FaultKind::tensor_pair, 0, freed.first, Space::tensor, kPeerUnknown, 0, theirs.pc);
  }
}

// address, columns
void TensorUnit::free(Warp& warp, const Instruction& instruction) {
  require_group(warp, instruction, 0);
  TensorMemory& own = memory(*warp.block);
  const uint32_t address = uniform(warp, instruction.operands[0]),
                 columns = uniform(warp, instruction.operands[1]);
  TensorAllocation* found = nullptr;
  for (TensorAllocation& allocation : own.allocations)
    if (allocation.first == address) found = &allocation;
  if (!found) warp.fault(FaultKind::tensor_free, 0, address, Space::tensor, columns, kNoAllocation);
  if (found->freed_pc >= 0)
    warp.fault(FaultKind::tensor_free, 0, address, Space::tensor, columns, kFreedBefore, found->freed_pc);
  if (found->columns != columns)
    warp.fault(FaultKind::tensor_free, 0, found->columns, Space::none, columns, kOtherColumns, found->pc);
  if (found->pair && warp.block->rank % 2 == 0) check_peer_has_allocated(warp, *found);
  const TensorRegion region{0xff, kAllOfBand, found->first, found->columns};
  use(warp, 0, *warp.block, region, issue(warp, -1, TensorUse::freed), true);
  note_written(*warp.block, region, false);
  found->freed_pc = warp.pc;
  wake();
}

void TensorUnit::relinquish(Warp& warp, const Instruction& instruction) {
  require_group(warp, instruction, 0);
  memory(*warp.block).relinquished_pc = warp.pc;
}

void TensorUnit::warp_exits(Warp& warp, uint32_t lanes) {
  Block& block = *warp.block;
  if (block.alive != static_cast<uint32_t>(__builtin_popcount(lanes))) return;
  for (const TensorAllocation& allocation : memory(block).allocations)
    if (allocation.freed_pc < 0) {
      const int32_t exit_pc = std::exchange(warp.pc, allocation.pc);
      warp.finding(FaultKind::tensor_not_freed, __builtin_ctz(lanes), allocation.first, Space::tensor,
                   allocation.columns, 0, exit_pc);
      warp.pc = exit_pc;
    }
}

bool TensorUnit::explain_standstill(Fault& fault) const {
  for (const Warp* warp : cluster_.warps)
    for (const Group& group : warp->groups) {
      if (group.wait != Wait::unit) continue;
      const TensorMemory& own = memories_[warp->block->rank];
      fault.pc = group.pc;
      fault.block = warp->block->id;
      fault.warp = warp->id;
      fault.lane = 0;
      fault.address = group.key;
      if (own.group == 2 && memories_[warp->block->rank ^ 1].asked.pc < 0) {
        fault.kind = FaultKind::tensor_pair;
        fault.info = kPeerMissing;
        return true;
      }
      fault.kind = FaultKind::tensor_allocation;
      fault.info = kNeverFits;
      for (const TensorAllocation& allocation : own.allocations)
        if (allocation.freed_pc < 0) fault.other_pc = allocation.pc;
      return true;
    }
  return false;
}

// ---- uses

uint32_t TensorUnit::issue(Warp& warp, int lane, TensorUse use, uint64_t accumulator) {
  TensorRecord made;
  made.pc = warp.pc;
  made.warp = warp.id;
  made.lane = lane;
  made.block = warp.block->id;
  made.use = use;
  made.accumulator = accumulator;
  OfWarp& own = of_warp(warp);
  if (use >= TensorUse::accumulated) {
    Executor& executor = own.executors[lane];
    made.executed = true;
    made.clock = executor.commits + 1;
    if (warp.races) {
      if (!executor.agent) executor.agent = race_new_executor(cluster_);
      made.agent = executor.agent;
    }
  } else if (warp.races) {
    made.agent = warp.races->agent;
    made.clock = warp.races->now();
  }
  records_.push_back(made);
  const auto number = static_cast<uint32_t>(records_.size() - 1);
  if (use == TensorUse::loaded || use == TensorUse::stored) own.unfenced.push_back(number);
  return number;
}

bool TensorUnit::check_allocated(const Warp& warp, int lane, Block& block, const TensorRegion& region) {
  const TensorMemory& own = memory(block);
  const uint32_t end = region.first + region.columns;
  if (end > kTensorColumns)
    warp.fault(FaultKind::tensor_bounds, lane, region.first, Space::tensor, region.columns, kBeyondMemory);
  for (uint32_t c = region.first; c < end;) {
    const TensorAllocation* holds = nullptr;
    int32_t freed = -1;
    for (const TensorAllocation& allocation : own.allocations) {
      if (c < allocation.first || c >= allocation.first + allocation.columns) continue;
      if (allocation.freed_pc < 0)
        holds = &allocation;
      else
        freed = allocation.freed_pc;
    }
    if (!holds) {
      warp.finding(FaultKind::tensor_bounds, lane, c, Space::tensor, region.columns,
                   freed >= 0 ? kFreed : kNotAllocated, freed);
      return false;
    }
    c = holds->first + holds->columns;
  }
  return true;
}

void TensorUnit::conflict(const Warp& warp, FaultKind kind, int lane, uint32_t address,
                          const TensorRecord& before, int64_t info) {
  Fault fault;
  fault.kind = kind;
  fault.pc = warp.pc;
  fault.block = warp.block->id;
  fault.warp = warp.id;
  fault.lane = lane;
  fault.address = address;
  fault.space = Space::tensor;
  fault.info = info;
  fault.detail = static_cast<int64_t>(before.use);
  fault.other_pc = before.pc;
  fault.other_block = before.block;
  fault.other_warp = before.warp;
  fault.other_lane = before.lane;
  report(cluster_, fault);
}

namespace {

bool is_product(TensorUse use) { return use >= TensorUse::accumulated && use <= TensorUse::selected; }

// Whether two operations of one thread are carried out in order of their issue.
bool in_pipeline(const TensorRecord& before, const TensorRecord& now) {
  if (is_product(now.use))
    return before.use == TensorUse::copied || before.use == TensorUse::shifted ||
           (before.use == TensorUse::accumulated && now.use == TensorUse::accumulated &&
            before.accumulator == now.accumulator) ||
           before.pc == now.pc;
  if (now.use == TensorUse::shifted) return is_product(before.use);
  return before.use == TensorUse::shifted;  // a copy of 4x256b
}

}  // namespace

void TensorUnit::check_order(const Warp& warp, int lane, const TensorRecord& before, const TensorRecord& now,
                             bool writes, uint32_t address) {
  const bool same_warp = before.warp == warp.id && before.block == warp.block->id;
  if (before.pending) {
    if (before.use == TensorUse::loaded && writes)
      return conflict(warp, FaultKind::tensor_load_pending, lane, address, before);
    if (before.use == TensorUse::stored && !(same_warp && now.use == TensorUse::stored))
      return conflict(warp, FaultKind::tensor_store_pending, lane, address, before);
  }
  if (!warp.races) return;
  const WarpRaces& own = *warp.races;
  const bool known = some_lane_knows(own, own.cluster, before.agent, before.clock);
  if (!known) {
    // both blocks of a pair allocate at once: what follows one allocation follows the other
    if (before.use == TensorUse::allocated && before.block != warp.block->id) return;
    if (before.executed && now.executed && before.agent == now.agent) {
      if (!in_pipeline(before, now))
        conflict(warp, FaultKind::tensor_unordered, lane, address, before, static_cast<int64_t>(now.use));
      return;
    }
    if (!before.pending && has_met(own, before.agent, before.clock))
      return conflict(warp, FaultKind::tensor_fence, lane, address, before, 3);
    return conflict(warp, before.executed ? FaultKind::tensor_not_committed : FaultKind::tensor_race, lane,
                    address, before);
  }
  if (same_warp || before.use == TensorUse::allocated || before.use == TensorUse::freed ||
      now.use == TensorUse::freed)
    return;
  const auto knows_at = [&](const Times& times, uint32_t clock) {
    return before.agent < times.size() && times[before.agent] >= clock;
  };
  if (!before.executed &&
      (before.fenced == 0 || !some_lane_knows(own, own.cluster, before.agent, before.fenced)))
    return conflict(warp, FaultKind::tensor_fence, lane, address, before, 1);
  if (!knows_at(of_warp(warp).fenced, before.clock))
    conflict(warp, FaultKind::tensor_fence, lane, address, before, 2);
}

bool TensorUnit::use(const Warp& warp, int lane, Block& block, const TensorRegion& region, uint32_t number,
                     bool writes) {
  if (!check_allocated(warp, lane, block, region)) return false;
  TensorMemory& own = memory(block);
  const TensorRecord now = records_[number];
  uint32_t fine[4] = {};  // records that have been looked at
  size_t next = 0;
  const auto check = [&](uint32_t before, uint32_t address) {
    if (before == 0 || before == number || before == fine[0] || before == fine[1] || before == fine[2] ||
        before == fine[3])
      return;
    check_order(warp, lane, records_[before], now, writes, address);
    fine[next++ % 4] = before;
  };
  const auto replaces = [&](uint32_t before) {
    const TensorRecord& old = records_[before];
    return before == 0 || before == number ||
           (!old.pending && !now.pending && old.agent == now.agent && old.executed == now.executed);
  };
  for (uint32_t band = 0; band < kBands; ++band) {
    if (!(region.bands >> band & 1)) continue;
    TensorShadow* shadow = &own.shadow[band * kTensorColumns];
    for (uint32_t c = region.first; c < region.first + region.columns; ++c) {
      TensorShadow& here = shadow[c];
      const uint32_t address = band * kBandLanes << 16 | c;
      check(here.write, address);
      if (writes) {
        for (const uint32_t read : here.reads) check(read, address);
        here = {number, {}};
        continue;
      }
      uint32_t place = 0;
      while (place < 2 && !replaces(here.reads[place])) ++place;
      here.reads[place] = number;
    }
  }
  return true;
}

void TensorUnit::note_written(Block& block, const TensorRegion& region, bool written) {
  TensorMemory& own = memory(block);
  for (uint32_t band = 0; band < kBands; ++band) {
    if (!(region.bands >> band & 1)) continue;
    for (uint32_t c = region.first; c < region.first + region.columns; ++c)
      for (auto* lanes : {&own.written[band * kTensorColumns + c], &own.defined[band * kTensorColumns + c]})
        *lanes = static_cast<uint16_t>(written ? *lanes | region.lanes : *lanes & ~region.lanes);
  }
}

void TensorUnit::note_undefined(Block& block, uint32_t lane, uint32_t column, uint32_t origin) {
  TensorMemory& own = memory(block);
  const auto bit = static_cast<uint16_t>(1u << lane % kBandLanes);
  const size_t at = lane / kBandLanes * kTensorColumns + column;
  own.written[at] |= bit;
  own.defined[at] = static_cast<uint16_t>(own.defined[at] & ~bit);
  own.origins[lane << 16 | column] = origin;
}

uint32_t TensorUnit::origin_of(const Warp& warp, Block& block, uint32_t lane, uint32_t column) {
  TensorMemory& own = memory(block);
  const uint32_t bit = 1u << lane % kBandLanes;
  const size_t at = lane / kBandLanes * kTensorColumns + column;
  if (own.defined[at] & bit) return 0;
  if (own.written[at] & bit) return own.origins[lane << 16 | column];
  return origin_in_tensor_memory(warp, lane << 16 | column);
}

namespace {

bool all_noted(const std::vector<uint16_t>& noted, const TensorRegion& region) {
  for (uint32_t band = 0; band < kBands; ++band) {
    if (!(region.bands >> band & 1)) continue;
    for (uint32_t c = region.first; c < region.first + region.columns; ++c)
      if (region.lanes & ~noted[band * kTensorColumns + c]) return false;
  }
  return true;
}

}  // namespace

bool TensorUnit::is_written(Block& block, const TensorRegion& region) {
  return all_noted(memory(block).written, region);
}
bool TensorUnit::is_defined(Block& block, const TensorRegion& region) {
  return all_noted(memory(block).defined, region);
}

void TensorUnit::require_written(const Warp& warp, int lane, Block& block, const TensorRegion& region,
                                 TensorUse use) {
  if (!warp.machine->check_initialised || is_written(block, region)) return;
  const TensorMemory& own = memory(block);
  for (uint32_t band = 0; band < kBands; ++band)
    for (uint32_t c = region.first; c < region.first + region.columns; ++c) {
      if (!(region.bands >> band & 1)) continue;
      const auto missing = static_cast<uint32_t>(region.lanes & ~own.written[band * kTensorColumns + c]);
      if (!missing) continue;
      const uint32_t at = band * kBandLanes + static_cast<uint32_t>(__builtin_ctz(missing));
      return warp.finding(FaultKind::tensor_unwritten, lane, at << 16 | c, Space::tensor,
                          static_cast<int64_t>(use));
    }
}

bool TensorUnit::read_shared(Warp& warp, int lane, Block& block, const std::vector<SharedRun>& runs,
                             uint32_t number) {
  bool unwritten = false;
  for (const SharedRun& run : runs)
    if (block.words_in_flight || run.offset + run.bytes > block.shared.size())
      unwritten |= check_shared_run(warp, block, run.offset, run.bytes, Access::read, -1);
    else
      unwritten |= !written_in(block).all(run.offset, run.bytes);
  const TensorRecord& now = records_[number];
  if (warp.races) race_unit_reads(warp, block, runs, static_cast<uint32_t>(lane), now.agent, now.clock);
  return unwritten && warp.machine->check_initialised;
}

// ---- loads and stores

constexpr uint8_t kLoading = 3;  // in Warp::locked

void TensorUnit::load_issued(Warp& warp, const Instruction& instruction, uint32_t number, int registers) {
  if (!warp.machine->check_in_flight) return;
  OfWarp& own = of_warp(warp);
  records_[number].pending = true;
  own.loads.push_back(number);
  if (warp.locked.empty())
    warp.locked.resize(static_cast<size_t>(warp.machine->program->register_bytes / 128));
  for (int r = 0; r < registers; ++r) {
    const int32_t slot = instruction.operands[r].slot;
    if (slot < 0) continue;
    warp.locked[static_cast<size_t>(slot / 128)] = kLoading;
    own.loading[slot] = number;
  }
}

void TensorUnit::store_issued(Warp& warp, uint32_t number) {
  if (!warp.machine->check_in_flight) return;
  records_[number].pending = true;
  of_warp(warp).stores.push_back(number);
}

// A load has ended.
void TensorUnit::loaded(Warp& warp, uint32_t number) {
  TensorRecord& record = records_[number];
  record.pending = false;
  if (warp.races) record.clock = warp.races->now();
}

void TensorUnit::wait(Warp& warp, bool loads) {
  OfWarp& own = of_warp(warp);
  for (const uint32_t number : loads ? own.loads : own.stores) loaded(warp, number);
  (loads ? own.loads : own.stores).clear();
  if (!loads) return;
  own.loading.clear();
  warp.locked.clear();
}

// A device waits for a load where a register of it is used.
void TensorUnit::touch(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  if (lanes == 0) return;
  OfWarp& own = of_warp(warp);
  for (int k = 0; k < instruction.count; ++k) {
    const int32_t slot = instruction.operands[k].slot;
    if (slot < 0 || warp.locked[static_cast<size_t>(slot / 128)] != kLoading) continue;
    const char access = instruction.access[k];
    const uint32_t number = own.loading[slot];
    if (access != 'W' && access != 'D' && access != 'P')
      warp.finding(FaultKind::tensor_load_unwaited, __builtin_ctz(lanes), static_cast<uint64_t>(slot),
                   Space::none, 0, 0, records_[number].pc);
    loaded(warp, number);
    own.loads.erase(std::remove(own.loads.begin(), own.loads.end(), number), own.loads.end());
    for (auto place = own.loading.begin(); place != own.loading.end();)
      if (place->second == number) {
        warp.locked[static_cast<size_t>(place->first / 128)] = 0;
        place = own.loading.erase(place);
      } else {
        ++place;
      }
    if (own.loading.empty()) {
      warp.locked.clear();
      return;
    }
  }
}

void TensorUnit::fence(Warp& warp, bool before) {
  if (!warp.races) return;
  OfWarp& own = of_warp(warp);
  if (before) {
    for (const uint32_t number : own.unfenced) records_[number].fenced = warp.races->now();
    own.unfenced.clear();
    return;
  }
  own.fenced = warp.races->known.now.near;
  for (const LaneKnowledge& part : warp.races->partly) {
    const Times& some = part.known.now.near;
    own.fenced.resize(std::max(own.fenced.size(), some.size()));
    for (size_t k = 0; k < some.size(); ++k) own.fenced[k] = std::max(own.fenced[k], some[k]);
  }
}

// ---- commits

// [mbarrier]{, blocks}: the barrier is told once all that the thread has issued has ended.
void TensorUnit::commit(Warp& warp, const Instruction& instruction) {
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  for_lanes(warp.active, [&](int l) {
    require_group(warp, instruction, l);
    const bool generic = address[l] >> 32 != 0;
    const MbarrierPlace place = mbarrier_place(warp, address[l], l, generic);
    Commit made{};
    made.warp = &warp;
    made.lane = l;
    made.pc = warp.pc;
    made.barrier = place.offset;
    if (instruction.count > 1) {
      const uint32_t mask = source_cells<uint32_t>(warp, instruction.operands[1])[l] & 0xffff;
      const size_t blocks = cluster_.blocks.size();
      if (mask == 0 || mask >> blocks)
        warp.fault(FaultKind::bad_operand, l, 0, Space::none, mask, static_cast<int64_t>(blocks));
      for (Block& block : cluster_.blocks)
        if (mask >> block.rank & 1) made.blocks.push_back(&block);
    } else {
      made.blocks.push_back(place.block);
    }
    for (Block* block : made.blocks) {
      if (block->alive == 0)
        warp.fault(FaultKind::exited_with_work, l, cluster_address(*block, place.offset), Space::shared, 0, 1,
                   block->exit_pc);
      require_mbarrier(warp, {block, place.offset}, l);
      race_mbarrier_used(warp, *block, place.offset, l, true);
    }
    Executor& executor = of_warp(warp).executors[l];
    if (warp.races && !executor.agent) executor.agent = race_new_executor(cluster_);
    made.executor = executor.agent;
    made.time = ++executor.commits;
    made.issued = race_issued(warp, static_cast<uint32_t>(l));
    commits_.push_back(made);
  });
}

// A thread's commits end in their order.
void TensorUnit::complete(size_t index) {
  const auto same = [&](const Commit& commit) {
    return commit.warp == commits_[index].warp && commit.lane == commits_[index].lane;
  };
  const auto first = std::find_if(commits_.begin(), commits_.end(), same);
  const Commit done = *first;
  commits_.erase(first);
  Warp& warp = *done.warp;
  const int32_t pc = std::exchange(warp.pc, done.pc);
  for (Block* block : done.blocks) {
    if (warp.races) race_unit_done(*block, done.barrier, done.executor, done.time, *done.issued);
    mbarrier_update(warp, {block, done.barrier}, done.lane, 1, 0);
  }
  if (cluster_.trace) trace_committed(warp, done.barrier);
  warp.pc = pc;
}

// ---- operations

namespace {

Flow allocate(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  return TensorUnit::of(warp).allocate(warp, instruction, lanes);
}
void free(Warp& warp, const Instruction& instruction) { TensorUnit::of(warp).free(warp, instruction); }
void relinquish(Warp& warp, const Instruction& instruction) {
  TensorUnit::of(warp).relinquish(warp, instruction);
}
void commit(Warp& warp, const Instruction& instruction) { TensorUnit::of(warp).commit(warp, instruction); }
void wait(Warp& warp, const Instruction& instruction) {
  TensorUnit::of(warp).wait(warp, instruction.variant != 0);
}
void fence(Warp& warp, const Instruction& instruction) {
  TensorUnit::of(warp).fence(warp, instruction.variant != 0);
}

// How a warp's registers lie in tensor memory.
enum Shape { k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2 };
struct Cell {
  uint32_t lane, column;
};
Cell cell_of(int shape, uint32_t l, uint32_t r) {
  switch (shape) {
    case k32x32b:
      return {l, r};
    case k16x64b:
      return {l / 4 + 8 * (l % 2), l / 2 % 2 + 2 * r};
    case k16x128b:
      return {l / 4 + 8 * (r % 2), l % 4 + 4 * (r / 2)};
    case k16x256b:
      return {l / 4 + 8 * (r / 2 % 2), r % 2 + 2 * (l % 4) + 8 * (r / 4)};
    default:
      return {l % 16, r};  // the second half of the warp at an offset
  }
}

constexpr int kShapeShift = 8, kShapeMask = 7;  // of a variant, above the number of registers
constexpr int kMostRegisters = 128;

struct Image {  // what an instruction moves
  int shape, registers;
  bool packed;
  uint32_t lane, column, half;  // half: columns from the first to the second part of 16x32bx2
  uint32_t width;               // columns

  uint32_t column_of(const Cell& cell, uint32_t l) const {
    return column + (packed ? 2 * cell.column : cell.column) + (l >= 16 ? half : 0);
  }
};

Image image_of(const Warp& warp, const Instruction& instruction, const Operand& address,
               const Operand* half) {
  uint64_t places[kLanes];
  read_addresses(warp, address, places);
  const auto place = static_cast<uint32_t>(places[0]);
  Image image{};
  image.registers = instruction.variant & 255;
  image.shape = instruction.variant >> kShapeShift & kShapeMask;
  image.packed = (instruction.flags & kTensorPacked) != 0;
  image.lane = tensor_lane(place);
  image.column = tensor_column(place);
  image.half = half ? uniform(warp, *half) : 0;
  image.width = cell_of(image.shape, 31, static_cast<uint32_t>(image.registers - 1)).column + 1;
  if (image.packed) image.width *= 2;
  const uint32_t slab = static_cast<uint32_t>(warp.id) % 4 * kLanes;
  const uint32_t inside = image.lane % kLanes, step = image.shape == k32x32b ? kLanes : kBandLanes;
  if (image.lane >= 2 * kTensorLanes)
    warp.fault(FaultKind::tensor_bounds, 0, place, Space::tensor, image.width, kBeyondMemory);
  if (inside % step) warp.fault(FaultKind::tensor_bounds, 0, place, Space::tensor, step, kOddLane);
  if (image.lane - inside != slab)  // devices take the warp's own lanes, whatever is named
    warp.finding(FaultKind::tensor_lanes, 0, place, Space::tensor, slab);
  image.lane = slab + inside;
  return image;
}

// Calls f(region) for what an image covers.
template <class F>
bool each_region(const Image& image, F f) {
  const uint32_t band = image.lane / kBandLanes;
  const auto bands = static_cast<uint8_t>((image.shape == k32x32b ? 3u : 1u) << band);
  if (!f(TensorRegion{bands, kAllOfBand, image.column, image.width})) return false;
  return image.shape != k16x32bx2 ||
         f(TensorRegion{bands, kAllOfBand, image.column + image.half, image.width});
}

template <class Op>
uint32_t reduced_float(const uint32_t* values, int count, bool absolute) {
  const auto value = [&](int k) {
    const auto one = bit_cast<float>(values[k * kLanes]);
    return absolute ? std::fabs(one) : one;
  };
  float result = Op()(value(0), value(0));
  for (int k = 1; k < count; ++k) result = Op()(result, value(k));
  return bit_cast<uint32_t>(result);
}

// The least or greatest of a lane's registers.
uint32_t reduced(const Instruction& instruction, const uint32_t* values, int count) {
  const int type = instruction.flags >> kTensorKindShift & kTensorKindMask,
            how = instruction.flags >> kTensorVariantShift & kTensorVariantMask;
  const bool most = (how & kTensorMax) != 0, absolute = (how & kTensorAbsolute) != 0;
  if (type == 2 && how & kTensorNan)
    return most ? reduced_float<FloatExtreme<true, true>>(values, count, absolute)
                : reduced_float<FloatExtreme<false, true>>(values, count, absolute);
  if (type == 2)
    return most ? reduced_float<FloatExtreme<true, false>>(values, count, absolute)
                : reduced_float<FloatExtreme<false, false>>(values, count, absolute);
  const auto before = [&](uint32_t a, uint32_t b) {
    return type ? static_cast<int32_t>(a) < static_cast<int32_t>(b) : a < b;
  };
  uint32_t result = values[0];
  for (int k = 1; k < count; ++k) {
    const uint32_t next = values[k * kLanes];
    if (most ? before(result, next) : before(next, result)) result = next;
  }
  return result;
}

constexpr int kReduces = 1 << 16;  // of a variant: ld.red

// registers{, result of ld.red}, [address]{, half}
void load(Warp& warp, const Instruction& instruction) {
  const int count = instruction.variant & 255, results = count + (instruction.variant & kReduces ? 1 : 0);
  const Image image =
      image_of(warp, instruction, instruction.operands[results],
               instruction.count > results + 1 ? &instruction.operands[results + 1] : nullptr);
  TensorUnit& unit = TensorUnit::of(warp);
  TensorMemory& memory = unit.memory(*warp.block);
  const uint32_t number = unit.issue(warp, -1, TensorUse::loaded);
  bool written = true;
  const bool inside = each_region(image, [&](const TensorRegion& region) {
    if (!unit.use(warp, 0, *warp.block, region, number, false)) return false;
    written &= unit.is_defined(*warp.block, region);
    return true;
  });
  if (!inside) return;
  alignas(64) uint32_t all[kMostRegisters][kLanes];
  for (int r = 0; r < count; ++r) {
    uint32_t* values = all[r];
    for (uint32_t l = 0; l < kLanes; ++l) {
      const Cell cell = cell_of(image.shape, l, static_cast<uint32_t>(r));
      const uint32_t* from = &memory.cell(image.lane + cell.lane, image.column_of(cell, l));
      values[l] = image.packed ? (from[0] & 0xffff) | from[1] << 16 : from[0];
    }
    write_cells(warp, instruction.operands[r], values);
  }
  if (results > count)
    write_lanes<uint32_t>(warp, instruction.operands[count],
                          [&](int l) { return reduced(instruction, &all[0][l], count); });
  if (warp.machine->check_initialised && (!written || warp.tracking))
    for (int r = 0; r < count; ++r)
      for (uint32_t l = 0; l < kLanes; ++l) {
        const Cell cell = cell_of(image.shape, l, static_cast<uint32_t>(r));
        const uint32_t lane = image.lane + cell.lane, column = image.column_of(cell, l);
        uint32_t origin = unit.origin_of(warp, *warp.block, lane, column);
        if (!origin && image.packed) origin = unit.origin_of(warp, *warp.block, lane, column + 1);
        set_undefined(warp, instruction.operands[r], static_cast<int>(l), ~0u, origin);
        if (results > count && (origin || r == 0))
          set_undefined(warp, instruction.operands[count], static_cast<int>(l), ~0u, origin);
      }
  unit.load_issued(warp, instruction, number, results);
}

void store(Warp& warp, const Instruction& instruction) {  // [address]{, half}, registers
  const int count = instruction.variant & 255;
  const int first = instruction.count - count;
  const Image image =
      image_of(warp, instruction, instruction.operands[0], first > 1 ? &instruction.operands[1] : nullptr);
  TensorUnit& unit = TensorUnit::of(warp);
  TensorMemory& memory = unit.memory(*warp.block);
  const uint32_t number = unit.issue(warp, -1, TensorUse::stored);
  const bool inside = each_region(image, [&](const TensorRegion& region) {
    if (!unit.use(warp, 0, *warp.block, region, number, true)) return false;
    unit.note_written(*warp.block, region);
    return true;
  });
  if (!inside) return;
  for (int r = 0; r < count; ++r) {
    const Operand& operand = instruction.operands[first + r];
    const uint32_t* values = source_cells<uint32_t>(warp, operand);
    for (uint32_t l = 0; l < kLanes; ++l) {
      const Cell cell = cell_of(image.shape, l, static_cast<uint32_t>(r));
      const uint32_t lane = image.lane + cell.lane, column = image.column_of(cell, l);
      uint32_t* to = &memory.cell(lane, column);
      if (image.packed)
        to[0] = values[l] & 0xffff, to[1] = values[l] >> 16;
      else
        to[0] = values[l];
      if (!warp.tracking) continue;
      if (const uint32_t origin = origin_in_register(warp, operand, static_cast<int>(l)))
        for (uint32_t c = column; c <= column + (image.packed ? 1 : 0); ++c)
          unit.note_undefined(*warp.block, lane, c, origin);
    }
  }
  unit.store_issued(warp, number);
}

void add_moves(Table& table) {
  const std::pair<const char*, int> shapes[] = {
      {"32x32b", 1}, {"16x64b", 1}, {"16x128b", 2}, {"16x256b", 4}, {"16x32bx2", 1}};
  for (int shape = 0; shape < 5; ++shape)
    for (int number = 1; number <= 128; number *= 2) {
      const int registers = number * shapes[shape].second;
      if (registers > kMostRegisters) continue;
      const std::string form = std::string(shapes[shape].first) + ".x" + std::to_string(number) + ".b32";
      const std::string half = shape == k16x32bx2 ? "w" : "", n = std::to_string(registers);
      table.add_aligned("tcgen05.ld.sync.aligned." + form, "W" + n + "a" + half, load,
                        registers | shape << kShapeShift);
      table.of_unit(make_tensor_unit);
      if (number > 1 && (shape == k32x32b || shape == k16x32bx2)) {
        table.add_aligned("tcgen05.ld.red.sync.aligned." + form, "W" + n + "Wa" + half, load,
                          registers | shape << kShapeShift | kReduces);
        table.of_unit(make_tensor_unit);
      }
      table.add_aligned("tcgen05.st.sync.aligned." + form, "a" + half + "w" + n, store,
                        registers | shape << kShapeShift);
      table.of_unit(make_tensor_unit);
    }
}

}  // namespace

void add_tcgen05_operations(Table& table) {
  table.add_control("tcgen05.alloc", "aw", allocate);
  table.of_unit(make_tensor_unit);
  table.add_aligned("tcgen05.dealloc", "ww", free);
  table.of_unit(make_tensor_unit);
  table.add_aligned("tcgen05.relinquish_alloc_permit", "", relinquish);
  table.of_unit(make_tensor_unit);
  for (const char* many : {"", ".multicast"}) {
    table.add("tcgen05.commit" + std::string(many), *many ? "aw" : "a", commit);
    table.of_unit(make_tensor_unit, Proxy::async);
  }
  for (const int loads : {0, 1}) {
    table.add_aligned(std::string("tcgen05.wait.") + (loads ? "ld" : "st"), "", wait, loads);
    table.of_unit(make_tensor_unit);
  }
  for (const int before : {0, 1}) {
    table.add(std::string("tcgen05.fence.") + (before ? "before" : "after"), "", fence, before);
    table.of_unit(make_tensor_unit);
  }
  add_moves(table);
  add_tensor_products(table);
  add_tensor_copies(table);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
