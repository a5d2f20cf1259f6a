// Findings behind which a launch goes on: each once for its lines, and none that only follows from another.
#include <algorithm>

#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr uint32_t kMostOthers = 100;  // that are no failures
constexpr int32_t kOrder = -1;         // stands for all kinds that say: these two accesses are not in order

bool is_of_order(FaultKind kind) {
  return kind == FaultKind::race || kind == FaultKind::in_flight || kind == FaultKind::proxy_fence;
}

int32_t line_of(const Launch& launch, int32_t pc) {
  return pc < 0 || launch.finding_lines.empty() ? pc : launch.finding_lines[static_cast<size_t>(pc)];
}

// What a finding is known by. A value that is undefined is reported once, and not at each use; so are
// accumulators of one product.
std::array<int32_t, 3> key_of(const Launch& launch, const Fault& fault) {
  const int32_t kind = static_cast<int32_t>(fault.kind), here = line_of(launch, fault.pc),
                there = line_of(launch, fault.other_pc);
  switch (fault.kind) {
    case FaultKind::uninitialised:
    case FaultKind::accumulator_in_flight:
    case FaultKind::wgmma_fence:
    case FaultKind::loads_pending:
    case FaultKind::stores_pending:
      return {kind, fault.other_pc < 0 ? here : there, 0};
    case FaultKind::incoherent_load:
    case FaultKind::read_only_changed:
      return {kind, std::min(here, there), std::max(here, there)};
    default:
      if (is_of_order(fault.kind)) return {kOrder, std::min(here, there), std::max(here, there)};
      return {kind, here, there};
  }
}

// What is at a wrong place or too long because of an undefined address or size is no finding of its own.
bool leads_outside(Use use) { return use == Use::address || use == Use::operand; }

bool suppressed(const Launch& launch, const Fault& fault) {
  return std::any_of(launch.suppressed.begin(), launch.suppressed.end(), [&](const auto& pair) {
    return pair.first == static_cast<int32_t>(fault.kind) &&
           (pair.second < 0 || pair.second == fault.pc || pair.second == fault.other_pc);
  });
}

}  // namespace

void report(Cluster& cluster, const Fault& fault) {
  Machine& machine = *cluster.machine;
  const Launch& launch = *machine.launch;
  Reported& reported = machine.reported;
  const bool shared_order = fault.space == Space::shared && is_of_order(fault.kind);
  if (cluster.suspected.kind == FaultKind::race && fault.kind != FaultKind::race)
    cluster.report_suspected();  // what may follow from it comes later
  if (cluster.raced && fault.kind == FaultKind::uninitialised && fault.space == Space::shared) return;
  std::lock_guard<std::mutex> lock(reported.mutex);
  const auto key = key_of(launch, fault);
  const bool fails = launch.failing.empty() || launch.failing[static_cast<size_t>(fault.kind)];
  if (!reported.known.count(key)) {
    if (!suppressed(launch, fault)) {
      if (fails && reported.failures + 1 >= launch.most_findings) throw fault;
      if (!fails && reported.others >= kMostOthers) return;
      ++(fails ? reported.failures : reported.others);
    }
    reported.known.insert(key);
    if (fault.kind == FaultKind::uninitialised && leads_outside(static_cast<Use>(fault.info)))
      for (const FaultKind follows : {FaultKind::out_of_bounds, FaultKind::misaligned})
        reported.known.insert({static_cast<int32_t>(follows), line_of(launch, fault.pc), -1});
    if (is_of_order(fault.kind))  // nor is what is touched too early waited for at the end
      for (const FaultKind follows : {FaultKind::loads_pending, FaultKind::stores_pending})
        for (const int32_t pc : {fault.pc, fault.other_pc})
          reported.known.insert({static_cast<int32_t>(follows), line_of(launch, pc), 0});
    machine.result->findings.push_back({fault, cluster.waiting()});
  }
  if (!shared_order) return;
  cluster.raced = true;
  if (cluster.suspected.kind == FaultKind::uninitialised) cluster.suspected = Fault{};
}

}  // namespace workbench::emulator::WORKBENCH_ISA
