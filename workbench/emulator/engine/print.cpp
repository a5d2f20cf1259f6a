// printf: what threads print is kept, and made into text when the launch has ended.
#include <algorithm>

#include "memory.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr uint64_t kMostArgumentBytes = 32 * 8;  // CUDA takes 32 arguments at most

// Conversions in a format: `%d` and its like, and not `%%`.
uint32_t count_conversions(const Launch& launch, uint64_t format) {
  const Allocation* allocation = find_allocation(launch, format);
  if (!allocation) return 0;
  uint32_t count = 0;
  for (uint64_t at = format - allocation->address; at < allocation->bytes && allocation->data[at]; ++at) {
    if (allocation->data[at] != '%') continue;
    if (at + 1 < allocation->bytes && allocation->data[at + 1] == '%')
      ++at;
    else
      ++count;
  }
  return count;
}

// printf count, format, arguments: the arguments lie one after the other in local memory.
void print(Warp& warp, const Instruction& instruction) {
  const Source<uint64_t> format(warp, instruction.operands[1]), arguments(warp, instruction.operands[2]);
  Machine& machine = *warp.machine;
  const uint64_t local_bytes = machine.launch->local_bytes;
  uint32_t counts[kLanes] = {};
  {
    std::lock_guard<std::mutex> lock(machine.printing);
    for_lanes(warp.active, [&](int l) {
      if (machine.result->printed.size() >= kMostPrints) {
        ++machine.result->prints_dropped;
        return;
      }
      counts[l] = count_conversions(*machine.launch, format[l]);
      Printed printed{warp.block->id, warp.id, l, format[l], {}};
      const uint64_t offset = arguments[l] & kLocalOffset;
      if (offset < local_bytes) {
        const uint8_t* from = warp.local + static_cast<uint64_t>(l) * local_bytes + offset;
        printed.arguments.assign(from, from + std::min(kMostArgumentBytes, local_bytes - offset));
      }
      machine.result->printed.push_back(std::move(printed));
    });
  }
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) { return counts[l]; });
}

}  // namespace

void add_print_operations(Table& table) { table.add("printf", "Wdd", print); }

}  // namespace workbench::emulator::WORKBENCH_ISA
