// Races: conflicting accesses of which nothing says that one comes before the other.
//
// Happens-before by vector clocks. The agents are warps, and for each mbarrier the copy engine that fills
// what it announces. Every agent has a clock that goes up whenever it may have told others what it did;
// barriers, mbarriers, fences with flags and atomics hand on what one agent knows of the clocks of others.
// Within its cluster an agent knows the clocks of all; of other clusters, only what came through global
// memory. Memory keeps, for each granule (the smallest store of the program), the last write and what came
// since: the reads, and the atomic or volatile ("strong") accesses, which do not race with one another.
//
// Lanes of a warp share its clock. Between lanes order comes from bar.warp.sync and the other collectives
// with a member mask, and from barriers. What only some lanes have waited for (an mbarrier, a flag), the
// others know once these have joined them. What a lane hands on counts for its whole warp.
#pragma once

#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_map>

#include "memory.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

using Times = std::vector<uint32_t>;                           // clocks of the agents of a cluster
using Far = std::map<uint32_t, std::shared_ptr<const Times>>;  // what is known of other clusters

struct Clock {
  Times near;
  std::shared_ptr<const Far> far;
};

struct Knowledge {  // of an agent, or on its way in a barrier
  Clock now;
  Clock fenced_block, fenced_device;  // at the last fence of that scope: what a flag may hand on
};

struct Release {  // what a flag or an atomic hands on
  std::shared_ptr<const Far> device, block;
};

struct Record {  // an instruction that a warp executed, between two ticks of its clock
  uint32_t cluster;
  uint16_t agent, flags;
  uint32_t clock;
  int32_t pc;
};
struct Node {  // a set of accesses to a granule: one more than the parent
  uint32_t parent, entry;
  uint32_t length;
  bool strong_writes;
};

// An entry is a record and the lane: `record << 6 | lane`. A set of several entries is `kSet | node`.
constexpr uint32_t kSet = 1u << 31, kMostRecords = 1u << 25;
constexpr uint32_t kManyLanes = 32, kCollective = 33, kUnknownLane = 34;

struct RecordTable {
  std::vector<Record> records{Record{}};
  std::vector<Node> nodes{Node{}};
  std::unordered_map<uint64_t, uint32_t> transitions;  // (set, entry) to the set with both

  struct Recent {
    uint64_t key = 0;
    uint32_t to = 0;
  };
  static constexpr size_t kRecent = 512;
  std::vector<Recent> recent = std::vector<Recent>(kRecent);  // of the transitions, those used last
};

struct Shadow {
  uint32_t* last_write = nullptr;
  uint32_t* since = nullptr;
};

struct FreeShadow {
  void operator()(uint32_t* p) const { std::free(p); }
};

struct LaneKnowledge {
  uint32_t lanes;
  Knowledge known;
};

struct WarpRaces {
  Knowledge known;                    // to all lanes
  std::vector<LaneKnowledge> partly;  // to some
  Clock pending;                      // read from flags, but no fence has followed yet
  uint32_t pending_lanes = 0;         // that read it
  std::shared_ptr<const Far> last_acquired[2];
  uint32_t last_acquired_lanes[2] = {};
  uint32_t cluster = 0, agent = 0;
  uint32_t joined = 0;                                 // up to here all lanes know of each other
  std::vector<uint32_t> seen;                          // [lane][other]: and in part, up to there
  std::vector<uint32_t> shared_record, global_record;  // the newest, by instruction

  uint32_t now() const { return known.now.near[agent]; }
  void tick() { ++known.now.near[agent]; }
};

struct MbarrierKnowledge {
  Knowledge arriving, completed;
  uint32_t slot = 0;
};

struct BlockRaces {
  Times last_write, since;  // the shadow of shared memory
  Knowledge barriers[16], exited;
  std::unordered_map<uint32_t, MbarrierKnowledge> mbarriers;
};

struct ClusterRaces {
  RecordTable table;
  std::unordered_map<uint64_t, Release> releases;  // by rank and offset
  Knowledge arriving, completed;
  uint32_t agents = 0, next_slot = 0;
};

struct MachineRaces {
  int shared_shift = 2, global_shift = 2;
  bool locked = false;  // several host threads
  std::mutex mutex;
  RecordTable table;
  std::unordered_map<uint64_t, Release> releases;
  std::vector<std::unique_ptr<uint32_t, FreeShadow>> last_write, since;  // of each allocation, when touched
  std::vector<bool> guesses;  // instructions that load what a compare-and-swap compares with
};

void start_races(Machine& machine);
void start_races(Cluster& cluster, int64_t index);

// ---- accesses; each may fault

void race_shared(Warp& warp, const uint64_t* offset, uint32_t bytes, Access access, Pattern pattern);
void race_global(Warp& warp, const Allocation& allocation, const uint64_t* offset, uint32_t bytes,
                 Access access, Pattern pattern);
// A tensor core's reads, 16 bytes each. They last from the instruction to its wait: `begins` or ends.
void race_product(const Warp& warp, const std::vector<uint32_t>& addresses, bool begins);
void race_shared_run(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, Access access,
                     uint32_t lane);
void race_global_run(const Warp& warp, const Allocation& allocation, uint64_t offset, uint64_t bytes,
                     Access access, uint32_t lane);
// cp.async: what is overwritten counts when it is issued, what is written when it lands
void race_copy_issued(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint32_t lane);
void race_copy_landed(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint32_t lane, int pc);
// a bulk copy into shared memory: written by the copy engine, in this phase of its mbarrier
void race_bulk_issued(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint32_t lane,
                      Block& barrier_block, uint32_t barrier, uint64_t phase);
// Two lanes of one store that write different values to one place.
void race_same_instruction(const Warp& warp, uint8_t* const* pointer, const uint64_t* value,
                           const uint64_t* address, Space space, uint32_t bytes);

// ---- order

void race_fence(Warp& warp, int32_t flags);
void race_lanes_joined(Warp& warp, uint32_t lanes);
void race_released(Warp& warp, Space space, const uint64_t* address, int32_t flags, bool update);
void race_acquired(Warp& warp, Space space, const uint64_t* address, int32_t flags);
void race_arrive(Warp& warp, Knowledge& at);  // hands over what the warp knows
void race_learn(Warp& warp, const Knowledge& from, uint32_t lanes);
void race_barrier_completed(Block& block, int number, bool all);
void race_cluster_completed(ClusterRaces& races);
void race_exit(Warp& warp);
void race_mbarrier_initialised(Block& block, uint32_t offset);
void race_mbarrier_arrive(Warp& warp, Block& block, uint32_t offset);
void race_mbarrier_landed(const Warp& issuer, Block& block, uint32_t offset, uint64_t phase);
void race_mbarrier_completed(Block& block, uint32_t offset);
void race_mbarrier_passed(Warp& warp, uint32_t offset, uint32_t lanes);

}  // namespace workbench::emulator::WORKBENCH_ISA
