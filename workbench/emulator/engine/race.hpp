// Races: conflicting accesses of which nothing says that one comes before the other.
//
// Happens-before by vector clocks. The agents are warps, for each mbarrier the TMA unit that fills what it
// announces, and for each lane that issues bulk stores the one that carries them out. Every agent has a clock
// that goes up whenever it may have told others what it did; barriers, mbarriers, fences with flags and
// atomics hand on what one agent knows of the clocks of others. Within its cluster an agent knows the clocks
// of all; of other clusters, only what came through global memory. Memory keeps, for each granule (the
// smallest store of the program), the last write and what came since: the reads, and the atomic or volatile
// ("strong") accesses, which do not race with one another.
//
// In a cluster's clock agents are numbered so: its warps, kSlots TMA units, its warpgroups, and then lanes
// that have issued bulk stores, and other units, as they come.
//
// Lanes of a warp share its clock. Between lanes order comes from bar.warp.sync and the other collectives
// with a member mask, and from barriers. What only some lanes have waited for (an mbarrier, a flag), the
// others know once these have joined them. What a lane hands on counts for its whole warp; where it does so
// by arriving at an mbarrier, what other lanes have done since they met is told by the warp's lockstep alone:
// lane 5 stores, lane 0 arrives, and no __syncwarp() stands between (`race_lockstep`).
//
// A bulk copy into shared memory is a write by the TMA unit of its mbarrier, put down when it is issued, at
// the time of the phase that it completes (`race_bulk_issued`). It reads its source with what its issuer knew
// then. When it lands, the mbarrier learns the unit's clock (`race_mbarrier_landed`), when the phase
// completes, it hands that on, and who waits for the phase knows it. Whoever touches the bytes before the
// copy has landed is told by another checker (`in_flight`, memory.cpp).
//
// What has been found out once is kept in several places. Each says what holds for what it keeps, and
// INVARIANT asks whether it does, in the sanitized build.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_map>

#include "memory.hpp"

#ifdef WORKBENCH_INVARIANTS
#define INVARIANT(condition) ((condition) ? void() : std::abort())
#else
#define INVARIANT(condition) void()
#endif

namespace workbench::emulator::WORKBENCH_ISA {

using Times = std::vector<uint32_t>;                           // clocks of the agents of a cluster
using Far = std::map<uint32_t, std::shared_ptr<const Times>>;  // what is known of other clusters

struct Clock {
  Times near;
  std::shared_ptr<const Far> far;
};

struct Knowledge {  // of an agent, or on its way in a barrier
  Clock now;
  Clock fenced_block, fenced_cluster, fenced_device;  // at the last fence of that scope: what a flag hands on
  Clock proxied;      // what a fence.proxy.async put before later accesses of the async proxy
  Clock initialised;  // what a fence.mbarrier_init told of initialised mbarriers
};

struct NearRelease {  // by threads of one block
  uint32_t rank;
  std::shared_ptr<const Far> block, cluster;  // to these, and to all of their cluster
};
struct Release {  // what a flag or an atomic hands on
  std::shared_ptr<const Far> device, proxied;
  std::unordered_map<uint32_t, std::vector<NearRelease>> near;  // by cluster, where a scope is narrow
};

// How far a scope reaches.
enum Reach : int { kBlockReach, kClusterReach, kDeviceReach };
// Of what relaxed loads have read of other clusters: it takes a fence of the device, and a barrier is none.
// One thread polls, bar.sync, another reads: that is no order without a fence.gpu.
constexpr int kPolled = kDeviceReach + 1;
inline Reach reach_of(int32_t flags) {
  const int scope = (flags & kScopeMask) >> kScopeShift;
  return scope == 1 ? kBlockReach : scope == 2 ? kClusterReach : kDeviceReach;
}

// A plain read next to a compare-and-swap is how the swap's first guess is usually made. Where what it reads
// is compared with, it is not reported.
enum RecordFlag : uint16_t {
  kWrite = 1,
  kStrong = 2,
  kCompareSwap = 4,
  kGuess = 8,
  kBlockScope = 16,    // strong towards its own block only
  kClusterScope = 32,  // towards its cluster
  kNonCoherent = 64,   // a load that need not see any store of the launch
  kReset = 128,        // a strong store of what nobody has looked at: no update goes with it in any order
};
constexpr uint16_t kNarrowScope = kBlockScope | kClusterScope;

// How a tensor copy swizzles what it writes: the bytes / 32 + 1, in the upper byte of its record's flags.
constexpr int kSwizzleShift = 8;
inline uint16_t swizzle_flags(int bytes) {  // < 0: it is no tensor copy
  return static_cast<uint16_t>(bytes < 0 ? 0 : (bytes / 32 + 1) << kSwizzleShift);
}

struct Record {  // an instruction that a warp executed, between two ticks of its clock
  uint32_t cluster;
  uint16_t agent, flags;
  uint32_t clock;
  int32_t pc;
  uint32_t lanes = ~0u;  // that read, where an entry says that they are many; of a bulk store: whose it is
};
struct Node {  // a set of accesses to a granule: one more than the parent
  uint32_t parent, entry;
  uint32_t length;
  bool strong_writes;
  bool of_one_warp;  // and its lanes are known
};

// An entry is a record and the lane: `record << 6 | lane`. A set of several entries is `kSet | node`.
// Beyond kMostRecords an access is neither checked nor kept: races are missed then, and none is invented.
constexpr uint32_t kSet = 1u << 31, kMostRecords = 1u << 25;
constexpr uint32_t kManyLanes = 32, kCollective = 33, kUnknownLane = 34;

// Of a cell that atomics have updated since the last plain store: who has read what the newest of them left.
// Who comes after such a read comes after all of these updates, too: what is observed comes before what
// follows the observation (PTX 8.9.5). Of what the updating threads did before, that says nothing.
struct Observed {
  bool updated = false;  // at all
  bool broken = false;  // a strong store has replaced what an update left: no later read observes that update
  std::vector<uint32_t> by;  // entries of the reads
};

struct RecordTable {
  std::vector<Record> records{Record{}};
  std::vector<Node> nodes{Node{}};
  // (set, entry) to the set with both, but for what comes before the entry in all that conflicts with either
  std::unordered_map<uint64_t, uint32_t> transitions;
  std::unordered_map<uint64_t, uint32_t> by_many;   // (entry, lanes) to the entry of these lanes
  std::unordered_map<uint64_t, Observed> observed;  // by place

  struct Recent {
    uint64_t key = 0;
    uint32_t to = 0;
  };
  static constexpr size_t kRecent = 512;
  std::vector<Recent> recent = std::vector<Recent>(kRecent);  // of the transitions, those used last
};

// The accesses to memory, a cell of each for a granule: 0, an entry, or `kSet | node` of several.
// `last_write` has the newest plain write, `since` the reads and strong accesses after it.
struct Shadow {
  Cells<uint32_t> last_write, since;
};

struct FreeShadow {
  size_t mapped = 0;  // bytes
  void operator()(uint32_t* p) const;
};

struct LaneKnowledge {
  uint32_t lanes;
  Knowledge known;
};

struct Unfenced {  // what lanes have read of flags or mbarriers, with no fence since
  uint32_t lanes;
  Knowledge known[kPolled + 1];  // what a fence takes that reaches at least so far
};

constexpr uint32_t kRecentlyBefore = 128;

// The newest arrivals of lanes at mbarriers. Each comes between two ticks, so that who knows the warp's clock
// up to its time has learnt it from there. What a lane did is told in its own name up to `all`, where every
// lane's was, or up to its time in `lanes`, when it arrived itself, or one that knew of it.
struct Arrivals {
  static constexpr uint32_t kKept = 64;
  uint32_t all = 0, lanes[kLanes] = {}, count = 0;
  struct Arrival {
    uint32_t all, lanes[kLanes];
  };
  uint32_t clock[kKept] = {};
  std::vector<Arrival> kept;

  const Arrival* at(uint32_t time) const {
    for (uint32_t k = 1; k <= std::min(count, kKept); ++k) {  // the newest first: clocks only grow
      const uint32_t place = (count - k) % kKept;
      if (clock[place] <= time) return clock[place] == time ? &kept[place] : nullptr;
    }
    return nullptr;
  }
};

struct Overwrite {  // of what another store has written: a race, unless it stores the same
  Fault fault;
  const uint8_t* bytes;
  uint8_t before[16];
  uint32_t count;
};

// How lanes read what others have released: a fence takes what they need one for.
enum Acquires : int { kAtOnce, kByAtomic, kByLoad };
struct LastAcquired {  // the lanes know it, or it waits for a fence of that reach to take it
  std::shared_ptr<const Far> from;
  uint32_t lanes = 0;
};

struct Published {
  Clock clock;
  std::shared_ptr<const Far> all;  // what that tells others
};

struct WarpRaces {
  bool storing = false;               // plain values, which are compared with those that they race with
  std::vector<Overwrite> overwrites;  // by the store being executed
  Knowledge known;                    // to all lanes
  Times met;  // what was known to those who came to the cluster barriers that this warp has left
  std::vector<LaneKnowledge> partly;  // to some
  std::vector<Unfenced> unfenced;
  LastAcquired last_acquired[kByLoad + 1][kDeviceReach + 1];
  Published published[kDeviceReach + 1], published_proxied;
  std::shared_ptr<const Far> last_proxied;  // of what has been read: `known.proxied` includes it
  bool as_issued = false;  // a copy goes on in the warp's name: known is what was known when it began,
  uint32_t copier = 0, copied = 0;  // and it reads as this agent, at this time
  uint32_t cluster = 0, agent = 0;
  uint32_t first_cluster = 0, clusters = 0;  // of its launch
  const LaunchSeries* series = nullptr;
  uint32_t storers[kLanes] = {};    // agents of the lanes' bulk stores, or 0
  uint32_t joined = 0;              // up to here all lanes know of each other
  uint32_t joined_initialised = 0;  // and of each other's mbarriers
  std::vector<uint32_t> seen;       // [lane][other]: and in part, up to there
  Arrivals arrivals;
  std::vector<uint32_t> shared_record, global_record;  // the newest, by instruction; each says whose it is

  // Records that come before whatever all lanes do from now on, or have been blamed, by their number modulo
  // the size.
  uint32_t shared_before[kRecentlyBefore], global_before[kRecentlyBefore];

  uint32_t now() const { return known.now.near[agent]; }
  void tick() { ++known.now.near[agent]; }
};

struct LastUse {  // the newest one by an agent
  uint32_t clock = 0;
  int32_t pc = -1, warp = -1, lane = -1;
  int64_t block = -1;
  uint32_t address = 0;
};

struct MbarrierKnowledge {
  Knowledge arriving, completed;
  uint32_t slot = 0;
  Record initialised{};  // by which instruction
  uint32_t lane = 0;
  std::vector<uint8_t> visible;  // to an agent for good, or blamed; see Visible in visibility.cpp
  std::vector<LastUse> uses;     // by every agent
};

// The shadow of 32 bytes of shared memory that all fare alike, as those do that bulk copies write and tensor
// cores read; else kSpread, and their granules have one each.
struct LineShadow {
  uint32_t last_write, since;
};
constexpr uint32_t kLineBytes = 32, kSpread = ~0u;

struct BlockRaces {
  StoredCells<uint32_t> last_write, since;  // the shadow of shared memory, by granule
  StoredCells<LineShadow> lines;            // none where nothing is copied in bulk
  Knowledge barriers[16], exited;
  std::unordered_map<uint32_t, MbarrierKnowledge> mbarriers;
  std::vector<LastUse> guests;  // of this shared memory: agents of other blocks, and TMA units
};

struct ClusterRaces {
  RecordTable table;
  std::unordered_map<uint64_t, Release> releases;  // by rank and offset
  Knowledge arriving, completed;
  Times meeting, met;  // what warps know that come to the cluster barrier, relaxed or not, and have come
  uint32_t agents = 0, next_slot = 0, next_storer = 0;
  bool lanes_arrive = false;  // any has arrived at an mbarrier: only then some warp has arrivals
};

struct MachineRaces {
  int shared_shift = 2, global_shift = 2;
  bool locked = false;                           // several host threads
  bool narrow_scopes = false, observes = false;  // of the code of any launch, see Code
  std::mutex mutex;
  RecordTable table;
  std::unordered_map<uint64_t, Release> releases;
  std::vector<std::unique_ptr<uint32_t, FreeShadow>> last_write, since;  // of each allocation, when touched
};

// The shadow of an allocation, the k-th: cells of what has been touched.
inline Shadow global_shadow(const MachineRaces& races, const Allocation& allocation, size_t k) {
  const uint64_t cells = (allocation.bytes >> races.global_shift) + 1;
  return {{races.last_write[k].get(), cells}, {races.since[k].get(), cells}};
}

void find_granules(const Program& program, Code& code);
void find_guesses(const Program& program, Code& code);
void find_record_flags(const Program& program, Code& code);
void start_races(Machine& machine);
void start_races(Cluster& cluster, int64_t index);

int64_t block_id(const uint32_t* grid, const uint32_t* cluster_shape, uint32_t cluster, uint32_t rank);

// The shadow of these bytes by granule, also if it was one of whole lines.
Shadow shadow_of(const Machine& machine, BlockRaces& races, uint64_t offset, uint64_t bytes);

// ---- accesses; each may fault

// After a store: what it has overwritten with another value is a race.
void race_stored(Warp& warp);

void race_shared(Warp& warp, const uint64_t* offset, uint32_t bytes, Access access, Pattern pattern);
void race_global(Warp& warp, const Allocation& allocation, const uint64_t* offset, uint32_t bytes,
                 Access access, Pattern pattern);
// A tensor core's reads. They last from the instruction to its wait: `begins` or ends.
void race_product(const Warp& warp, const std::vector<SharedRun>& runs, bool begins);
// The end of them, which all four warps of a warpgroup have in common: who has waited knows of it. Its time.
uint32_t race_products_end(Warp& warp);
void race_products_read(const Warp& warp, const std::vector<SharedRun>& runs, uint32_t time);
void race_shared_run(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, Access access,
                     uint32_t lane);
void race_global_run(const Warp& warp, const Allocation& allocation, uint64_t offset, uint64_t bytes,
                     Access access, uint32_t lane);
// cp.async: what is overwritten counts when it is issued, what is written when it lands
void race_copy_issued(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint32_t lane);
void race_copy_landed(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint32_t lane, int pc);
// a bulk copy into shared memory: written by TMA, in this phase of its mbarrier
void race_bulk_issued(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint32_t lane,
                      Block& barrier_block, uint32_t barrier, uint64_t phase, int swizzle);
// A tensor map in global memory that a copy uses until it lands: a load, on an mbarrier, or a store.
void race_map_loads(const Warp& warp, uint64_t map, Block& barrier_block, uint32_t barrier, uint64_t phase);
void race_map_stores(Warp& warp, uint64_t map, uint32_t lane);
// A bulk store to global memory: what it does to these bytes lasts from its issue until its group is waited
// for.
void race_store_issued(Warp& warp, const Allocation& allocation, uint64_t offset, uint64_t bytes,
                       Access access, uint32_t lane);
// The lanes' groups but for the newest `left` have been written.
void race_stores_done(Warp& warp, uint32_t lanes, uint32_t left);
// Two lanes of one store that write different values to one place.
void race_same_instruction(const Warp& warp, uint8_t* const* pointer, const uint64_t* value,
                           const uint64_t* address, Space space, uint32_t bytes);

// A copy is issued: what it does comes after what the lane knows now, whatever the warp does meanwhile. Null
// where races are not looked for.
std::shared_ptr<const Clock> race_issued(Warp& warp, uint32_t lane);
// The TMA unit that it is for those who wait at an mbarrier for it.
uint32_t race_copier(const Block& block, uint32_t barrier);

// ---- order

void race_fence(Warp& warp, int32_t flags);
void race_lanes_joined(Warp& warp, uint32_t lanes);
void race_initialised_joined(Warp& warp);  // of what their fences for mbarriers have told
void race_released(Warp& warp, Space space, const uint64_t* address, int32_t flags, bool update);
void race_acquired(Warp& warp, Space space, const uint64_t* address, int32_t flags, bool by_load);
// Held while an atomic updates memory and says so: host threads agree on the order of updates.
std::unique_lock<std::mutex> race_in_order(const Warp& warp);
// A strong access has been made: of an atomic under the lock above.
void race_observed(Warp& warp, Space space, const uint64_t* address, uint32_t bytes, Access access);
void race_arrive(Warp& warp, Knowledge& at);  // hands over what the warp knows
// Hands on what fences of a scope have ordered.
void race_arrive_relaxed(Warp& warp, Knowledge& at, const Clock& fenced);
void race_learn(Warp& warp, const Knowledge& from, uint32_t lanes);
void race_barrier_completed(Block& block, int number, bool all);
void race_cluster_completed(ClusterRaces& races);
// A warp comes to a cluster barrier, or leaves one: devices execute one after the other, relaxed or not.
void race_meets(const Warp& warp);
void race_met(Warp& warp);
inline bool has_met(const WarpRaces& warp, uint32_t agent, uint32_t time) {
  return agent < warp.met.size() && warp.met[agent] >= time;
}
void race_exit(Warp& warp);
void race_mbarrier_initialised(const Warp& warp, Block& block, uint32_t offset, int lane);
inline bool is_relaxed(int32_t flags) { return (flags & kOrderMask) == 1; }
void race_mbarrier_arrive(Warp& warp, Block& block, uint32_t offset, int32_t flags, uint32_t lane);
void race_mbarrier_landed(const Warp& issuer, Block& block, uint32_t offset, uint64_t phase);
void race_mbarrier_completed(Block& block, uint32_t offset);
void race_mbarrier_passed(Warp& warp, uint32_t offset, uint32_t lanes, int32_t flags);

// ---- for asynchronous units

// An agent that executes what a thread hands to a unit. Its clock is the unit's own.
uint32_t race_new_executor(Cluster& cluster);
// A unit reads shared memory of a block for a lane: from now on until its agent has come to this time.
void race_unit_reads(Warp& warp, Block& block, const std::vector<SharedRun>& runs, uint32_t lane,
                     uint32_t executor, uint32_t time);
// The agent has come to this time, and an mbarrier is told, of what was known when the work was issued, too.
void race_unit_done(Block& block, uint32_t barrier, uint32_t executor, uint32_t time, const Clock& issued);

// ---- what has to be visible, in visibility.cpp

// Whether an agent's clock had come so far when this was learnt.
inline bool knows(const Clock& clock, uint32_t own_cluster, uint32_t cluster, uint32_t agent, uint32_t time) {
  if (cluster == own_cluster) return agent < clock.near.size() && clock.near[agent] >= time;
  if (!clock.far) return false;
  const auto found = clock.far->find(cluster);
  return found != clock.far->end() && agent < found->second->size() && (*found->second)[agent] >= time;
}
// The same for the lanes of a warp: whether any of them knows.
inline bool some_lane_knows(const WarpRaces& warp, uint32_t cluster, uint32_t agent, uint32_t time) {
  if (knows(warp.known.now, warp.cluster, cluster, agent, time)) return true;
  for (const LaneKnowledge& part : warp.partly)
    if (knows(part.known.now, warp.cluster, cluster, agent, time)) return true;
  return false;
}
// Whether a record is one of another launch.
inline bool of_other_launch(const WarpRaces& warp, const Record& record) {
  return record.cluster - warp.first_cluster >= warp.clusters;
}
// Up to when a lane knows of another's accesses in its warp.
uint32_t race_lanes_seen(const WarpRaces& warp, uint32_t lane, uint32_t other);
void race_join(Knowledge& to, const Knowledge& from);

void race_proxy_fence(Warp& warp);
void race_mbarrier_fence(Warp& warp);
// Of what the async proxy is about to use: faults where a store of the generic proxy came before and no proxy
// fence in between.
void require_proxied(const Warp& warp, const Record& written, uint32_t by, Space space, uint64_t address,
                     int lane);
void proxy_reads_shared(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, int lane);
// What a tensor copy has written must be read with its swizzle; or, `landed`, one that has been waited for.
void require_swizzle(const Warp& warp, uint32_t address, int swizzle, bool landed = false);
// The same as for shared memory; false when there is nothing in the allocation that could fail.
bool proxy_reads_global(const Warp& warp, uint64_t address, uint64_t bytes, int lane);
// Of a tensor map in global memory whose bytes these are: that the block has acquired it, if the launch has
// written it.
void require_acquired(const Warp& warp, uint64_t address, const TensorMapBytes& bytes, int lane);
// A use of an mbarrier, by a thread or by a copy that it asks for: faults unless its initialisation is
// visible. True when the warp's other lanes need not be asked.
bool race_mbarrier_used(const Warp& warp, Block& block, uint32_t offset, int lane, bool by_copy);
// A use of an mbarrier whose byte `changed` has been overwritten: blames the write, where it is known.
[[noreturn]] void race_mbarrier_overwritten(const Warp& warp, Block& block, uint32_t offset, uint32_t changed,
                                            int32_t initialised, int lane);
// The barrier goes away: every use must come before.
void race_mbarrier_gone(const Warp& warp, Block& block, uint32_t offset, int lane);
// Another block's shared memory is used, or a copy on its way into a block's: its end must come later.
void race_guest(const Warp& warp, Block& block, uint32_t address, int lane);
void race_guest_copy(const Warp& warp, Block& block, uint32_t offset, int lane, uint32_t slot,
                     uint64_t phase);
// A copy on its way reads the shared memory of a block, which therefore must not go before this phase has
// ended.
void race_copy_source(const Warp& warp, Block& block, uint32_t offset, int lane, Block& barrier_block,
                      uint32_t barrier, uint64_t phase);
void race_block_exited(const Warp& warp, Block& block);

}  // namespace workbench::emulator::WORKBENCH_ISA
