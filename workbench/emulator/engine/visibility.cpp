// What has to be visible to whom, beyond plain order: ordinary stores to the async proxy, initialised
// mbarriers to threads and TMA units, and the shared memory of a block to its guests.
#include <algorithm>

#include "race.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

bool is_warp(const Warp& warp, uint32_t agent) { return agent < warp.block->cluster->races->agents; }

// A fault of this warp about something that another agent did.
Fault blamed(const Warp& warp, FaultKind kind, int lane, uint64_t address, Space space, const Record& other,
             uint32_t by) {
  const Machine& machine = *warp.machine;
  Fault fault;
  fault.kind = kind;
  fault.pc = warp.pc;
  fault.block = warp.block->id;
  fault.warp = warp.id;
  fault.lane = lane;
  fault.address = address;
  fault.space = space;
  fault.other_pc = other.pc;
  if (other.agent < machine.warps_per_block * machine.cluster_size) {
    const Launch& launch = *machine.launch;
    fault.other_block = block_id(launch.grid, launch.cluster, other.cluster - warp.races->first_cluster,
                                 other.agent / machine.warps_per_block);
    fault.other_warp = static_cast<int32_t>(other.agent % machine.warps_per_block);
    fault.other_lane = by < kLanes ? static_cast<int32_t>(by) : -1;
  }
  return fault;
}

}  // namespace

// ---- the async proxy

void require_proxied(const Warp& warp, const Record& written, uint32_t by, Space space, uint64_t address,
                     int lane) {
  const Machine& machine = *warp.machine;
  const Proxy proxy = machine.code[static_cast<size_t>(warp.pc)].proxy;
  if (of_other_launch(*warp.races, written) || !is_warp(warp, written.agent) || proxy < Proxy::async ||
      machine.code[static_cast<size_t>(written.pc)].proxy != Proxy::generic ||
      knows(warp.races->known.proxied, warp.races->cluster, written.cluster, written.agent, written.clock))
    return;
  const FaultKind kind = proxy == Proxy::product ? FaultKind::product_proxy_fence : FaultKind::proxy_fence;
  report(*warp.block->cluster, blamed(warp, kind, lane, address, space, written, by));
}

namespace {

// Looks at the writes to granules, the newest plain one and the strong ones since.
class ProxyReader {
 public:
  ProxyReader(const Warp& warp, const RecordTable& table, Shadow shadow, int shift, uint64_t base,
              Space space, int lane)
      : warp_(warp), table_(table), shadow_(shadow), shift_(shift), base_(base), space_(space), lane_(lane) {}

  void read(uint64_t offset, uint64_t bytes) {
    const uint64_t end = ((offset + bytes - 1) >> shift_) + 1, cells = shadow_.last_write.count();
    for (uint64_t cell = offset >> shift_; cell < std::min(end, cells); ++cell) {
      const uint64_t address = base_ + std::max(cell << shift_, offset);
      check(shadow_.last_write.get(cell), address);
      uint32_t set = shadow_.since.get(cell);
      if (set == fine_set_) continue;
      fine_set_ = set;
      for (; set & kSet; set = table_.nodes[set & ~kSet].parent)
        check(table_.nodes[set & ~kSet].entry, address);
      check(set, address);
    }
  }

 private:
  void check(uint32_t entry, uint64_t address) {
    const uint32_t index = entry >> 6;
    if (index == 0 || index == fine_) return;
    const Record& record = table_.records[index];
    if (record.flags & kWrite) require_proxied(warp_, record, entry & 63, space_, address, lane_);
    fine_ = index;
  }

  const Warp& warp_;
  const RecordTable& table_;
  Shadow shadow_;
  int shift_;
  uint64_t base_;
  Space space_;
  int lane_;
  uint32_t fine_ = 0, fine_set_ = 0;
};

}  // namespace

void proxy_reads_shared(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, int lane) {
  if (!block.races || bytes == 0) return;
  const uint64_t base = &block == warp.block ? 0 : cluster_address(block, 0);
  ProxyReader(warp, block.cluster->races->table, shadow_of(*warp.machine, *block.races, offset, bytes),
              warp.machine->races->shared_shift, base, Space::shared, lane)
      .read(offset, bytes);
}

void require_swizzle(const Warp& warp, uint32_t address, int swizzle, bool landed) {
  const Block& block = *warp.block;
  if (!block.races || address >= block.shared.size()) return;
  const BlockRaces& races = *block.races;
  uint32_t entry = races.lines.view().get(address / kLineBytes, {kSpread, 0}).last_write;
  if (entry == kSpread) entry = races.last_write.view().get(address >> warp.machine->races->shared_shift);
  const Record& written = block.cluster->races->table.records[entry >> 6];
  const int found = (written.flags >> kSwizzleShift & 15) - 1;
  if (found < 0 || found * 32 == swizzle) return;
  if (landed && !some_lane_knows(*warp.races, written.cluster, written.agent, written.clock)) return;
  Fault fault = blamed(warp, FaultKind::swizzle_mismatch, 0, address, Space::shared, written, kLanes);
  fault.info = swizzle;
  fault.detail = found * 32;
  report(*warp.block->cluster, fault);
}

bool proxy_reads_global(const Warp& warp, uint64_t address, uint64_t bytes, int lane) {
  const Machine& machine = *warp.machine;
  const Allocation* allocation = find_allocation(*machine.launch, address);
  if (!allocation || !allocation->writable) return false;
  MachineRaces& races = *machine.races;
  std::unique_lock<std::mutex> lock;
  if (races.locked) lock = std::unique_lock<std::mutex>(races.mutex);
  const auto k = static_cast<size_t>(allocation - machine.launch->allocations.data());
  if (!races.last_write[k]) return false;
  const uint64_t offset = address - allocation->address;
  if (bytes &&
      bytes <= allocation->bytes - offset)  // else out of bounds, which is found when it is carried out
    ProxyReader(warp, races.table, global_shadow(races, *allocation, k), races.global_shift,
                allocation->address, Space::global, lane)
        .read(offset, bytes);
  return true;
}

void require_acquired(const Warp& warp, uint64_t address, const TensorMapBytes& bytes, int lane) {
  const Machine& machine = *warp.machine;
  const auto acquired = warp.block->acquired_maps.find(address);
  if (!warp.races || (acquired != warp.block->acquired_maps.end() && acquired->second == bytes)) return;
  const Allocation& allocation = *find_allocation(*machine.launch, address);
  MachineRaces& races = *machine.races;
  std::unique_lock<std::mutex> lock;
  if (races.locked) lock = std::unique_lock<std::mutex>(races.mutex);
  const auto k = static_cast<size_t>(&allocation - machine.launch->allocations.data());
  const Cells<uint32_t> last_write = global_shadow(races, allocation, k).last_write;
  const uint64_t first = (address - allocation.address) >> races.global_shift,
                 count = bytes.size() >> races.global_shift;
  for (uint64_t cell = first; cell < first + count; ++cell) {
    const uint32_t entry = last_write.get(cell);
    if (entry >> 6 == 0 || of_other_launch(*warp.races, races.table.records[entry >> 6]))
      continue;  // as the launch found it
    Fault fault =
        blamed(warp, FaultKind::proxy_fence, lane, allocation.address + (cell << races.global_shift),
               Space::global, races.table.records[entry >> 6], entry & 63);
    fault.info = 1;
    return report(*warp.block->cluster, fault);
  }
}

// ---- mbarriers

namespace {

enum Visible : uint8_t { kToThreads = 1, kToCopies = 2 };

std::vector<LastUse>& sized(std::vector<LastUse>& uses, size_t agents) {
  if (uses.size() < agents) uses.resize(agents);
  return uses;
}

LastUse use_by(const Warp& warp, uint32_t clock, int lane, uint32_t address) {
  return {clock, warp.pc, warp.id, lane, warp.block->id, address};
}

}  // namespace

bool race_mbarrier_used(const Warp& warp, Block& block, uint32_t offset, int lane, bool by_copy) {
  if (!block.races) return true;
  const WarpRaces& own = *warp.races;
  MbarrierKnowledge& barrier = block.races->mbarriers[offset];
  const size_t agents = block.cluster->races->agents;
  barrier.visible.resize(agents);
  sized(barrier.uses, agents)[own.agent] = use_by(warp, own.now(), lane, offset);

  const uint8_t wanted = by_copy ? kToThreads | kToCopies : kToThreads;
  uint8_t& visible = barrier.visible[own.agent];
  if ((visible & wanted) == wanted) return true;
  const Record& initialised = barrier.initialised;
  const auto known = [&](const Clock& clock) {
    return knows(clock, own.cluster, initialised.cluster, initialised.agent, initialised.clock);
  };
  const bool same_warp = initialised.agent == own.agent;
  const bool told = known(own.known.initialised);
  const auto l = static_cast<uint32_t>(lane);
  const bool ordered =
      !same_warp ? told || some_lane_knows(own, initialised.cluster, initialised.agent, initialised.clock)
                 : l == barrier.lane || initialised.clock <= own.joined_initialised ||
                       race_lanes_seen(own, l, barrier.lane) >= initialised.clock;
  const bool by_library = (warp.machine->code[initialised.pc].flags & kByLibrary) != 0;
  const bool fenced = told || known(own.known.proxied) || by_library;
  if (!ordered || (by_copy && !fenced)) {
    Fault fault = blamed(warp, ordered ? FaultKind::mbarrier_init_fence : FaultKind::mbarrier_not_visible,
                         lane, offset, Space::shared, initialised, barrier.lane);
    if (&block != warp.block) fault.address = cluster_address(block, offset);
    report(*warp.block->cluster, fault);
  }
  if (same_warp && initialised.clock > own.joined) return false;  // known of this lane only
  visible |= wanted;
  return true;
}

namespace {

// The newest write to a granule, of those that the shadow keeps.
uint32_t newest_write(const RecordTable& table, Shadow shadow, uint64_t cell) {
  const auto writes = [&](uint32_t entry) { return (table.records[entry >> 6].flags & kWrite) != 0; };
  uint32_t set = shadow.since.get(cell);
  for (; set & kSet; set = table.nodes[set & ~kSet].parent)
    if (writes(table.nodes[set & ~kSet].entry)) return table.nodes[set & ~kSet].entry;
  return writes(set) ? set : shadow.last_write.get(cell);
}

}  // namespace

void race_mbarrier_overwritten(const Warp& warp, Block& block, uint32_t offset, uint32_t changed,
                               int32_t initialised, int lane) {
  const RecordTable* table = block.races ? &block.cluster->races->table : nullptr;
  const uint32_t entry = table ? newest_write(*table, shadow_of(*warp.machine, *block.races, changed, 1),
                                              changed >> warp.machine->races->shared_shift)
                               : 0;
  if (entry == 0 || table->records[entry >> 6].pc == initialised)
    warp.fault(FaultKind::mbarrier_overwritten, lane,
               &block == warp.block ? offset : cluster_address(block, offset), Space::shared, initialised);
  Fault fault = blamed(warp, FaultKind::mbarrier_overwritten, lane, offset, Space::shared,
                       table->records[entry >> 6], entry & 63);
  std::swap(fault.pc, fault.other_pc);
  std::swap(fault.block, fault.other_block);
  std::swap(fault.warp, fault.other_warp);
  std::swap(fault.lane, fault.other_lane);
  if (fault.block < 0) fault.block = block.id;  // TMA's, which is nobody's
  if (fault.block != block.id) fault.address = cluster_address(block, offset);
  fault.info = initialised;
  throw fault;
}

void race_mbarrier_gone(const Warp& warp, Block& block, uint32_t offset, int lane) {
  if (!block.races) return;
  const auto found = block.races->mbarriers.find(offset);
  if (found == block.races->mbarriers.end()) return;
  const WarpRaces& own = *warp.races;
  std::vector<LastUse>& uses = found->second.uses;
  for (uint32_t agent = 0; agent < uses.size(); ++agent) {
    const LastUse& use = uses[agent];
    if (agent == own.agent || use.clock == 0 || some_lane_knows(own, own.cluster, agent, use.clock)) continue;
    Fault fault;
    fault.kind = FaultKind::mbarrier_in_use;
    fault.pc = warp.pc;
    fault.block = warp.block->id;
    fault.warp = warp.id;
    fault.lane = lane;
    fault.address = offset;
    fault.space = Space::shared;
    fault.other_pc = use.pc;
    fault.other_block = use.block;
    fault.other_warp = use.warp;
    fault.other_lane = use.lane;
    report(*warp.block->cluster, fault);
  }
  uses.clear();
}

// ---- guests of a block's shared memory

void race_guest(const Warp& warp, Block& block, uint32_t address, int lane) {
  if (!block.races) return;
  const ClusterRaces& races = *block.cluster->races;
  sized(block.races->guests, races.agents)[warp.races->agent] =
      use_by(warp, warp.races->now(), lane, address);
}

void race_guest_copy(const Warp& warp, Block& block, uint32_t offset, int lane, uint32_t slot,
                     uint64_t phase) {
  const uint32_t agent = block.cluster->races->agents + slot;
  sized(block.races->guests, agent + 1)[agent] =
      use_by(warp, static_cast<uint32_t>(phase + 1), lane, cluster_address(block, offset));
}

void race_copy_source(const Warp& warp, Block& block, uint32_t offset, int lane, Block& barrier_block,
                      uint32_t barrier, uint64_t phase) {
  if (!block.races) return;
  race_guest_copy(warp, block, offset, lane, barrier_block.races->mbarriers[barrier].slot, phase);
}

void race_block_exited(const Warp& warp, Block& block) {
  if (!block.races || !warp.machine->check_in_flight) return;
  const Times& known = block.races->exited.now.near;
  const std::vector<LastUse>& guests = block.races->guests;
  for (uint32_t agent = 0; agent < guests.size(); ++agent) {
    const LastUse& use = guests[agent];
    if (use.clock == 0 || (agent < known.size() && known[agent] >= use.clock)) continue;
    Fault fault;
    fault.kind = FaultKind::exited_with_work;
    fault.block = use.block;
    fault.warp = use.warp;
    fault.lane = use.lane;
    fault.address = use.address;
    fault.space = Space::shared;
    const bool copy = agent >= block.cluster->races->agents;
    fault.pc = copy ? warp.pc : use.pc;
    fault.other_pc = copy ? use.pc : warp.pc;
    fault.detail = copy ? 0 : 2;
    if (!copy && has_met(*warp.races, agent, use.clock)) fault.kind = FaultKind::exited_relaxed;
    if (copy) {
      if (use.block == block.id) fault.kind = FaultKind::loads_pending;
      fault.block = block.id;
      fault.warp = warp.id;
      fault.lane = -1;
      fault.other_block = use.block;
    }
    report(*block.cluster, fault);
  }
}

}  // namespace workbench::emulator::WORKBENCH_ISA
