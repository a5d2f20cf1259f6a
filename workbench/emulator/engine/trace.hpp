// A timeline of some blocks: what their warps do, what they wait for, copies and products on their way.
//
// Time is logical. A warp's clock goes up by one with each instruction that it executes, as though all warps
// ran at once; a wait lasts until the clock of whoever ended it. A bulk copy lands later than anything that
// had happened when the scheduler landed it.
#pragma once

#include <deque>

#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

struct MachineTrace;

// A barrier of any kind, as it was when last looked at, and when its phases end.
struct Gate {
  TraceGate kind;
  uint32_t key;  // number of a named barrier, offset of an mbarrier
  uint64_t phase = 0;
  int64_t arrived = 0, transactions = 0;
  uint64_t began = 0, pending = 0,
           completed = 0;  // times: of this phase, its last arrival; end of the last one
  uint64_t cause = 0;      // the copy whose landing ended the last phase, or 0
};

struct AsyncGroup {  // of cp.async, wgmma, tcgen05 or bulk stores
  uint64_t began = 0;
  int64_t count = 0;
  int32_t pc = -1;
};
struct GroupStream {
  AsyncGroup open;
  std::deque<AsyncGroup> committed;
};

struct WarpTrace {
  uint64_t now = 0;
  int32_t line = -1, line_pc = -1;  // what it does since `line_began`
  uint64_t line_began = 0;
  bool blocked = false, released = false;
  uint64_t blocked_at = 0, release = 0, cause = 0;
  int32_t blocked_pc = -1;
  TraceGate gate = TraceGate::none;
  uint32_t gate_key = 0;
  GroupStream copies, products, stores;
  GroupStream tensor;  // committed ones end in their order
  AsyncGroup tensor_loads, tensor_stores;
};

struct LoadTrace {
  uint64_t began, id;
};

struct ClusterTrace {
  MachineTrace* machine = nullptr;
  std::vector<TraceEvent> events;
  std::vector<WarpTrace> warps;          // in the order of Cluster::warps
  std::vector<std::vector<Gate>> gates;  // of each block
  std::vector<bool> wanted;              // of each block
  Gate cluster_gate{TraceGate::cluster, 0};
  std::vector<LoadTrace> loads;  // beside Cluster::loads
};

void start_trace(Machine& machine);
void start_trace(Cluster& cluster);  // of a new cluster
void add_trace(Cluster& cluster, Result& result);

// Around the instructions of a warp, and its runs.
void trace_instruction(Warp& warp);
void trace_executed(Warp& warp, const Instruction& instruction);
void trace_resumed(Warp& warp);
void trace_stopped(Warp& warp);
// A launch that the warp waits for has ended at that time.
void trace_released(Warp& warp, uint64_t time);
uint64_t trace_now(const Warp& warp);
// The oldest commit of tcgen05 of a warp has ended, and told an mbarrier.
void trace_committed(const Warp& warp, uint32_t barrier);
// Around a landing: of the load with this index, or of cp.async arrivals (-1).
void trace_landed(Cluster& cluster, int64_t load, const Transfer& transfer);

}  // namespace workbench::emulator::WORKBENCH_ISA
