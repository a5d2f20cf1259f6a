// cp.async: 4, 8 or 16 bytes a lane from global to shared memory. The bytes land when the lane waits for
// them, not before.
#include <algorithm>

#include "mbarrier.hpp"
#include "memory.hpp"
#include "race.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr int kIgnoreForm = 1;  // the last operand is the predicate ignore-src, not a number of bytes

void copy(Warp& warp, const Instruction& instruction) {  // [dst], [src], size{, bytes or ignore-src}
  uint64_t destination[kLanes], source[kLanes];
  read_addresses(warp, instruction.operands[0], destination);
  read_addresses(warp, instruction.operands[1], source);
  const uint32_t size = uniform(warp, instruction.operands[2]);
  const Operand& last = instruction.operands[3];
  if (size != 4 && size != 8 && size != 16)
    warp.fault(FaultKind::bad_operand, __builtin_ctz(warp.active), 0, Space::none, size);

  uint32_t bytes[kLanes], whole = 0;
  for_lanes(warp.active, [&](int l) {
    if (last.slot == kAbsent)
      bytes[l] = size;
    else if (instruction.variant == kIgnoreForm)
      bytes[l] = Source<bool>(warp, last)[l] ? 0 : size;
    else
      bytes[l] = source_cells<uint32_t>(warp, last)[l];
    if (bytes[l] > size) warp.fault(FaultKind::bad_operand, l, source[l], Space::none, bytes[l]);
    whole |= (bytes[l] == size ? 1u : 0u) << l;
  });

  uint8_t* pointer[kLanes] = {};
  const uint32_t everyone = warp.active;
  if (whole) {
    warp.set_active(whole);
    resolve_global(warp, source, size, Access::read, pointer);
    warp.set_active(everyone);
  }
  const bool unwritten = std::exchange(warp.read_unwritten, false);  // it matters where the copy is used
  for_lanes(everyone, [&](int l) {
    if (bytes[l] && bytes[l] < size) {
      if (source[l] & (size - 1)) warp.fault(FaultKind::misaligned, l, source[l], Space::global, size);
      pointer[l] = resolve_global_run(warp, source[l], bytes[l], Access::read, l);
    }
    const uint32_t offset = static_cast<uint32_t>(destination[l]);
    if (offset & (size - 1)) warp.fault(FaultKind::misaligned, l, offset, Space::shared, size);
    mark_in_flight(warp, *warp.block, offset, size, l);
    race_copy_issued(warp, *warp.block, offset, size, static_cast<uint32_t>(l));
    warp.copies.push_back({offset, pointer[l], source[l], unwritten || bytes[l] < size, bytes[l], size,
                           warp.copy_group[l], ++warp.copy_sequence, l, warp.pc});
  });
}

// Lands the copies that `due` says are.
template <class Due>
void land(Warp& warp, Due due) {
  Block& block = *warp.block;
  auto kept = warp.copies.begin();
  for (const CopyToShared& copy : warp.copies) {
    if (!due(copy)) {
      *kept++ = copy;
      continue;
    }
    uint8_t* destination = block.shared.data() + copy.destination;
    if (copy.bytes) std::memcpy(destination, copy.source, copy.bytes);
    std::memset(destination + copy.bytes, 0, copy.size - copy.bytes);
    landed(block, copy.destination, copy.size);
    if (copy.unwritten && warp.machine->check_initialised) {
      const int32_t pc = std::exchange(warp.pc, copy.pc);
      copied_undefined(warp, block, copy.destination, copy.bytes, copy.global);
      warp.pc = pc;
    }
    race_copy_landed(warp, block, copy.destination, copy.size, static_cast<uint32_t>(copy.lane), copy.pc);
  }
  warp.copies.erase(kept, warp.copies.end());
}

void commit(Warp& warp, const Instruction&) {
  for_lanes(warp.active, [&](int l) { ++warp.copy_group[l]; });
}

void wait_group(Warp& warp, const Instruction& instruction) {
  const uint32_t left = uniform(warp, instruction.operands[0]);
  land(warp, [&](const CopyToShared& copy) {
    return (warp.active >> copy.lane & 1) && copy.group + left < warp.copy_group[copy.lane];
  });
}

void wait_all(Warp& warp, const Instruction&) {
  land(warp, [&](const CopyToShared& copy) { return (warp.active >> copy.lane & 1) != 0; });
}

enum ArriveForm { kGeneric = 1, kNotCounted = 2 };

// The barrier gets an arrival once the lane's copies have landed. Unless .noinc, it is told to expect one
// more first.
void arrive_after(Warp& warp, const Instruction& instruction) {
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  for_lanes(warp.active, [&](int l) {
    const MbarrierPlace place = mbarrier_place(warp, address[l], l, (instruction.variant & kGeneric) != 0);
    Mbarrier& barrier = require_mbarrier(warp, place, l);
    if (!(instruction.variant & kNotCounted)) ++barrier.pending;
    warp.copy_arrivals.push_back({place.block, place.offset, warp.copy_sequence, l, warp.pc});
    ++warp.block->cluster->arrivals_in_flight;
  });
}

}  // namespace

void land_copy_arrival(Cluster& cluster) {
  std::vector<Warp*> candidates;
  for (Warp* warp : cluster.warps)
    if (!warp->copy_arrivals.empty()) candidates.push_back(warp);
  Warp& warp = *candidates[cluster.random.below(static_cast<uint32_t>(candidates.size()))];
  const ArriveAfterCopies arrival = warp.copy_arrivals.front();
  warp.copy_arrivals.erase(warp.copy_arrivals.begin());
  --cluster.arrivals_in_flight;
  land(warp, [&](const CopyToShared& copy) {
    return copy.lane == arrival.lane && copy.sequence <= arrival.sequence;
  });
  const int32_t pc =
      std::exchange(warp.pc, arrival.pc);  // a fault is the arrival's, not what the warp does now
  race_mbarrier_arrive(warp, *arrival.block, arrival.barrier, 0, static_cast<uint32_t>(arrival.lane));
  mbarrier_update(warp, {arrival.block, arrival.barrier}, arrival.lane, 1, 0);
  warp.pc = pc;
}

void add_copy_operations(Table& table) {
  for (const char* cache : {".ca", ".cg"}) {
    const std::string name = "cp.async" + std::string(cache) + ".shared.global";
    table.add(name, "aaww?", copy);
    table.add(name + ".ignore", "aawp", copy, kIgnoreForm);
  }
  table.add("cp.async.commit_group", "", commit);
  table.add("cp.async.wait_group", "w", wait_group);
  table.add("cp.async.wait_all", "", wait_all);
  for (const char* space : {".shared", ""}) {
    const int generic = *space ? 0 : kGeneric;
    table.add("cp.async.mbarrier.arrive" + std::string(space) + ".b64", "a", arrive_after, generic);
    table.add("cp.async.mbarrier.arrive.noinc" + std::string(space) + ".b64", "a", arrive_after,
              generic | kNotCounted);
  }
}

}  // namespace workbench::emulator::WORKBENCH_ISA
