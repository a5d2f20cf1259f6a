// Findings behind which a launch goes on: each once for its lines, and none that only follows from another.
#include <algorithm>

#include "launches.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr uint32_t kMostOthers = 100;  // that are no failures
constexpr int32_t kOrder = -1;         // stands for all kinds that say: these two accesses are not in order

bool is_of_order(FaultKind kind) {
  return kind == FaultKind::race || kind == FaultKind::in_flight || kind == FaultKind::proxy_fence ||
         kind == FaultKind::product_proxy_fence;
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

// The same for two accesses of different launches, of which one may have ended long ago.
std::array<int32_t, 3> key_between(const Launch& launch, const LaunchState& other, const Fault& fault) {
  const auto there = other.finding_lines.empty() || fault.other_pc < 0
                         ? fault.other_pc
                         : other.finding_lines[static_cast<size_t>(fault.other_pc)];
  return {kOrder - 1 - fault.other_launch, line_of(launch, fault.pc), there};
}

bool suppressed_between(const LaunchState& other, const Fault& fault) {
  return std::any_of(other.suppressed.begin(), other.suppressed.end(), [&](const auto& pair) {
    return pair.first == static_cast<int32_t>(fault.kind) && pair.second >= 0 &&
           pair.second == fault.other_pc;
  });
}

bool suppressed(const Launch& launch, const Fault& fault) {
  return std::any_of(launch.suppressed.begin(), launch.suppressed.end(), [&](const auto& pair) {
    return pair.first == static_cast<int32_t>(fault.kind) &&
           (pair.second < 0 || pair.second == fault.pc ||
            (fault.other_launch < 0 && pair.second == fault.other_pc));
  });
}

// That a launch reads what an earlier one has not stored yet follows from a race of the two.
void forget_uninitialised(Machine& machine, int32_t line) {
  const std::array<int32_t, 3> key{static_cast<int32_t>(FaultKind::uninitialised), line, 0};
  if (machine.reported.known.insert(key).second) return;
  auto& findings = machine.result->findings;
  const auto follows = [&](const Finding& f) {
    return f.fault.kind == FaultKind::uninitialised && key_of(*machine.launch, f.fault) == key;
  };
  const auto left = std::remove_if(findings.begin(), findings.end(), follows);
  machine.reported.failures -= static_cast<uint32_t>(findings.end() - left);
  findings.erase(left, findings.end());
}

}  // namespace

void report(Cluster& cluster, const Fault& fault) {
  const bool between = fault.other_launch >= 0;
  const LaunchSeries& series = *cluster.machine->series;
  const LaunchState* other = between ? &series.launches[static_cast<size_t>(fault.other_launch)] : nullptr;
  Machine& machine = between ? *series.launches[static_cast<size_t>(fault.launch)].machine : *cluster.machine;
  const Launch& launch = *machine.launch;
  Reported& reported = machine.reported;
  const bool shared_order = fault.space == Space::shared && is_of_order(fault.kind);
  if (cluster.suspected.kind == FaultKind::race && fault.kind != FaultKind::race)
    cluster.report_suspected();  // what may follow from it comes later
  if (cluster.raced && fault.kind == FaultKind::uninitialised && fault.space == Space::shared) return;
  std::lock_guard<std::mutex> lock(reported.mutex);
  const auto key = other ? key_between(launch, *other, fault) : key_of(launch, fault);
  const bool fails = launch.failing.empty() || launch.failing[static_cast<size_t>(fault.kind)];
  if (!reported.known.count(key)) {
    if (!suppressed(launch, fault) && !(other && suppressed_between(*other, fault))) {
      if (fails && reported.failures + 1 >= launch.most_findings) throw fault;
      if (!fails && reported.others >= kMostOthers) return;
      ++(fails ? reported.failures : reported.others);
    }
    reported.known.insert(key);
    if (fault.kind == FaultKind::uninitialised && leads_outside(static_cast<Use>(fault.info)))
      for (const FaultKind follows : {FaultKind::out_of_bounds, FaultKind::misaligned})
        reported.known.insert({static_cast<int32_t>(follows), line_of(launch, fault.pc), -1});
    if (!other && is_of_order(fault.kind))  // nor is what is touched too early waited for at the end
      for (const FaultKind follows : {FaultKind::loads_pending, FaultKind::stores_pending})
        for (const int32_t pc : {fault.pc, fault.other_pc})
          reported.known.insert({static_cast<int32_t>(follows), line_of(launch, pc), 0});
    if (other) forget_uninitialised(machine, line_of(launch, fault.pc));
    machine.result->findings.push_back({fault, other ? std::vector<Waiting>{} : cluster.waiting()});
  }
  if (!shared_order) return;
  cluster.raced = true;
  if (cluster.suspected.kind == FaultKind::uninitialised) cluster.suspected = Fault{};
}

}  // namespace workbench::emulator::WORKBENCH_ISA
