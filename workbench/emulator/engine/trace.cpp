#include "trace.hpp"

#include <algorithm>
#include <atomic>

#include "launches.hpp"
#include "scheduler.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// What an instruction is for the timeline.
enum class Role : uint8_t {
  plain,
  synchronises,  // may end a phase of a barrier
  waits_mbarrier,
  waits_named,
  waits_cluster,
  waits_grid,
  bulk_load,
  copy,
  copy_commit,
  copy_wait,
  copy_wait_all,
  product,
  product_commit,
  product_wait,
  store,
  store_commit,
  store_wait,
  tensor,
  tensor_commit,
  tensor_load,
  tensor_store,
  tensor_load_wait,
  tensor_store_wait
};

struct MachineTrace {
  std::vector<Role> roles;
  std::atomic<uint64_t> events{0};
  std::atomic<uint64_t> copies{0};
  std::atomic<bool> cut{false};
};

namespace {

bool starts(const std::string& name, const char* with) { return name.rfind(with, 0) == 0; }
bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

Role tensor_role(const std::string& name, Kind kind) {
  if (starts(name, "tcgen05.mma") || starts(name, "tcgen05.cp") || starts(name, "tcgen05.shift"))
    return Role::tensor;
  if (starts(name, "tcgen05.commit")) return Role::tensor_commit;
  if (starts(name, "tcgen05.ld.")) return Role::tensor_load;
  if (starts(name, "tcgen05.st.")) return Role::tensor_store;
  if (starts(name, "tcgen05.wait."))
    return has(name, "ld") ? Role::tensor_load_wait : Role::tensor_store_wait;
  return kind == Kind::control ? Role::synchronises : Role::plain;
}

Role role_of(const std::string& name, Kind kind) {
  if (starts(name, "mbarrier.try_wait") || starts(name, "mbarrier.test_wait")) return Role::waits_mbarrier;
  if (starts(name, "barrier.cluster.wait")) return Role::waits_cluster;
  if (starts(name, "griddepcontrol.wait")) return Role::waits_grid;
  if (starts(name, "bar.warp")) return Role::plain;
  if (starts(name, "bar.") || starts(name, "barrier."))
    return has(name, ".sync") || has(name, ".red") ? Role::waits_named : Role::synchronises;
  if (starts(name, "cp.async.bulk.commit_group")) return Role::store_commit;
  if (starts(name, "cp.async.bulk.wait_group")) return Role::store_wait;
  if (starts(name, "cp.async.bulk") || starts(name, "cp.reduce.async.bulk")) {
    if (has(name, "prefetch")) return Role::plain;
    return has(name, "complete_tx") ? Role::bulk_load : Role::store;
  }
  if (starts(name, "cp.async.ca") || starts(name, "cp.async.cg")) return Role::copy;
  if (starts(name, "cp.async.commit_group")) return Role::copy_commit;
  if (starts(name, "cp.async.wait_group")) return Role::copy_wait;
  if (starts(name, "cp.async.wait_all")) return Role::copy_wait_all;
  if (starts(name, "wgmma.mma_async")) return Role::product;
  if (starts(name, "wgmma.commit_group")) return Role::product_commit;
  if (starts(name, "wgmma.wait_group")) return Role::product_wait;
  if (starts(name, "tcgen05.")) return tensor_role(name, kind);
  return starts(name, "mbarrier.") || kind == Kind::control ? Role::synchronises : Role::plain;
}

WarpTrace& trace_of(const Warp& warp) {
  const Block& block = *warp.block;
  return block.cluster->trace->warps[block.rank * block.warps.size() + static_cast<size_t>(warp.id)];
}

void emit(ClusterTrace& trace, const Block& block, TraceEvent event) {
  if (!trace.wanted[block.rank]) return;
  if (trace.machine->events.fetch_add(1) >= block.machine->launch->trace_events) {
    trace.machine->cut = true;
    return;
  }
  event.block = block.id;
  trace.events.push_back(event);
}

void end_line(const Warp& warp) {
  WarpTrace& own = trace_of(warp);
  if (own.line >= 0 && own.now > own.line_began)
    emit(*warp.block->cluster->trace, *warp.block,
         {TraceKind::run, 0, warp.id, own.line_began, own.now, own.line_pc});
  own.line = -1;
}

// The warp's clock goes on to `until`, waiting.
void wait_until(const Warp& warp, uint64_t until, int32_t pc, TraceGate gate, uint32_t key, uint64_t cause) {
  WarpTrace& own = trace_of(warp);
  if (until <= own.now) return;
  end_line(warp);
  TraceEvent event{TraceKind::wait, 0, warp.id, own.now, until, pc};
  event.gate = gate;
  event.key = key;
  event.cause = cause;
  emit(*warp.block->cluster->trace, *warp.block, event);
  own.now = until;
}

// ---- barriers

Gate* find_gate(std::vector<Gate>& gates, TraceGate kind, uint32_t key) {
  for (Gate& gate : gates)
    if (gate.kind == kind && gate.key == key) return &gate;
  return nullptr;
}

void complete(Cluster& cluster, Block* block, Gate& gate, uint64_t cause) {
  gate.completed = gate.pending;
  gate.cause = cause;
  if (block && gate.kind == TraceGate::mbarrier) {
    TraceEvent event{TraceKind::phase, 0, 0, gate.began, std::max(gate.completed, gate.began + 1), -1};
    event.gate = gate.kind;
    event.key = gate.key;
    event.count = static_cast<int64_t>(gate.phase);
    emit(*cluster.trace, *block, event);
  }
  gate.began = std::max(gate.completed, gate.began + 1);
  gate.pending = 0;
  for (size_t k = 0; k < cluster.warps.size(); ++k) {  // who waited for it
    WarpTrace& own = cluster.trace->warps[k];
    if (!own.blocked || own.released || own.gate != gate.kind || own.gate_key != gate.key) continue;
    if ((block && cluster.warps[k]->block != block) || !cluster.warps[k]->runnable()) continue;
    own.released = true;
    own.release = gate.completed;
    own.cause = gate.cause;
  }
}

// Something happened at `time` that may have touched barriers, or ended their phases.
void look_at_gates(Cluster& cluster, uint64_t time, uint64_t cause) {
  ClusterTrace& trace = *cluster.trace;
  for (Block& block : cluster.blocks) {
    std::vector<Gate>& gates = trace.gates[block.rank];
    for (const Mbarrier& barrier : block.mbarriers) {
      if (!barrier.valid) continue;
      Gate* gate = find_gate(gates, TraceGate::mbarrier, barrier.address);
      if (!gate) {
        gate = &gates.emplace_back(Gate{TraceGate::mbarrier, barrier.address});
        gate->began = time;
      } else if (gate->arrived != barrier.pending || gate->transactions != barrier.transactions ||
                 gate->phase != barrier.phase) {
        gate->pending = std::max(gate->pending, time);
        if (gate->phase != barrier.phase) complete(cluster, &block, *gate, cause);
      }
      gate->phase = barrier.phase;
      gate->arrived = barrier.pending;
      gate->transactions = barrier.transactions;
    }
    for (uint32_t number = 0; number < 16; ++number) {  // phase 1: in use
      const bool used = block.barriers[number].in_use;
      Gate* gate = find_gate(gates, TraceGate::named, number);
      if (!used && (!gate || !gate->phase)) continue;
      if (!gate) gate = &gates.emplace_back(Gate{TraceGate::named, number});
      const int64_t arrived = used ? barrier_arrived(block, static_cast<int>(number)) : 0;
      if (used && gate->phase && gate->arrived == arrived) continue;
      gate->pending = std::max(gate->pending, time);
      if (!used) complete(cluster, &block, *gate, 0);
      gate->phase = used ? 1 : 0;
      gate->arrived = arrived;
    }
  }
  Gate& gate = trace.cluster_gate;
  if (gate.phase != cluster.barrier_phase || gate.arrived != cluster.barrier_arrived) {
    gate.pending = std::max(gate.pending, time);
    if (gate.phase != cluster.barrier_phase) complete(cluster, nullptr, gate, 0);
    gate.phase = cluster.barrier_phase;
    gate.arrived = cluster.barrier_arrived;
  }
}

bool is_blocked_here(const Warp& warp) {
  for (const Group& group : warp.groups)
    if (group.wait != Wait::none && group.pc == warp.pc) return true;
  return false;
}

// ---- groups of asynchronous work

void add_to(const Warp& warp, AsyncGroup& group) {
  if (group.count++ == 0) group = {trace_of(warp).now - 1, 1, warp.pc};
}

void add_to_group(const Warp& warp, GroupStream& stream) { add_to(warp, stream.open); }

void commit_group(GroupStream& stream) {
  stream.committed.push_back(stream.open);
  stream.open = AsyncGroup{};
}

void end_group(const Warp& warp, const AsyncGroup& group, TraceKind kind) {
  if (!group.count) return;
  TraceEvent event{kind, 0, warp.id, group.began, trace_of(warp).now, group.pc};
  event.count = group.count;
  event.until_pc = warp.pc;
  emit(*warp.block->cluster->trace, *warp.block, event);
}

void end_groups(const Warp& warp, GroupStream& stream, uint32_t left, TraceKind kind) {
  for (; stream.committed.size() > left; stream.committed.pop_front())
    end_group(warp, stream.committed.front(), kind);
}

void end_moves(const Warp& warp, AsyncGroup& moves) {
  end_group(warp, moves, TraceKind::moves);
  moves = AsyncGroup{};
}

}  // namespace

// ---- hooks

void trace_instruction(Warp& warp) {
  const Machine& machine = *warp.machine;
  WarpTrace& own = trace_of(warp);
  const int32_t line = machine.launch->trace_lines[static_cast<size_t>(warp.pc)];
  if (line != own.line) {
    end_line(warp);
    own.line = line;
    own.line_pc = warp.pc;
    own.line_began = own.now;
  }
  ++own.now;
}

void trace_executed(Warp& warp, const Instruction& instruction) {
  Cluster& cluster = *warp.block->cluster;
  ClusterTrace& trace = *cluster.trace;
  WarpTrace& own = trace_of(warp);
  while (trace.loads.size() < cluster.loads.size())  // whatever has sent them
    trace.loads.push_back({own.now - 1, trace.machine->copies.fetch_add(1) + 1});
  const Role role = trace.machine->roles[static_cast<size_t>(warp.pc)];
  switch (role) {
    case Role::plain:
      return;
    case Role::copy:
      return add_to_group(warp, own.copies);
    case Role::copy_commit:
      return commit_group(own.copies);
    case Role::copy_wait_all:
      commit_group(own.copies);
      return end_groups(warp, own.copies, 0, TraceKind::copies);
    case Role::copy_wait:
      return end_groups(warp, own.copies, uniform(warp, instruction.operands[0]), TraceKind::copies);
    case Role::product:
      return add_to_group(warp, own.products);
    case Role::product_commit:
      return commit_group(own.products);
    case Role::product_wait:
      return end_groups(warp, own.products, uniform(warp, instruction.operands[0]), TraceKind::products);
    case Role::store:
      return add_to_group(warp, own.stores);
    case Role::store_commit:
      return commit_group(own.stores);
    case Role::store_wait:
      return end_groups(warp, own.stores, uniform(warp, instruction.operands[0]), TraceKind::stores);
    case Role::tensor:
      return add_to_group(warp, own.tensor);
    case Role::tensor_commit:
      return commit_group(own.tensor);
    case Role::tensor_load:
      return add_to(warp, own.tensor_loads);
    case Role::tensor_store:
      return add_to(warp, own.tensor_stores);
    case Role::tensor_load_wait:
      return end_moves(warp, own.tensor_loads);
    case Role::tensor_store_wait:
      return end_moves(warp, own.tensor_stores);
    default:
      break;
  }
  look_at_gates(cluster, own.now, 0);
  if (is_blocked_here(warp)) return;
  // it went through: but not before the others' clocks say that they have come
  std::vector<Gate>& gates = trace.gates[warp.block->rank];
  const Gate* gate = nullptr;
  if (role == Role::waits_mbarrier) {
    uint64_t address[kLanes];
    read_addresses(warp, instruction.operands[1], address);
    const uint64_t first = address[warp.active ? __builtin_ctz(warp.active) : 0];
    gate = find_gate(gates, TraceGate::mbarrier, static_cast<uint32_t>(first) & ((1u << kRankShift) - 1));
  } else if (role == Role::waits_named) {
    const Operand& number = instruction.operands[instruction.access[0] == 'w' ? 0 : 1];
    gate = find_gate(gates, TraceGate::named, source_cells<uint32_t>(warp, number)[0]);
  } else if (role == Role::waits_cluster) {
    gate = &trace.cluster_gate;
  }
  if (role == Role::waits_grid && !launch_waits(*warp.machine))
    wait_until(warp, launch_waited_until(*warp.machine), warp.pc, TraceGate::grid, 0, 0);
  if (gate) wait_until(warp, gate->completed, warp.pc, gate->kind, gate->key, gate->cause);
}

void trace_resumed(Warp& warp) {
  WarpTrace& own = trace_of(warp);
  if (!own.blocked) return;
  own.blocked = false;
  if (own.released) wait_until(warp, own.release, own.blocked_pc, own.gate, own.gate_key, own.cause);
  own.released = false;
}

void trace_stopped(Warp& warp) {
  WarpTrace& own = trace_of(warp);
  if (warp.runnable()) return;
  end_line(warp);
  if (warp.groups.empty()) return;
  const Group& group = warp.groups.back();
  own.blocked = true;
  own.released = false;
  own.blocked_at = own.now;
  own.blocked_pc = group.pc;
  own.gate = group.wait == Wait::barrier    ? TraceGate::named
             : group.wait == Wait::mbarrier ? TraceGate::mbarrier
             : group.wait == Wait::cluster  ? TraceGate::cluster
             : group.wait == Wait::grid     ? TraceGate::grid
                                            : TraceGate::none;
  own.gate_key = own.gate == TraceGate::cluster ? 0 : static_cast<uint32_t>(group.key);
}

uint64_t trace_now(const Warp& warp) { return trace_of(warp).now; }

void trace_released(Warp& warp, uint64_t time) {
  WarpTrace& own = trace_of(warp);
  own.released = own.blocked;
  own.release = time;
  own.cause = 0;
}

namespace {

uint64_t later_than_all(const ClusterTrace& trace) {
  uint64_t time = 0;
  for (const WarpTrace& own : trace.warps) time = std::max(time, own.now);
  return time + 1;
}

}  // namespace

void trace_committed(const Warp& warp, uint32_t barrier) {
  Cluster& cluster = *warp.block->cluster;
  ClusterTrace& trace = *cluster.trace;
  GroupStream& stream = trace_of(warp).tensor;
  if (stream.committed.empty()) return;
  const AsyncGroup group = stream.committed.front();
  stream.committed.pop_front();
  const uint64_t time = later_than_all(trace), cause = trace.machine->copies.fetch_add(1) + 1;
  if (group.count) {
    TraceEvent event{TraceKind::tensor, 0, warp.id, group.began, time, group.pc};
    event.gate = TraceGate::mbarrier;
    event.key = barrier;
    event.count = group.count;
    event.cause = cause;
    emit(trace, *warp.block, event);
  }
  look_at_gates(cluster, time, group.count ? cause : 0);
}

void trace_landed(Cluster& cluster, int64_t load, const Transfer& transfer) {
  ClusterTrace& trace = *cluster.trace;
  const uint64_t time = later_than_all(trace);
  uint64_t cause = 0;
  if (load >= 0) {
    const LoadTrace issued = trace.loads[static_cast<size_t>(load)];
    trace.loads.erase(trace.loads.begin() + load);
    cause = issued.id;
    TraceEvent event{TraceKind::load, 0, transfer.warp, issued.began, time, transfer.pc};
    event.gate = TraceGate::mbarrier;
    event.key = transfer.barrier;
    event.count = transfer.bytes;
    event.cause = cause;
    emit(trace, *transfer.block, event);
  }
  look_at_gates(cluster, time, cause);
}

void start_trace(Machine& machine) {
  if (!machine.launch->trace_events) return;
  machine.trace = std::make_shared<MachineTrace>();
  const auto& table = operation_table();
  for (const Row& row : machine.program->rows) {
    const Operation& operation = table[static_cast<size_t>(row.operation)];
    machine.trace->roles.push_back(role_of(operation.name, operation.kind));
  }
}

namespace {

// What was going on when a cluster ended, or a fault ended it.
void finish(Cluster& cluster) {
  uint64_t last = 0;
  for (const WarpTrace& own : cluster.trace->warps) last = std::max(last, own.now);
  for (Warp* warp : cluster.warps) {
    end_line(*warp);
    const WarpTrace& own = trace_of(*warp);
    if (own.blocked && !own.released) wait_until(*warp, last + 1, own.blocked_pc, own.gate, own.gate_key, 0);
  }
}

}  // namespace

void start_trace(Cluster& cluster) {
  const Machine& machine = *cluster.machine;
  if (!machine.trace) return;
  std::vector<TraceEvent> kept;
  if (cluster.trace) {
    finish(cluster);
    kept = std::move(cluster.trace->events);
  }
  const std::vector<int64_t>& blocks = machine.launch->trace_blocks;
  cluster.trace = std::make_shared<ClusterTrace>();
  cluster.trace->machine = machine.trace.get();
  cluster.trace->events = std::move(kept);
  cluster.trace->warps.resize(cluster.warps.size());
  for (WarpTrace& warp : cluster.trace->warps) warp.now = machine.series->launches[machine.number].begins_at;
  cluster.trace->gates.resize(cluster.blocks.size());
  for (const Block& block : cluster.blocks)
    cluster.trace->wanted.push_back(std::find(blocks.begin(), blocks.end(), block.id) != blocks.end());
}

void add_trace(Cluster& cluster, Result& result) {
  if (!cluster.trace) return;
  finish(cluster);
  const auto& events = cluster.trace->events;
  result.trace.insert(result.trace.end(), events.begin(), events.end());
  result.trace_cut = result.trace_cut || cluster.trace->machine->cut;
}

}  // namespace workbench::emulator::WORKBENCH_ISA
