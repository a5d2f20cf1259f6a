// Whether what spins can ever go on.
//
// What a warp does next follows from its registers, its program counter and memory. Where it comes back to a
// state in which it has been, and memory is as it was, it goes round a loop for ever unless another warp
// changes memory. Where that is so of every warp that the device holds, only a block that is not resident yet
// could do it.
#include "standstill.hpp"

#include <cstring>
#include <map>
#include <set>

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr size_t kStates = 64;  // of a warp that are compared: time slices end at any place of a loop

struct Digest {
  uint64_t value = 0x9e3779b97f4a7c15ull;
  void add(uint64_t number) {
    value = (value ^ number) * 0xbf58476d1ce4e5b9ull;
    value ^= value >> 29;
  }
  void add(const void* data, size_t bytes) {
    const auto* from = static_cast<const uint8_t*>(data);
    uint64_t word = 0;
    for (; bytes >= 8; from += 8, bytes -= 8) {
      std::memcpy(&word, from, 8);
      add(word);
    }
    word = 0;
    if (bytes) std::memcpy(&word, from, bytes);
    add(word);
  }
};

// Of a warp, all that decides what it does next, but for memory that others see.
uint64_t state_of(const Warp& warp) {
  Digest digest;
  uint64_t groups = 0;  // in whatever order they are
  for (const Group& group : warp.groups) {
    Digest one;
    for (const uint64_t part : {uint64_t{group.mask}, static_cast<uint64_t>(group.pc),
                                static_cast<uint64_t>(group.wait), group.key, group.expected})
      one.add(part);
    groups += one.value;
  }
  digest.add(groups);
  digest.add(warp.carry);
  digest.add(warp.registers, static_cast<size_t>(warp.machine->program->register_bytes));
  digest.add(warp.local, size_t{kLanes} * warp.machine->launch->local_bytes);
  return digest.value;
}

uint64_t state_of_shared_memory(const Cluster& cluster) {
  Digest digest;
  for (const Block& block : cluster.blocks) {
    digest.add(block.shared.data(), block.shared.size());
    for (const Mbarrier& barrier : block.mbarriers)
      for (const uint64_t part : {barrier.phase, static_cast<uint64_t>(barrier.pending),
                                  static_cast<uint64_t>(barrier.transactions)})
        digest.add(part);
  }
  return digest.value;
}

// Whether an instruction of this name reads memory that other blocks can write to.
bool reads_global(const std::string& name) {
  if (name.compare(0, 2, "ld") != 0 && name.compare(0, 4, "atom") != 0) return false;
  for (const char* own : {".shared", ".local", ".const", ".param"})
    if (name.find(own) != std::string::npos) return false;
  return true;
}

}  // namespace

uint64_t digest_of_global_memory(const Launch& launch) {
  Digest digest;
  for (const Allocation& allocation : launch.allocations)
    if (allocation.writable) digest.add(allocation.data, allocation.bytes);
  return digest.value | 1;
}

Motion watch_motion(Cluster& cluster, int32_t& loads_at) {
  const uint64_t shared = state_of_shared_memory(cluster);
  const std::vector<uint64_t> before = cluster.counts;
  std::map<const Warp*, std::set<uint64_t>> states;
  std::set<const Warp*> circling;
  const auto all_circle = [&] {  // those that have come to a barrier meanwhile wait
    if (circling.empty()) return false;
    for (const Warp* warp : cluster.warps)
      if (warp->runnable() && !circling.count(warp)) return false;
    return true;
  };
  while (!all_circle()) {
    if (cluster.run(1)) return Motion::ended;
    if (!cluster.loads.empty() || cluster.arrivals_in_flight) return Motion::goes_on;
    std::set<uint64_t>& seen = states[cluster.last];
    if (!seen.insert(state_of(*cluster.last)).second) circling.insert(cluster.last);
    if (seen.size() > kStates) return Motion::goes_on;
  }
  if (state_of_shared_memory(cluster) != shared) return Motion::goes_on;
  loads_at = -1;
  const Machine& machine = *cluster.machine;
  for (size_t pc = 0; pc < before.size() && loads_at < 0; ++pc)
    if (cluster.counts[pc] != before[pc] && reads_global(machine.name_of(machine.code[pc])))
      loads_at = static_cast<int32_t>(pc);
  return Motion::circles;
}

}  // namespace workbench::emulator::WORKBENCH_ISA
