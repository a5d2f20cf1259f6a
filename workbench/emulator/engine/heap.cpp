#include "heap.hpp"

#include <algorithm>
#include <map>
#include <mutex>

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

struct HeapBlock {  // in front of the bytes of each block
  uint64_t bytes;
  const void* program;   // whose rows these are
  int32_t taken, freed;  // by which of them; -1: by none
  uint64_t padding;
};
struct Top {  // at the begin of the heap
  uint64_t used, blocks, padding[2];
};
constexpr uint64_t kAlignment = 16;
static_assert(sizeof(HeapBlock) % kAlignment == 0 && sizeof(Top) % kAlignment == 0);

std::mutex& heap_mutex() {
  static std::mutex mutex;
  return mutex;
}

// The heap grows from its begin; from its end on, downwards, lie the offsets of the blocks in their order.
class Heap {
 public:
  explicit Heap(const Allocation& allocation)
      : allocation_(allocation), top_(reinterpret_cast<Top*>(allocation.data)), lock_(heap_mutex()) {
    if (top_->used == 0) top_->used = sizeof(Top);
  }

  uint64_t blocks() const { return top_->blocks; }
  HeapBlock& block(uint64_t number) const {
    return *reinterpret_cast<HeapBlock*>(allocation_.data + offset(number));
  }
  uint64_t address(uint64_t number) const { return allocation_.address + offset(number) + sizeof(HeapBlock); }

  // 0 where there is no room left.
  uint64_t take(uint64_t bytes, const void* program, int32_t pc) {
    const uint64_t room = allocation_.bytes - top_->used - (top_->blocks + 2) * sizeof(uint64_t);
    if (bytes > room || (bytes + kAlignment) + sizeof(HeapBlock) > room) return 0;
    offset(top_->blocks) = top_->used;
    block(top_->blocks) = {bytes, program, pc, -1, 0};
    top_->used +=
        sizeof(HeapBlock) + (std::max<uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    return address(top_->blocks++);
  }

  // The last block that begins at an address or before it; -1 where there is none.
  int64_t before(uint64_t where) const {
    int64_t low = -1, high = static_cast<int64_t>(top_->blocks);
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (address(static_cast<uint64_t>(middle)) <= where ? low : high) = middle;
    }
    return low;
  }

 private:
  uint64_t& offset(uint64_t number) const {
    return reinterpret_cast<uint64_t*>(allocation_.data +
                                       allocation_.bytes)[-1 - static_cast<int64_t>(number)];
  }

  const Allocation& allocation_;
  Top* top_;
  std::lock_guard<std::mutex> lock_;
};

int32_t row_of(const Warp& warp, const HeapBlock& block, int32_t row) {
  return block.program == warp.machine->program ? row : -1;
}

const Allocation* heap_of(const Launch& launch) {
  const auto& all = launch.allocations;
  const auto found = std::find_if(all.begin(), all.end(), [](const Allocation& one) { return one.is_heap; });
  return found == all.end() ? nullptr : &*found;
}

// malloc: result, bytes, the heap.
void take(Warp& warp, const Instruction& instruction) {
  const Source<uint64_t> bytes(warp, instruction.operands[1]), heap(warp, instruction.operands[2]);
  uint64_t result[kLanes] = {};
  for_lanes(warp.active, [&](int l) {
    const Allocation* allocation = find_allocation(*warp.machine->launch, heap[l]);
    if (allocation) result[l] = Heap(*allocation).take(bytes[l], warp.machine->program, warp.pc);
  });
  write_lanes<uint64_t>(warp, instruction.operands[0], [&](int l) { return result[l]; });
}

// free: a pointer, the heap.
void give_back(Warp& warp, const Instruction& instruction) {
  const Source<uint64_t> pointer(warp, instruction.operands[0]);
  for_lanes(warp.active, [&](int l) {
    if (pointer[l] == 0) return;
    const Allocation* allocation = find_allocation(*warp.machine->launch, pointer[l]);
    int32_t other = -1;
    FreeOfHeap problem = FreeOfHeap::foreign;
    if (allocation && allocation->is_heap) {
      Heap heap(*allocation);
      const int64_t number = heap.before(pointer[l]);
      if (number >= 0) {
        HeapBlock& block = heap.block(static_cast<uint64_t>(number));
        problem = heap.address(static_cast<uint64_t>(number)) != pointer[l] ? FreeOfHeap::inside
                  : block.freed >= 0                                        ? FreeOfHeap::twice
                                                                            : FreeOfHeap::none;
        other = row_of(warp, block, problem == FreeOfHeap::twice ? block.freed : block.taken);
        if (problem == FreeOfHeap::none) {
          block.freed = warp.pc;
          if (other < 0) block.program = warp.machine->program, block.taken = warp.pc;
        }
      }
    }
    if (problem != FreeOfHeap::none)
      warp.finding(FaultKind::heap_free, l, pointer[l], Space::global, static_cast<int64_t>(problem), 0,
                   other);
  });
}

}  // namespace

bool heap_access(const Warp& warp, const Allocation& allocation, uint64_t address, uint64_t bytes, int lane,
                 bool ends) {
  int64_t size = 0, offset = 0;
  int32_t other = -1;
  {
    const Heap heap(allocation);
    const int64_t number = heap.before(address);
    if (number >= 0) {
      const HeapBlock& block = heap.block(static_cast<uint64_t>(number));
      offset = static_cast<int64_t>(address - heap.address(static_cast<uint64_t>(number)));
      size = static_cast<int64_t>(block.bytes);
      const bool freed = block.freed >= 0;
      if (!freed && offset + static_cast<int64_t>(bytes) <= size) return true;
      other = row_of(warp, block, freed ? block.freed : block.taken);
      if (freed) size = -1;
    }
  }
  constexpr int kSizeBits = 32;
  const int64_t detail = size < 0 ? -1 : offset << kSizeBits | size;
  if (ends)
    warp.fault(FaultKind::heap_access, lane, address, Space::global, static_cast<int64_t>(bytes), detail,
               other);
  warp.finding(FaultKind::heap_access, lane, address, Space::global, static_cast<int64_t>(bytes), detail,
               other);
  return false;
}

void start_heap(Machine& machine) {
  if (const Allocation* allocation = heap_of(*machine.launch))
    machine.heap_blocks = Heap(*allocation).blocks();
}

void end_heap(Machine& machine) {
  const Allocation* allocation = heap_of(*machine.launch);
  if (!allocation) return;
  std::map<int32_t, std::pair<int64_t, int64_t>> left;  // blocks and bytes of each row
  const Heap heap(*allocation);
  for (uint64_t number = machine.heap_blocks; number < heap.blocks(); ++number) {
    const HeapBlock& block = heap.block(number);
    if (block.freed >= 0 || block.program != machine.program) continue;
    auto& [blocks, bytes] = left[block.taken];
    ++blocks, bytes += static_cast<int64_t>(block.bytes);
  }
  for (const auto& [pc, found] : left) {
    const auto hides = [&, row = pc](const auto& pair) {
      return pair.first == static_cast<int32_t>(FaultKind::heap_leak) &&
             (pair.second < 0 || pair.second == row);
    };
    const auto& suppressed = machine.launch->suppressed;
    if (std::any_of(suppressed.begin(), suppressed.end(), hides)) continue;
    Fault fault;
    fault.kind = FaultKind::heap_leak;
    fault.pc = pc, fault.info = found.first, fault.detail = found.second;
    machine.result->findings.push_back({fault, {}});
  }
}

void add_heap_operations(Table& table) {
  table.add("malloc", "Ddd", take);
  table.add("free", "dd", give_back);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
