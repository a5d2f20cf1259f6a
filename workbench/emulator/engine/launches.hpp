// Launches that share memory and need not have ended before the next one begins.
//
// Their order is a graph: a launch comes after its predecessors, which are numbers of earlier launches. It
// begins when they have ended. Of a programmatic predecessor it is enough that every block has triggered
// (griddepcontrol.launch_dependents) or ended; what that launch does comes before nothing of this one until a
// thread executes griddepcontrol.wait, which waits for its end. Events that a launch records when its blocks
// begin allow more; the wait may or may not be one for that launch then.
//
// To the happens-before of race.hpp the end of a launch is the one agent of a cluster of its own, behind the
// clusters of the launch. Whoever knows its clock comes after all that the launch has done, and hands that on
// as any other clock. The end itself knows what any thread of the launch has known at its exit: so a launch
// that waits for one that has never waited does not come after the predecessors of that one. A launch begins
// with what is certain by then: the ends of its predecessors, and of programmatic ones what was known to the
// threads that have triggered.
#pragma once

#include "race.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

struct LaunchState {
  uint32_t first_cluster = 0, clusters = 0;
  uint32_t grid[3], cluster[3], warps_per_block, cluster_size;
  std::vector<Predecessor> after;
  std::shared_ptr<const Far> at_start, at_trigger, at_end;
  bool has_begun = false;
  int64_t untriggered = 0, unfinished = 0;  // blocks and clusters; host threads count them under the mutex
  uint64_t begins_at = 0, triggers_at = 0, ends_at = 0;  // of a timeline, see trace.hpp
  Machine* machine = nullptr;                            // while it runs
  std::vector<int32_t> finding_lines;
  std::vector<std::pair<int32_t, int32_t>> suppressed;

  bool has_ended() const { return unfinished == 0; }
  uint32_t end() const { return first_cluster + clusters; }  // the cluster that stands for it
};

struct LaunchSeries : Series {
  std::mutex mutex;
  std::vector<LaunchState> launches;
  std::shared_ptr<MachineRaces> races;
  std::vector<Allocation> allocations;  // those that the shadows in `races` are of

  const LaunchState& of_cluster(uint32_t cluster) const;
  bool follows(size_t launch, size_t earlier) const;  // by edges of any kind
  bool may_begin(const LaunchState& launch) const;
};

// A launch joins the series: it is given its number and its clusters, and the series' shadow of memory.
void join_series(Machine& machine, LaunchSeries& series);
// What is known at the start of a launch whose predecessors allow it to begin.
void launch_begins(LaunchState& launch, LaunchSeries& series);
// Whether griddepcontrol.wait has to wait, and what it tells.
bool launch_waits(const Machine& machine);
Knowledge launch_waited(const Machine& machine);
uint64_t launch_waited_until(const Machine& machine);  // on a timeline
void launch_triggers(Warp& warp, uint32_t lanes);
// A cluster never starts: another one does its work.
void launch_cluster_cancelled(Machine& machine);
// A cluster has ended: true when its launch has.
bool launch_cluster_ended(Cluster& cluster);
// Lets lanes go on that wait for launches which have ended; false while some still run.
bool launch_released(Cluster& cluster);
void carry_out_copies(Cluster& cluster);

}  // namespace workbench::emulator::WORKBENCH_ISA
