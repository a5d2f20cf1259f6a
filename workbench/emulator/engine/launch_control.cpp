// clusterlaunchcontrol: a block asks for a cluster that has not started, to do its work instead. The response
// of 16 bytes comes to shared memory like a bulk copy, and completes on an mbarrier.
#include "bulk.hpp"
#include "lanes.hpp"
#include "scheduler.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr int kGeneric = 1, kMulticast = 2;  // variant of a request

struct Response {  // opaque to a kernel: nothing but query_cancel reads it
  uint32_t position[3];
  uint32_t cancelled;
};
static_assert(sizeof(Response) == 16);

uint32_t shared_place(const Warp& warp, uint64_t address, int lane, bool generic, uint32_t alignment) {
  if (generic && address >> 32 != kSharedWindow >> 32)
    warp.fault(FaultKind::out_of_bounds, lane, address, Space::global, alignment);
  if (address % alignment) warp.fault(FaultKind::misaligned, lane, address, Space::shared, alignment);
  return static_cast<uint32_t>(address);
}

void try_cancel(Warp& warp, const Instruction& instruction) {  // [response], [mbarrier]
  uint64_t destination[kLanes], barrier[kLanes];
  read_addresses(warp, instruction.operands[0], destination);
  read_addresses(warp, instruction.operands[1], barrier);
  const bool generic = (instruction.variant & kGeneric) != 0;
  for_lanes(warp.active, [&](int l) {
    Cluster& cluster = *warp.block->cluster;
    if (cluster.refused_pc >= 0)
      warp.finding(FaultKind::launch_control, l, 0, Space::none, kAfterRefusal, 0, cluster.refused_pc);
    Transfer transfer = new_remote_write(warp, l, sizeof(Response));
    Response response{};
    const int64_t cancelled = warp.machine->cancel ? warp.machine->cancel() : -1;
    if (cancelled >= 0) {
      place_cluster(*warp.machine->launch, cancelled, response.position);
      for (int d = 0; d < 3; ++d) response.position[d] *= warp.machine->launch->cluster[d];
      response.cancelled = 1;
    }
    std::memcpy(transfer.payload, &response, sizeof response);
    const int32_t everyone = static_cast<int32_t>((1u << cluster.blocks.size()) - 1);
    send_remote_write(warp, transfer, shared_place(warp, destination[l], l, generic, sizeof(Response)),
                      shared_place(warp, barrier[l], l, generic, 8),
                      instruction.variant & kMulticast ? everyone : kNoMulticast);
  });
}

Response response_of(const Warp& warp, const Operand* halves, int lane) {
  Response response;
  for (int k = 0; k < 2; ++k)
    std::memcpy(reinterpret_cast<uint8_t*>(&response) + 8 * k, &source_cells<uint64_t>(warp, halves[k])[lane],
                8);
  return response;
}

void is_cancelled(Warp& warp, const Instruction& instruction) {  // p, response
  write_lanes<bool>(warp, instruction.operands[0],
                    [&](int l) { return response_of(warp, instruction.operands + 1, l).cancelled != 0; });
  for_lanes(warp.active, [&](int l) {
    if (!response_of(warp, instruction.operands + 1, l).cancelled) warp.block->cluster->refused_pc = warp.pc;
  });
}

// variant: the dimension; 3: all of them, and a fourth register that means nothing
void first_block(Warp& warp, const Instruction& instruction) {
  const int results = instruction.variant == 3 ? 4 : 1;
  for_lanes(warp.active, [&](int l) {
    if (!response_of(warp, instruction.operands + results, l).cancelled)
      warp.finding(FaultKind::launch_control, l, 0, Space::none, kNothingCancelled);
  });
  uint32_t values[4][kLanes] = {};
  for (int l = 0; l < kLanes; ++l) {
    const Response response = response_of(warp, instruction.operands + results, l);
    for (int d = 0; d < 3; ++d) values[d][l] = response.position[d];
  }
  for (int k = 0; k < results; ++k)
    write_cells(warp, instruction.operands[k], values[results == 1 ? instruction.variant : k]);
}

}  // namespace

void add_launch_control_operations(Table& table) {
  const std::string request = "clusterlaunchcontrol.try_cancel.async",
                    query = "clusterlaunchcontrol.query_cancel";
  for (const char* space : {".shared", ""})
    for (const char* multicast : {"", ".multicast::cluster::all"})
      table.add(request + space + ".mbarrier::complete_tx::bytes" + multicast + ".b128", "aa", try_cancel,
                (*space ? 0 : kGeneric) | (*multicast ? kMulticast : 0));
  table.add(query + ".is_canceled.pred.b128", "Pd2", is_cancelled);
  const char* dimensions[] = {"x", "y", "z"};
  for (int d = 0; d < 3; ++d)
    table.add(query + ".get_first_ctaid::" + dimensions[d] + ".b32.b128", "Wd2", first_block, d);
  table.add(query + ".get_first_ctaid.v4.b32.b128", "W4d2", first_block, 3);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
