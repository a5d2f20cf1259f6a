// st.async and red.async: registers written to the shared memory of a block of the cluster, or added to it;
// the bytes complete on an mbarrier there.
#include "atomic_update.hpp"
#include "bulk.hpp"
#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

uint32_t shared_address(const Warp& warp, uint64_t address, int lane, bool generic, uint32_t bytes) {
  if (generic && address >> 32 != kSharedWindow >> 32)
    warp.fault(FaultKind::out_of_bounds, lane, address, Space::global, bytes);
  if (address % bytes) warp.fault(FaultKind::misaligned, lane, address, Space::shared, bytes);
  return static_cast<uint32_t>(address);
}

// variant of both: this, then of st.async the elements, of red.async a reduction and the element type above
constexpr int kGeneric = 1, kCountShift = 1, kReductionShift = 1, kTypeShift = 5;

template <class Cell>
void write(Warp& warp, const Instruction& instruction, uint32_t count, int reduction, int element_type) {
  uint64_t destination[kLanes], barrier[kLanes];
  read_addresses(warp, instruction.operands[0], destination);
  read_addresses(warp, instruction.operands[1 + count], barrier);
  const bool generic = (instruction.variant & kGeneric) != 0;
  for_lanes(warp.active, [&](int l) {
    Transfer transfer = new_remote_write(warp, l, count * static_cast<uint32_t>(sizeof(Cell)));
    transfer.reduction = reduction;
    transfer.element_type = element_type;
    for (uint32_t k = 0; k < count; ++k)
      std::memcpy(transfer.payload + k * sizeof(Cell),
                  &source_cells<Cell>(warp, instruction.operands[1 + k])[l], sizeof(Cell));
    send_remote_write(warp, transfer, shared_address(warp, destination[l], l, generic, transfer.bytes),
                      shared_address(warp, barrier[l], l, generic, 8));
  });
}

template <class Cell>
void store(Warp& warp, const Instruction& instruction) {  // [dst], elements, [mbarrier]
  write<Cell>(warp, instruction, static_cast<uint32_t>(instruction.variant >> kCountShift), -1, 0);
}

template <class Cell>
void reduce(Warp& warp, const Instruction& instruction) {  // [dst], element, [mbarrier]
  write<Cell>(warp, instruction, 1, instruction.variant >> kReductionShift & 15,
              instruction.variant >> kTypeShift);
}

}  // namespace

void add_remote_operations(Table& table) {
  const std::string end = ".mbarrier::complete_tx::bytes";
  for (const char* space : {".shared::cluster", ""}) {
    const int generic = *space ? 0 : kGeneric;
    for (const char* type : {".b32", ".u32", ".s32", ".f32", ".b64", ".u64", ".s64", ".f64"})
      for (const int n : {1, 2, 4}) {
        const bool wide = type[2] == '6', is_float = type[1] == 'f';
        const std::string vector = n == 1 ? "" : ".v" + std::to_string(n);
        if (wide && n == 4) continue;
        table.add("st.async" + std::string(space) + end + vector + type,
                  "a" +
                      std::string(is_float ? wide ? "e" : "f"
                                  : wide   ? "d"
                                           : "w") +
                      std::to_string(n) + "a",
                  wide ? store<uint64_t> : store<uint32_t>, generic | n << kCountShift);
      }
    for (const auto& [type, element_type] : reducible_types())
      for (int r = 0; r < kReductions; ++r) {
        if (type.find('f') != std::string::npos) continue;
        const bool wide = type.find("64") != std::string::npos;
        table.add("red.async" + std::string(space) + end + reduction_names()[r] + type, wide ? "ada" : "awa",
                  wide ? reduce<uint64_t> : reduce<uint32_t>,
                  generic | r << kReductionShift | element_type << kTypeShift);
      }
  }
}

}  // namespace workbench::emulator::WORKBENCH_ISA
