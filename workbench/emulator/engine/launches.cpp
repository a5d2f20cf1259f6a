#include "launches.hpp"

#include <algorithm>

#include "trace.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

void add_far(std::shared_ptr<const Far>& to, const std::shared_ptr<const Far>& from) {
  if (!from || to == from) return;
  Knowledge both, more;
  both.now.far = to;
  more.now.far = from;
  race_join(both, more);
  to = both.now.far;
}

// The ends of launches among what is known.
std::shared_ptr<const Far> ends_in(const std::shared_ptr<const Far>& far, const LaunchSeries& series,
                                   uint32_t before) {
  if (!far) return nullptr;
  auto ends = std::make_shared<Far>();
  for (uint32_t k = 0; k < before; ++k) {
    const auto found = far->find(series.launches[k].end());
    if (found != far->end()) ends->insert(*found);
  }
  return ends->size() == far->size() ? far : ends;
}

// What all of these lanes know; of no lanes, what any of the warp knows.
std::shared_ptr<const Far> ends_known(const Warp& warp, const LaunchSeries& series, uint32_t lanes) {
  Knowledge known = warp.races->known;
  for (const LaneKnowledge& part : warp.races->partly)
    if (!(lanes & ~part.lanes)) race_join(known, part.known);
  return ends_in(known.now.far, series, warp.machine->number);
}

}  // namespace

const LaunchState& LaunchSeries::of_cluster(uint32_t cluster) const {
  const auto behind = std::upper_bound(launches.begin(), launches.end(), cluster,
                                       [](uint32_t c, const LaunchState& l) { return c < l.first_cluster; });
  return *(behind - 1);
}

bool LaunchSeries::follows(size_t launch, size_t earlier) const {
  const auto& after = launches[launch].after;
  return std::any_of(after.begin(), after.end(), [&](const Predecessor& before) {
    return before.launch == earlier || (before.launch > earlier && follows(before.launch, earlier));
  });
}

bool LaunchSeries::may_begin(const LaunchState& launch) const {
  return std::all_of(launch.after.begin(), launch.after.end(), [&](const Predecessor& before) {
    const LaunchState& state = launches[before.launch];
    switch (before.port) {
      case Port::ended:
        return state.has_ended();
      case Port::triggered:
        return state.untriggered == 0;
      default:  // some of its blocks may be late: CUDA promises no more
        return state.has_begun;
    }
  });
}

void join_series(Machine& machine, LaunchSeries& series) {
  const Launch& launch = *machine.launch;
  machine.number = static_cast<uint32_t>(series.launches.size());
  LaunchState& state = series.launches.emplace_back();
  if (machine.number) {
    const LaunchState& last = series.launches[machine.number - 1];
    state.first_cluster = last.end() + 1;
  }
  std::copy_n(launch.grid, 3, state.grid);
  std::copy_n(launch.cluster, 3, state.cluster);
  state.warps_per_block = machine.warps_per_block;
  state.cluster_size = machine.cluster_size;
  state.untriggered = int64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  state.unfinished = state.untriggered / machine.cluster_size;
  state.clusters = static_cast<uint32_t>(state.unfinished);
  state.machine = &machine;
  state.finding_lines = launch.finding_lines;
  state.suppressed = launch.suppressed;
  for (const Predecessor& before : launch.after)
    if (before.launch < machine.number) state.after.push_back(before);
}

void launch_begins(LaunchState& launch, LaunchSeries& series) {
  launch.has_begun = true;
  for (const Predecessor& before : launch.after) {
    const LaunchState& state = series.launches[before.launch];
    const bool ended = before.port == Port::ended, triggered = before.port == Port::triggered;
    if (ended || triggered) add_far(launch.at_start, ended ? state.at_end : state.at_trigger);
    if (!ended) add_far(launch.at_start, state.at_start);
    launch.begins_at = std::max({launch.begins_at,
                                 ended       ? state.ends_at
                                 : triggered ? state.triggers_at
                                             : 0,
                                 state.begins_at});
  }
}

bool launch_waits(const Machine& machine) {
  const LaunchState& own = machine.series->launches[machine.number];
  return std::any_of(own.after.begin(), own.after.end(), [&](const Predecessor& before) {
    return before.is_waited_for() && !machine.series->launches[before.launch].has_ended();
  });
}

Knowledge launch_waited(const Machine& machine) {
  Knowledge told;
  for (const Predecessor& before : machine.series->launches[machine.number].after)
    if (before.is_waited_for()) add_far(told.now.far, machine.series->launches[before.launch].at_end);
  return told;
}

uint64_t launch_waited_until(const Machine& machine) {
  uint64_t until = 0;
  for (const Predecessor& before : machine.series->launches[machine.number].after)
    if (before.is_waited_for()) until = std::max(until, machine.series->launches[before.launch].ends_at);
  return until;
}

void launch_triggers(Warp& warp, uint32_t lanes) {
  Block& block = *warp.block;
  if (block.triggered) return;
  LaunchSeries& series = *warp.machine->series;
  std::lock_guard<std::mutex> lock(series.mutex);
  LaunchState& own = series.launches[warp.machine->number];
  block.triggered = true;
  --own.untriggered;
  if (block.cluster->trace) own.triggers_at = std::max(own.triggers_at, trace_now(warp));
  if (warp.races && !own.after.empty()) add_far(own.at_trigger, ends_known(warp, series, lanes));
}

void launch_cluster_cancelled(Machine& machine) {
  LaunchSeries& series = *machine.series;
  std::lock_guard<std::mutex> lock(series.mutex);
  LaunchState& own = series.launches[machine.number];
  own.untriggered -= own.cluster_size;
  --own.unfinished;  // not the last one: who has cancelled it still runs
}

bool launch_cluster_ended(Cluster& cluster) {
  LaunchSeries& series = *cluster.machine->series;
  std::lock_guard<std::mutex> lock(series.mutex);
  LaunchState& own = series.launches[cluster.machine->number];
  for (Block& block : cluster.blocks)
    for (Warp& warp : block.warps) {
      if (!warp.races || own.after.empty()) break;
      const std::shared_ptr<const Far> known = ends_known(warp, series, 0);
      add_far(own.at_end, known);
      if (!block.triggered) add_far(own.at_trigger, known);
    }
  for (const Block& block : cluster.blocks) {
    own.untriggered -= !block.triggered;
    for (size_t k = 0; cluster.trace && k < block.warps.size(); ++k)
      own.ends_at = std::max(own.ends_at, trace_now(block.warps[k]));
    if (!block.triggered) own.triggers_at = std::max(own.triggers_at, own.ends_at);
  }
  if (--own.unfinished) return false;
  auto ended = own.at_end ? std::make_shared<Far>(*own.at_end) : std::make_shared<Far>();
  (*ended)[own.end()] = std::make_shared<const Times>(1, 1u);
  own.at_end = ended;
  return true;
}

bool launch_released(Cluster& cluster) {
  if (launch_waits(*cluster.machine)) return false;
  const Knowledge told = launch_waited(*cluster.machine);
  for (Warp* warp : cluster.warps)
    for (size_t k = 0; k < warp->groups.size(); ++k)
      if (warp->groups[k].wait == Wait::grid) {
        warp->groups[k].wait = Wait::none;
        if (told.now.far) race_learn(*warp, told, warp->groups[k].mask);
        if (cluster.trace) trace_released(*warp, launch_waited_until(*cluster.machine));
      }
  return true;
}

// ---- copies of the host

void carry_out_copies(Cluster& cluster) {
  Warp& warp = *cluster.warps[0];
  const Launch& launch = *cluster.machine->launch;
  for (const HostCopy& copy : launch.copies) {
    const Allocation* to = find_allocation(launch, copy.to);
    const Allocation* from = copy.from ? find_allocation(launch, copy.from) : nullptr;
    if (!to || copy.bytes > to->address + to->bytes - copy.to || (copy.from && !from)) continue;
    const uint64_t at = copy.to - to->address, source = from ? copy.from - from->address : 0;
    if (from) race_global_run(warp, *from, source, copy.bytes, Access::read, 0);
    const bool reads = !from && copy.value == kHostReads;
    race_global_run(warp, *to, at, copy.bytes, reads ? Access::read : Access::write, 0);
    if (from)
      std::memmove(to->data + at, from->data + source, copy.bytes);
    else if (copy.value >= 0)
      std::memset(to->data + at, copy.value, copy.bytes);
    if (!to->initialised || reads) continue;
    if (from && from->initialised)
      std::memmove(to->initialised + at, from->initialised + source, copy.bytes);
    else
      std::memset(to->initialised + at, 1, copy.bytes);
  }
}

}  // namespace workbench::emulator::WORKBENCH_ISA
