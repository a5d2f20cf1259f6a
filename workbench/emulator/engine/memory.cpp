// Loads and stores. Every access is resolved to host pointers first; resolving is where bounds, alignment,
// initialisation and copies in flight are checked, so that nothing below it has to care.
#include "memory.hpp"

#include <algorithm>
#include <tuple>

#include "heap.hpp"
#include "race.hpp"
#include "scheduler.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

// What the active lanes' addresses have in common; shadows are then checked as one run.
Pattern pattern_of(const Warp& warp, const uint64_t* address, uint32_t bytes) {
  if (warp.active != ~0u) return Pattern::scattered;
  uint64_t stepped = 0, same = 0;
  for (int l = 0; l < kLanes; ++l) {
    stepped |= address[l] ^ (address[0] + static_cast<uint64_t>(l) * bytes);
    same |= address[l] ^ address[0];
  }
  return stepped == 0 ? Pattern::contiguous : same == 0 ? Pattern::uniform : Pattern::scattered;
}

// Calls f with the size as a constant, with which a check is one comparison.
template <class F>
auto with_bytes(uint32_t bytes, F f) {
  switch (bytes) {
    case 1:
      return f(std::integral_constant<uint32_t, 1>());
    case 2:
      return f(std::integral_constant<uint32_t, 2>());
    case 4:
      return f(std::integral_constant<uint32_t, 4>());
    case 8:
      return f(std::integral_constant<uint32_t, 8>());
    case 16:
      return f(std::integral_constant<uint32_t, 16>());
    default:
      return f(std::integral_constant<uint32_t, 32>());
  }
}

// The first active lane whose bytes are not all written, or -1.
int first_unwritten(uint32_t active, const uint64_t* offset, WrittenBytes shadow, uint32_t bytes) {
  return with_bytes(bytes, [&](auto size) {
    for (uint32_t left = active; left; left &= left - 1) {
      const int l = __builtin_ctz(left);
      if (!shadow.all_of<size()>(offset[l])) return l;
    }
    return -1;
  });
}

// Marks the shadow of every active lane's bytes.
void mark_written(uint32_t active, const uint64_t* offset, WrittenBytes shadow, uint32_t bytes) {
  with_bytes(bytes,
             [&](auto size) { for_lanes(active, [&](int l) { shadow.mark_all_of<size()>(offset[l]); }); });
}

// A load may read what was never written, see undefined.hpp; nothing else may.
void read_unwritten(Warp& warp, Access access, int lane, uint64_t address, uint32_t bytes, Space space) {
  if (access == Access::read)
    warp.read_unwritten = true;
  else
    undefined_matters(warp, lane, origin_in_memory(warp, space, address, bytes, lane), Use::read);
}

// Checks or marks the shadow of every active lane's bytes; -1, or the first lane that reads what was never
// written.
int use_shadow(const Warp& warp, Pattern pattern, const uint64_t* offset, WrittenBytes shadow, uint32_t bytes,
               Access access, bool check) {
  const uint32_t run = pattern == Pattern::contiguous ? bytes * kLanes : bytes;
  if (check && access != Access::write) {
    const bool known = pattern != Pattern::scattered && shadow.all(offset[0], run);
    const int bad = known ? -1 : first_unwritten(warp.active, offset, shadow, bytes);
    if (bad >= 0) return bad;
  }
  if (access != Access::read) {
    if (pattern == Pattern::scattered)
      mark_written(warp.active, offset, shadow, bytes);
    else
      shadow.mark(offset[0], run);
  }
  return -1;
}

// Whether all active lanes lie in [0, limit] and are aligned.
bool all_inside(const Warp& warp, const uint64_t* offset, uint64_t limit, uint32_t bytes) {
  uint64_t outside = 0, low_bits = 0;
  for (int l = 0; l < kLanes; ++l) {
    const uint64_t active = static_cast<uint64_t>(static_cast<int64_t>(warp.lane_mask[l]));
    outside |= (offset[l] > limit ? ~uint64_t{0} : 0) & active;
    low_bits |= offset[l] & active;
  }
  return outside == 0 && (low_bits & (bytes - 1)) == 0;
}

// Where a lane reads and writes that has no pointer, as it may not: zeros that nobody else sees.
void fill_nowhere(const Warp& warp, uint8_t** pointer) {
  constexpr size_t kMostBytes = 64;
  alignas(64) static thread_local uint8_t bytes[kLanes][kMostBytes];
  for_lanes(warp.active, [&](int l) {
    if (pointer[l]) return;
    std::memset(bytes[l], 0, kMostBytes);
    pointer[l] = bytes[l];
  });
}

bool aligned(const Warp& warp, int lane, uint64_t address, uint32_t bytes, Space space) {
  if ((address & (bytes - 1)) == 0) return true;
  warp.finding(FaultKind::misaligned, lane, address, space, bytes);
  return false;
}

bool overlaps(uint64_t low, uint64_t high, uint64_t other_low, uint64_t other_high) {
  return low < other_high && other_low < high;
}

}  // namespace

const Allocation* find_allocation(const Launch& launch, uint64_t address) {
  const auto& all = launch.allocations;
  auto after =
      std::upper_bound(all.begin(), all.end(), address,
                       [](uint64_t a, const Allocation& allocation) { return a < allocation.address; });
  if (after == all.begin()) return nullptr;
  const Allocation& found = *(after - 1);
  return address - found.address < found.bytes ? &found : nullptr;
}

// ---- global

Pattern resolve_global(Warp& warp, const uint64_t* address, uint32_t bytes, Access access,
                       uint8_t** pointer) {
  const Machine& machine = *warp.machine;
  const int first = __builtin_ctz(warp.active);
  const Allocation* allocation = warp.last_allocation;
  if (!allocation || address[first] - allocation->address >= allocation->bytes)
    warp.last_allocation = allocation = find_allocation(*machine.launch, address[first]);

  if (allocation && !allocation->is_heap && allocation->bytes >= bytes &&
      (allocation->writable || access == Access::read)) {
    uint64_t offset[kLanes];
    for (int l = 0; l < kLanes; ++l) offset[l] = address[l] - allocation->address;
    // allocations are aligned, so an aligned offset is an aligned address
    if (all_inside(warp, offset, allocation->bytes - bytes, bytes) &&
        (allocation->address & (bytes - 1)) == 0) {
      for (int l = 0; l < kLanes; ++l)
        pointer[l] = reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(allocation->data) + offset[l]);
      const Pattern pattern = pattern_of(warp, offset, bytes);
      if (const WrittenBytes shadow = written_in(*allocation)) {
        const int bad = use_shadow(warp, pattern, offset, shadow, bytes, access, machine.check_initialised);
        if (bad >= 0) {
          read_unwritten(warp, access, bad, address[bad], bytes, Space::global);
          if (access != Access::read) use_shadow(warp, pattern, offset, shadow, bytes, access, false);
        }
      }
      if (warp.races) race_global(warp, *allocation, offset, bytes, access, pattern);
      return pattern;
    }
  }

  for_lanes(warp.active, [&](int l) {  // several allocations, or a fault
    pointer[l] = nullptr;
    const Allocation* own = find_allocation(*machine.launch, address[l]);
    if (!own || own->bytes - (address[l] - own->address) < bytes)
      return warp.finding(FaultKind::out_of_bounds, l, address[l], Space::global, bytes);
    if (own->is_heap && !heap_access(warp, *own, address[l], bytes, l, false)) return;
    if (!aligned(warp, l, address[l], bytes, Space::global)) return;
    if (!own->writable && access != Access::read)
      return warp.finding(FaultKind::read_only, l, address[l], Space::global, bytes);
    const uint64_t offset = address[l] - own->address;
    const WrittenBytes shadow = written_in(*own);
    if (access != Access::write && machine.check_initialised && !shadow.all(offset, bytes))
      read_unwritten(warp, access, l, address[l], bytes, Space::global);
    if (access != Access::read) shadow.mark(offset, bytes);
    race_global_run(warp, *own, offset, bytes, access, static_cast<uint32_t>(l));
    pointer[l] = own->data + offset;
  });
  fill_nowhere(warp, pointer);
  return Pattern::scattered;
}

uint8_t* resolve_global_run(const Warp& warp, uint64_t address, uint64_t bytes, Access access, int lane,
                            bool races) {
  const Allocation* own = find_allocation(*warp.machine->launch, address);
  if (!own || own->bytes - (address - own->address) < bytes)
    warp.fault(FaultKind::out_of_bounds, lane, address, Space::global, static_cast<int64_t>(bytes));
  if (own->is_heap) heap_access(warp, *own, address, bytes, lane, true);
  const uint64_t offset = address - own->address;
  if (access != Access::read && !own->writable)
    warp.fault(FaultKind::read_only, lane, address, Space::global, static_cast<int64_t>(bytes));
  const WrittenBytes shadow = written_in(*own);
  if (shadow && access == Access::atomic && warp.machine->check_initialised)
    if (const uint32_t origin = origin_in_memory(warp, Space::global, address, bytes, lane))
      undefined_matters(warp, lane, origin, Use::read);
  if (access != Access::read) shadow.mark(offset, bytes);
  if (races) race_global_run(warp, *own, offset, bytes, access, static_cast<uint32_t>(lane));
  return own->data + offset;
}

// ---- shared

Block& shared_block(const Warp& warp, uint32_t address, int lane, uint32_t& offset) {
  offset = address & ((1u << kRankShift) - 1);
  const uint32_t rank = address >> kRankShift;
  if (rank == 0) return *warp.block;
  if (rank > warp.block->cluster->blocks.size())
    warp.fault(FaultKind::out_of_bounds, lane, address, Space::shared, 0);
  Block& block = warp.block->cluster->blocks[rank - 1];
  if (&block == warp.block) return block;
  if (block.alive == 0)  // its shared memory may be another block's by now
    warp.fault(FaultKind::exited_with_work, lane, address, Space::shared, 0, 1, block.exit_pc);
  race_guest(warp, block, address, lane);
  return block;
}

// Copies on their way into these bytes, and asynchronous readers of bytes about to be written.
void check_shared_async(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, Access access,
                        int lane) {
  if (!warp.machine->check_in_flight) return;
  if (bytes == 0) return;
  if (block.words_in_flight) {
    const uint32_t first = offset / 4, last = (offset + bytes - 1) / 4;
    const Cells<int32_t> words = block.in_flight.view().part(first, last - first + 1);
    for (const int32_t& mark : words)
      if (mark)
        warp.finding(FaultKind::in_flight, lane, (first + static_cast<uint64_t>(&mark - words.begin())) * 4,
                     Space::shared, bytes, access != Access::read, mark - 1);
  }
  if (access == Access::read) return;
  for (const Transfer& store : block.stores)
    if (overlaps(offset, offset + bytes, store.shared, store.shared + store.bytes))
      warp.finding(FaultKind::in_flight, lane, offset, Space::shared, bytes, 1, store.pc);
  if (block.products_in_flight) check_products(warp, block, offset, offset + bytes, lane);
}

bool check_shared_run(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, Access access,
                      int lane) {
  const int blamed = lane < 0 ? 0 : lane;
  if (offset > block.shared.size() || bytes > block.shared.size() - offset)
    warp.fault(FaultKind::out_of_bounds, blamed, offset, Space::shared, bytes);
  check_shared_async(warp, block, offset, bytes, access, blamed);
  const bool unwritten =
      access != Access::write && warp.machine->check_initialised && !written_in(block).all(offset, bytes);
  if (unwritten && access != Access::read)
    undefined_matters(warp, blamed, origin_in_shared(warp, block, offset, bytes), Use::read);
  if (access != Access::read) written_in(block).mark(offset, bytes);
  if (lane >= 0) race_shared_run(warp, block, offset, bytes, access, static_cast<uint32_t>(lane));
  return unwritten;
}

bool check_shared_reads(const Warp& warp, const std::vector<SharedRun>& runs) {
  Block& block = *warp.block;
  const WrittenBytes written = written_in(block);
  const uint64_t size = block.shared.size();
  bool unwritten = false;
  for (const SharedRun& run : runs)
    if (run.offset + run.bytes > size) {
      unwritten |= check_shared_run(warp, block, run.offset, run.bytes, Access::read, -1);
    } else {
      if (block.words_in_flight) check_shared_async(warp, block, run.offset, run.bytes, Access::read, 0);
      unwritten |= !written.all(run.offset, run.bytes);
    }
  return unwritten && warp.machine->check_initialised;
}

Pattern resolve_shared(Warp& warp, const uint64_t* address, uint32_t bytes, Access access,
                       uint8_t** pointer) {
  Block& block = *warp.block;
  const bool inside =
      block.shared.size() >= bytes && all_inside(warp, address, block.shared.size() - bytes, bytes);
  if (inside) {
    for (int l = 0; l < kLanes; ++l)
      pointer[l] = reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(block.shared.data()) + address[l]);
    const bool written = access != Access::read;
    if (block.words_in_flight || (written && (block.products_in_flight || !block.stores.empty())))
      for_lanes(warp.active, [&](int l) {
        check_shared_async(warp, block, static_cast<uint32_t>(address[l]), bytes, access, l);
      });
    const Pattern pattern = pattern_of(warp, address, bytes);
    const WrittenBytes shadow = written_in(block);
    const int bad =
        use_shadow(warp, pattern, address, shadow, bytes, access, warp.machine->check_initialised);
    if (bad >= 0) {
      read_unwritten(warp, access, bad, address[bad], bytes, Space::shared);
      if (access != Access::read) use_shadow(warp, pattern, address, shadow, bytes, access, false);
    }
    if (warp.races) race_shared(warp, address, bytes, access, pattern);
    return pattern;
  }
  for_lanes(warp.active, [&](int l) {  // another block of the cluster, or a fault
    pointer[l] = nullptr;
    const uint32_t narrow = static_cast<uint32_t>(address[l]);
    uint32_t offset;
    Block& target = shared_block(warp, narrow, l, offset);
    if (offset > target.shared.size() || bytes > target.shared.size() - offset)
      return warp.finding(FaultKind::out_of_bounds, l, address[l], Space::shared, bytes);
    if (!aligned(warp, l, address[l], bytes, Space::shared)) return;
    warp.read_unwritten |= check_shared_run(warp, target, offset, bytes, access, l);
    pointer[l] = target.shared.data() + offset;
  });
  fill_nowhere(warp, pointer);
  return Pattern::scattered;
}

void mark_in_flight(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, int lane) {
  if (offset > block.shared.size() || bytes > block.shared.size() - offset)
    warp.fault(FaultKind::out_of_bounds, lane, offset, Space::shared, bytes);
  check_shared_async(warp, block, offset, bytes, Access::write, lane);
  if (!warp.machine->check_in_flight) return;
  const uint32_t first = offset / 4, last = (offset + bytes + 3) / 4;
  block.in_flight.view().fill(first, last - first, warp.pc + 1);
  block.words_in_flight += last - first;
}

void landed(Block& block, uint32_t offset, uint32_t bytes) {
  written_in(block).mark(offset, bytes);
  if (!block.machine->check_in_flight) return;
  const uint32_t first = offset / 4, last = (offset + bytes + 3) / 4;
  block.in_flight.view().fill(first, last - first, 0);
  block.words_in_flight -= last - first;
}

// ---- local and parameters

namespace {

Pattern resolve_local(Warp& warp, const uint64_t* address, uint32_t bytes, Access access, uint8_t** pointer) {
  const uint64_t size = warp.machine->launch->local_bytes;
  for_lanes(warp.active, [&](int l) {
    pointer[l] = nullptr;
    if (address[l] > size || bytes > size - address[l])
      warp.fault(FaultKind::out_of_bounds, l, address[l], Space::local,
                 bytes);  // such as a stack that is full
    if (!aligned(warp, l, address[l], bytes, Space::local)) return;
    const uint64_t offset = static_cast<uint64_t>(l) * size + address[l];
    if (access != Access::write && warp.machine->check_initialised && !warp.local_written.all(offset, bytes))
      read_unwritten(warp, access, l, address[l], bytes, Space::local);
    if (access != Access::read) warp.local_written.mark(offset, bytes);
    pointer[l] = warp.local + offset;
  });
  fill_nowhere(warp, pointer);
  return Pattern::scattered;
}

// The same where an address says whose local memory it means.
Pattern resolve_own_local(Warp& warp, const uint64_t* address, uint32_t bytes, Access access,
                          uint8_t** pointer) {
  const uint32_t everyone = warp.active;
  uint64_t offset[kLanes];
  uint32_t own = 0;
  for_lanes(everyone, [&](int l) {
    offset[l] = address[l] & kLocalOffset;
    const uint64_t owner = address[l] >> kOwnerShift;
    if (owner == local_owner(warp, l) || offset[l] >= warp.machine->launch->local_bytes)
      own |= 1u << l;
    else
      warp.finding(FaultKind::out_of_bounds, l, offset[l], Space::local, bytes, static_cast<int64_t>(owner));
  });
  warp.set_active(own);
  if (own) resolve_local(warp, offset, bytes, access, pointer);
  warp.set_active(everyone);
  for_lanes(everyone & ~own, [&](int l) { pointer[l] = nullptr; });
  fill_nowhere(warp, pointer);
  return Pattern::scattered;
}

Pattern resolve_param(Warp& warp, const uint64_t* address, uint32_t bytes, Access access, uint8_t** pointer) {
  const Launch& launch = *warp.machine->launch;
  // only ever read: what writes is reported below
  auto* const parameters = const_cast<uint8_t*>(launch.parameters);
  if (access == Access::read && bytes <= launch.parameter_bytes &&
      address[0] <= launch.parameter_bytes - bytes && (address[0] & (bytes - 1)) == 0 &&
      pattern_of(warp, address, bytes) == Pattern::uniform) {
    std::fill(pointer, pointer + kLanes, parameters + address[0]);
    return Pattern::uniform;
  }
  for_lanes(warp.active, [&](int l) {
    pointer[l] = nullptr;
    if (address[l] > launch.parameter_bytes || bytes > launch.parameter_bytes - address[l])
      return warp.finding(FaultKind::out_of_bounds, l, address[l], Space::param, bytes);
    if (!aligned(warp, l, address[l], bytes, Space::param)) return;
    if (access != Access::read) return warp.finding(FaultKind::read_only, l, address[l], Space::param, bytes);
    pointer[l] = parameters + address[l];
  });
  fill_nowhere(warp, pointer);
  return Pattern::scattered;
}

}  // namespace

Pattern resolve_generic(Warp& warp, const uint64_t* address, uint32_t bytes, Access access,
                        uint8_t** pointer) {
  const uint32_t everyone = warp.active;
  Pattern pattern = Pattern::scattered;
  for (uint32_t left = everyone; left;) {
    const uint64_t upper = address[__builtin_ctz(left)] >> 32;
    const uint64_t window = upper < kFirstGlobal >> 32 ? upper : kFirstGlobal >> 32;
    uint64_t inside[kLanes];
    uint32_t here = 0;
    for (int l = 0; l < kLanes; ++l) {
      const uint64_t own = address[l] >> 32 < kFirstGlobal >> 32 ? address[l] >> 32 : kFirstGlobal >> 32;
      here |= (own == window ? 1u : 0u) << l;
      inside[l] = window == kFirstGlobal >> 32 ? address[l] : address[l] & 0xffffffffu;
    }
    here &= left;
    left &= ~here;
    uint8_t* found[kLanes];  // a space may fill those of lanes that have addresses in another one
    uint8_t** const own_pointer = here == everyone ? pointer : found;
    if (here != everyone) warp.set_active(here);
    switch (window << 32) {
      case kSharedWindow:
        pattern = resolve_shared(warp, inside, bytes, access, own_pointer);
        break;
      case kLocalWindow:
        pattern = resolve_own_local(warp, inside, bytes, access, own_pointer);
        break;
      case kParamWindow:
        pattern = resolve_param(warp, inside, bytes, access, own_pointer);
        break;
      default:
        pattern = resolve_global(warp, inside, bytes, access, own_pointer);
        break;
    }
    if (here == everyone) continue;
    for_lanes(here, [&](int l) { pointer[l] = found[l]; });
    pattern = Pattern::scattered;
  }
  if (warp.active != everyone) warp.set_active(everyone);
  return pattern;
}

Pattern resolve(Warp& warp, Space space, const uint64_t* address, uint32_t bytes, Access access,
                uint8_t** pointer) {
  switch (space) {
    case Space::global:
      return resolve_global(warp, address, bytes, access, pointer);
    case Space::shared:
      return resolve_shared(warp, address, bytes, access, pointer);
    case Space::local:
      return resolve_local(warp, address, bytes, access, pointer);
    case Space::param:
      return resolve_param(warp, address, bytes, access, pointer);
    default:
      return resolve_generic(warp, address, bytes, access, pointer);
  }
}

// ---- ld and st

namespace {

constexpr int kMaxVector = 8;

template <class M>
M read_as(const uint8_t* p) {
  M value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// M is the type in memory; the register is its 4- or 8-byte cell. The variant is the length of the vector.
template <class M, Space S>
void load(Warp& warp, const Instruction& instruction) {
  using C = std::conditional_t<sizeof(M) == 8, uint64_t,
                               std::conditional_t<std::is_signed_v<M>, int32_t, uint32_t>>;
  const int n = instruction.variant;
  uint64_t address[kLanes];
  uint8_t* pointer[kLanes];
  read_addresses(warp, instruction.operands[n], address);
  const uint32_t bytes = static_cast<uint32_t>(n) * sizeof(M);
  const Pattern pattern = resolve(warp, S, address, bytes, Access::read, pointer);
  for (int k = 0; k < n; ++k) {
    const Operand& destination = instruction.operands[k];
    if (destination.slot == kAbsent) continue;
    C* cells = register_cells<C>(warp, destination);
    const size_t at = static_cast<size_t>(k) * sizeof(M);
    if (pattern == Pattern::uniform) {
      const C value = read_as<M>(pointer[0] + at);
      for (int l = 0; l < kLanes; ++l) cells[l] = value;
    } else if (pattern == Pattern::contiguous) {
      M values[kLanes * kMaxVector];
      std::memcpy(values, pointer[0], kLanes * bytes);
      for (int l = 0; l < kLanes; ++l) cells[l] = values[l * n + k];
    } else {
      for_lanes(warp.active, [&](int l) { cells[l] = read_as<M>(pointer[l] + at); });
    }
  }
  if (__builtin_expect(warp.read_unwritten, 0))
    loaded_undefined(warp, instruction, S, address, sizeof(M), std::is_signed_v<M>);
  if (instruction.flags & kOrderMask) {
    race_observed(warp, S, address, bytes, Access::read);
    race_acquired(warp, S, address, instruction.flags, true);
    const int first = __builtin_ctz(warp.active);
    may_give_way(warp, in_global(S, address[first]), pointer[first], sizeof(M));
  }
}

// Two lanes that store different values to one place, in one instruction.
template <class C>
void check_same_place(const Warp& warp, Space space, const uint64_t* address, uint8_t* const* pointer,
                      const C* cells, size_t at, uint32_t bytes) {
  constexpr int kBits = 64;
  uint64_t value[kLanes], place[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    value[l] = bytes == 8 ? cells[l] : cells[l] & ((uint64_t{1} << bytes * 8 % kBits) - 1);
    place[l] = (space == Space::none ? address[l] & 0xffffffffu : address[l]) + at;
  }
  if (space == Space::none) {
    const uint64_t window = address[__builtin_ctz(warp.active)];
    space = window >> 32 == kSharedWindow >> 32 ? Space::shared : Space::global;
    if (space == Space::global)
      for (int l = 0; l < kLanes; ++l) place[l] = address[l] + at;
  }
  race_same_instruction(warp, pointer, value, place, space, bytes);
}

template <class M, Space S>
void store(Warp& warp, const Instruction& instruction) {
  using C = std::conditional_t<sizeof(M) == 8, uint64_t, uint32_t>;
  const int n = instruction.variant;
  uint64_t address[kLanes];
  uint8_t* pointer[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  const bool compared = S != Space::local && warp.races && !(instruction.flags & kOrderMask);
  if (compared) warp.races->storing = true;
  const Pattern pattern =
      resolve(warp, S, address, static_cast<uint32_t>(n) * sizeof(M), Access::write, pointer);
  if (instruction.flags & kOrderMask) race_released(warp, S, address, instruction.flags, false);
  for (int k = 0; k < n; ++k) {
    const C* cells = source_cells<C>(warp, instruction.operands[1 + k]);
    if (S != Space::local && warp.races && pattern != Pattern::contiguous &&
        !(instruction.flags & kOrderMask) && (warp.active & (warp.active - 1)))
      check_same_place(warp, S, address, pointer, cells, static_cast<size_t>(k) * sizeof(M), sizeof(M));
    if (pattern == Pattern::contiguous && n == 1) {
      M values[kLanes];
      for (int l = 0; l < kLanes; ++l) values[l] = static_cast<M>(cells[l]);
      std::memcpy(pointer[0], values, sizeof values);
    } else {
      for_lanes(warp.active, [&](int l) {
        const M value = static_cast<M>(cells[l]);
        std::memcpy(pointer[l] + static_cast<size_t>(k) * sizeof(M), &value, sizeof value);
      });
    }
  }
  if (compared) race_stored(warp);
  if (instruction.flags & kOrderMask) {
    race_observed(warp, S, address, static_cast<uint32_t>(n) * sizeof(M), Access::write);
    may_give_way(warp, in_global(S, address[__builtin_ctz(warp.active)]));
  }
}

void nothing(Warp&, const Instruction&) {}

// st.bulk: zeros for a run of the block's shared memory.
template <bool Generic>
void store_zeros(Warp& warp, const Instruction& instruction) {  // [address], bytes, 0
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  const Source<uint64_t> bytes(warp, instruction.operands[1]), value(warp, instruction.operands[2]);
  for_lanes(warp.active, [&](int l) {
    if (value[l]) warp.fault(FaultKind::bad_operand, l, 0, Space::none, static_cast<int64_t>(value[l]));
    if (Generic && address[l] >> 32 != kSharedWindow >> 32)
      warp.fault(FaultKind::out_of_bounds, l, address[l], Space::global, static_cast<int64_t>(bytes[l]));
    uint32_t offset;
    Block& block = shared_block(warp, static_cast<uint32_t>(address[l]), l, offset);
    if (bytes[l] % 8) warp.fault(FaultKind::bad_operand, l, 0, Space::none, static_cast<int64_t>(bytes[l]));
    if (offset % 8) warp.fault(FaultKind::misaligned, l, offset, Space::shared, 8);
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(bytes[l], ~0u));
    check_shared_run(warp, block, offset, count, Access::write, l);
    std::memset(block.shared.data() + offset, 0, count);
  });
}

// What is discarded is lost, as if a store had left any bits: [address], 128.
void discard(Warp& warp, const Instruction& instruction) {
  constexpr int kLine = 128, kAnyBits = 0xd5;
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  for_lanes(warp.active, [&](int l) {
    if (address[l] % kLine) warp.fault(FaultKind::misaligned, l, address[l], Space::global, kLine);
    std::memset(resolve_global_run(warp, address[l], kLine, Access::write, l), kAnyBits, kLine);
    const Allocation& own = *find_allocation(*warp.machine->launch, address[l]);
    if (own.initialised) std::memset(own.initialised + (address[l] - own.address), 0, kLine);
  });
}

// ---- addresses in a cluster

// The same place in the block of the pair with the even rank. Devices put a block's own rank into the address
// of its shared memory, so that kernels clear a bit for it. The mask may clear lower bits, too.
void map_to_leader(Warp& warp, const Instruction& instruction) {
  const Source<uint32_t> address(warp, instruction.operands[1]), mask(warp, instruction.operands[2]);
  const Block& own = *warp.block;
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    const uint32_t rank = address[l] >> kRankShift ? (address[l] >> kRankShift) - 1 : own.rank;
    return (address[l] & mask[l] & ((1u << kRankShift) - 1)) | ((rank & ~1u) + 1) << kRankShift;
  });
}

struct MapToRank {  // mapa: the same place in the shared memory of another block
  template <class T>
  T operator()(T address, uint32_t rank) const {
    return (address & ~(T(0xff) << kRankShift)) | static_cast<T>(rank + 1) << kRankShift;
  }
};

template <class T>
void rank_of(Warp& warp, const Instruction& instruction) {
  const Source<T> address(warp, instruction.operands[1]);
  const uint32_t own = warp.block->rank;
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    const uint32_t rank = static_cast<uint32_t>(address[l]) >> kRankShift;
    return rank ? rank - 1 : own;
  });
}

template <class M, Space S>
void add_type(Table& table, const std::string& space, const std::string& type, bool stores) {
  const std::string cell = sizeof(M) == 8 ? "d" : type == ".f32" ? "f" : "w";
  const std::string source = type == ".f64" ? "e" : cell, destination = sizeof(M) == 8 ? "D" : "W";
  // 256 bits can only be loaded from and stored to global memory, also by a generic address
  const size_t most = sizeof(M) >= 4 && (space == ".global" || space.empty()) ? 32 : 16;
  for (int n : {1, 2, 4, 8}) {
    if (n * sizeof(M) > most || (n == 8 && sizeof(M) != 4)) continue;
    if (n * sizeof(M) == 32) {
      constexpr Space kOnly = S == Space::none ? Space::global : S;
      const std::string vector = ".v" + std::to_string(n), count = std::to_string(n);
      table.add("ld" + space + vector + type, destination + count + "a", load<M, kOnly>, n);
      table.add("st" + space + vector + type, "a" + source + count, store<std::make_unsigned_t<M>, kOnly>, n);
      continue;
    }
    const std::string vector = n == 1 ? "" : ".v" + std::to_string(n),
                      count = n == 1 ? "" : std::to_string(n);
    table.add("ld" + space + vector + type, destination + count + "a", load<M, S>, n);
    if (S == Space::global || S == Space::none)
      table.add("ldu" + space + vector + type, destination + count + "a", load<M, S>, n);
    if (stores)
      table.add("st" + space + vector + type, "a" + source + count, store<std::make_unsigned_t<M>, S>, n);
  }
}

template <Space S>
void add_space(Table& table, const std::string& space, bool stores) {
  for (const char* type : {".b8", ".u8"}) add_type<uint8_t, S>(table, space, type, stores);
  add_type<int8_t, S>(table, space, ".s8", stores);
  for (const char* type : {".b16", ".u16", ".f16", ".bf16"})
    add_type<uint16_t, S>(table, space, type, stores);
  add_type<int16_t, S>(table, space, ".s16", stores);
  for (const char* type : {".b32", ".u32", ".s32", ".f32"}) add_type<uint32_t, S>(table, space, type, stores);
  for (const char* type : {".b64", ".u64", ".s64", ".f64"}) add_type<uint64_t, S>(table, space, type, stores);
}

}  // namespace

void add_memory_operations(Table& table) {
  add_space<Space::none>(table, "", true);
  add_space<Space::global>(table, ".global", true);
  add_space<Space::global>(table, ".const", false);
  add_space<Space::shared>(table, ".shared", true);
  add_space<Space::shared>(table, ".shared::cluster", true);
  add_space<Space::local>(table, ".local", true);
  add_space<Space::param>(table, ".param", false);
  for (const char* space : {"", ".shared::cluster"}) {
    add_lanewise<MapToRank, uint32_t, uint32_t, uint32_t>(table, "mapa" + std::string(space) + ".u32");
    add_lanewise<MapToRank, uint64_t, uint64_t, uint32_t>(table, "mapa" + std::string(space) + ".u64");
    table.add("getctarank" + std::string(space) + ".u32", "Ww", rank_of<uint32_t>);
    table.add("getctarank" + std::string(space) + ".u64", "Wd", rank_of<uint64_t>);
  }
  table.add("mapa.leader.u32", "Www", map_to_leader);
  table.add("st.bulk.shared", "add", store_zeros<false>);
  table.add("st.bulk", "add", store_zeros<true>);
  for (const char* name : {"prefetch.L1", "prefetch.L2", "prefetch.global.L1", "prefetch.global.L2",
                           "prefetch.local.L1", "prefetch.local.L2", "prefetchu.L1", "prefetch.tensormap",
                           "prefetch.param.tensormap", "prefetch.const.tensormap",
                           "prefetch.global.L2::evict_last", "prefetch.global.L2::evict_normal", "prefetch"})
    table.add(name, "a", nothing);
  for (const char* name : {"applypriority.global.L2::evict_normal", "applypriority.L2::evict_normal"})
    table.add(name, "aw", nothing);
  for (const char* name : {"discard.global.L2", "discard.L2"}) table.add(name, "aw", discard);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
