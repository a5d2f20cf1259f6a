#include "race.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "launches.hpp"
#include "scheduler.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr uint32_t kSlots = 32;        // of TMA units in a cluster; further mbarriers share them
constexpr uint32_t kStorers = 32;      // of those that carry out bulk stores; further lanes share them
constexpr size_t kMostSuspected = 32;  // races that are not reported yet, of different lines
// Entries of a set: up to kWalked those that a new one makes needless are left out; of one with kLongest the
// newest accesses are not kept, so that races with these are missed.
constexpr uint32_t kWalked = 64, kLongest = 4096;

// In the flags of a record, above how a copy swizzles: no atomic, and strong for being volatile only.
constexpr uint16_t kOnlyVolatile = 1 << 12;
// And a volatile load that polls nothing, as no branch depends on it.
constexpr uint16_t kSample = 1 << 13;

// Of lanes that read one element after the other, the entry says just that. What its record has in place of
// lanes, the bytes of an element and where lane 0 reads, modulo 32 elements, tells which lane it was.
constexpr uint32_t kInTurn = 35, kNoTurn = ~0u;
// Of an element that several lanes access at once the entry says that they are more than one.
constexpr uint32_t kSeveral = 36;
uint32_t turn_of(uint64_t address, uint32_t lane, uint32_t bytes) {
  return static_cast<uint32_t>((address - lane * bytes) % (bytes * kLanes)) << 8 | bytes;
}
uint32_t lane_in_turn(uint32_t turn, uint64_t address) {
  const uint64_t bytes = turn & 0xff;
  return static_cast<uint32_t>((address - (turn >> 8)) / bytes % kLanes);
}

uint32_t warpgroups_of(const Machine& machine) { return (machine.warps_per_block + 3) / 4; }

size_t agents_of(uint32_t cluster_size, uint32_t warps) {  // warps, TMA units and warpgroups; storers follow
  return cluster_size * (warps + (warps + 3) / 4) + kSlots;
}
size_t agents_of(const Machine& machine) { return agents_of(machine.cluster_size, machine.warps_per_block); }

// Whether others than warps, TMA units and warpgroups carry something out.
bool has_executors(const Machine& machine) {
  return machine.prepared->stores_in_bulk || !machine.prepared->units.empty();
}

// A race that is not reported yet.
void suspect(Cluster& cluster, const Fault& fault) {
  if (cluster.suspected.kind != FaultKind::race && fault.kind == FaultKind::race) {
    cluster.suspected = fault;
    return;
  }
  auto& more = cluster.more_suspected;
  const auto same = [&](const Fault& f) {
    return f.kind == fault.kind && f.pc == fault.pc && f.other_pc == fault.other_pc;
  };
  if (more.size() < kMostSuspected && !same(cluster.suspected) &&
      std::none_of(more.begin(), more.end(), same))
    more.push_back(fault);
}

// Reports the race, but not yet that of two lanes of a warp: where other warps race for the same, it takes
// more than what puts lanes in order. Nor while part of a warp waits at a barrier for the rest: where that
// does not come, this is what the race comes from. The cluster goes on, so that they have their turn.
void raise_race(const Warp& warp, const Fault& fault) {
  Cluster& cluster = *warp.block->cluster;
  if (fault.other_launch >= 0) return report(cluster, fault);
  const bool of_lanes =
      fault.other_block == fault.block && fault.other_warp == fault.warp && !(fault.info & kAsynchronous);
  if (of_lanes && fault.kind == FaultKind::race) return suspect(cluster, fault);
  if (of_lanes || !barriers_lack_lanes(cluster)) {
    if (!cluster.suspected_at.empty()) cluster.report_suspected();  // which came first
    return report(cluster, fault);
  }
  if (cluster.suspected_at.empty() && fault.kind == FaultKind::race) {
    const Fault of_lanes_before = std::exchange(cluster.suspected, fault);
    cluster.suspected_at = cluster.waiting();
    if (of_lanes_before.kind == FaultKind::race) suspect(cluster, of_lanes_before);
    return;
  }
  suspect(cluster, fault);
}

// ---- clocks

void join(Times& a, const Times& b) {
  if (a.size() < b.size()) a.resize(b.size());
  for (size_t k = 0; k < b.size(); ++k) a[k] = std::max(a[k], b[k]);
}

std::shared_ptr<const Times> later(const std::shared_ptr<const Times>& a,
                                   const std::shared_ptr<const Times>& b) {
  if (a == b) return a;
  auto both = std::make_shared<Times>(*a);
  join(*both, *b);
  return both;
}

bool includes(const Times& a, const Times& b) {
  for (size_t k = 0; k < b.size(); ++k)
    if (b[k] > (k < a.size() ? a[k] : 0)) return false;
  return true;
}

bool includes(const Far& a, const Far& b) {
  return std::all_of(b.begin(), b.end(), [&](const auto& other) {
    const auto found = a.find(other.first);
    return found != a.end() && (found->second == other.second || includes(*found->second, *other.second));
  });
}

// What is included already makes no new copy: who has read the old one knows by its address that it has.
void join(std::shared_ptr<const Far>& a, const std::shared_ptr<const Far>& b) {
  if (!b || a == b || (a && includes(*a, *b))) return;
  if (!a) {
    a = b;
    return;
  }
  auto both = std::make_shared<Far>(*a);
  for (const auto& [cluster, times] : *b) {
    auto [place, added] = both->try_emplace(cluster, times);
    if (!added) place->second = later(place->second, times);
  }
  a = both;
}

void join(Clock& a, const Clock& b) {
  join(a.near, b.near);
  join(a.far, b.far);
}

void join(Knowledge& a, const Knowledge& b) {
  join(a.now, b.now);
  join(a.fenced_block, b.fenced_block);
  join(a.fenced_cluster, b.fenced_cluster);
  join(a.fenced_device, b.fenced_device);
  join(a.proxied, b.proxied);
  join(a.initialised, b.initialised);
}

// Whether what is known includes that the launch of another's record has ended.
bool knows_end(const WarpRaces& warp, const Clock& clock, const Record& record) {
  return clock.far && of_other_launch(warp, record) &&
         clock.far->count(warp.series->of_cluster(record.cluster).end());
}

__attribute__((noinline)) bool knows_afar(const WarpRaces& warp, const Clock& clock, const Record& record) {
  return knows(clock, warp.cluster, record.cluster, record.agent, record.clock) ||
         knows_end(warp, clock, record);
}
bool knows(const WarpRaces& warp, const Clock& clock, const Record& record) {
  if (record.cluster != warp.cluster) return knows_afar(warp, clock, record);
  return record.agent < clock.near.size() && clock.near[record.agent] >= record.clock;
}

bool ordered(const WarpRaces& warp, const Record& record) { return knows(warp, warp.known.now, record); }

// The same for one lane, or for what a whole warp does together.
bool ordered(const Warp& warp, const Record& record, uint32_t lane) {
  const WarpRaces& own = *warp.races;
  if (ordered(own, record)) return true;
  uint32_t know = 0;
  for (const LaneKnowledge& part : own.partly)
    if (knows(own, part.known.now, record)) know |= part.lanes;
  return lane < kLanes ? know >> lane & 1 : know && !(warp.alive & ~know);
}

// What every lane has learnt by itself, all know: lanes that have come apart wait one after the other.
void settle(Warp& warp) {
  WarpRaces& own = *warp.races;
  uint32_t covered = 0;
  for (const LaneKnowledge& part : own.partly) covered |= part.lanes;
  if ((covered & warp.alive) != warp.alive) return;
  Times common;
  for_lanes(warp.alive, [&](int l) {
    Times times;
    for (const LaneKnowledge& part : own.partly)
      if (part.lanes >> l & 1) join(times, part.known.now.near);
    if (l == __builtin_ctz(warp.alive)) common = times;
    common.resize(std::min(common.size(), times.size()));
    for (size_t k = 0; k < common.size(); ++k) common[k] = std::min(common[k], times[k]);
  });
  join(own.known.now.near, common);
  const auto known_to_all = [&](const LaneKnowledge& part) {
    const Times &all = own.known.now.near, &some = part.known.now.near;
    for (size_t k = 0; k < some.size(); ++k)
      if (some[k] > all[k]) return false;
    if (part.known.now.far && part.known.now.far != own.known.now.far) return false;
    join(own.known.fenced_block, part.known.fenced_block);
    join(own.known.fenced_cluster, part.known.fenced_cluster);
    join(own.known.fenced_device, part.known.fenced_device);
    return true;
  };
  own.partly.erase(std::remove_if(own.partly.begin(), own.partly.end(), known_to_all), own.partly.end());
}

// Lanes hear what their own warp had done when it told others.
void hear_back(const Warp& warp, WarpRaces& own, uint32_t clock, uint32_t lanes) {
  if (clock <= own.joined) return;
  if ((lanes & warp.alive) == warp.alive) {
    own.joined = clock;
    return;
  }
  if (own.seen.empty()) own.seen.assign(kLanes * kLanes, 0);
  for_lanes(lanes, [&](int l) {
    for (size_t other = 0; other < kLanes; ++other) {
      uint32_t& seen = own.seen[static_cast<size_t>(l) * kLanes + other];
      seen = std::max(seen, clock);
    }
  });
}

// What some lanes have learnt.
void learn(Warp& warp, const Knowledge& from, uint32_t lanes) {
  WarpRaces& own = *warp.races;
  if (own.agent < from.now.near.size()) hear_back(warp, own, from.now.near[own.agent], lanes);
  if ((lanes & warp.alive) == warp.alive) return join(own.known, from);
  join(own.known.proxied, from.proxied);  // fences are followed by warp
  join(own.known.initialised, from.initialised);
  const auto same = std::find_if(own.partly.begin(), own.partly.end(),
                                 [&](const LaneKnowledge& part) { return part.lanes == lanes; });
  if (same == own.partly.end())
    own.partly.push_back({lanes, from});
  else
    join(same->known, from);
  settle(warp);
}

// Lanes tell each other what they know.
void share(Warp& warp, uint32_t lanes) {
  WarpRaces& own = *warp.races;
  if (own.partly.empty()) return;
  Knowledge shared;
  for (size_t k = own.partly.size(); k-- > 0;) {
    if (!(own.partly[k].lanes & lanes)) continue;
    join(shared, own.partly[k].known);
    if (!(own.partly[k].lanes & ~lanes & warp.alive))
      own.partly.erase(own.partly.begin() + static_cast<std::ptrdiff_t>(k));
  }
  if (!shared.now.near.empty() || shared.now.far) learn(warp, shared, lanes);
}

// What some lane or other knows: what any of them may hand on.
void tell_of_lanes(const WarpRaces& own, Knowledge& at) {
  join(at, own.known);
  for (const LaneKnowledge& part : own.partly) join(at, part.known);
}
// All lanes have told of what they had done by then.
void told_by_all(WarpRaces& own, uint32_t time) {
  own.arrivals.all = std::max({own.arrivals.all, own.joined, time});
}
void tell(const Warp& warp, Knowledge& at) {
  tell_of_lanes(*warp.races, at);
  told_by_all(*warp.races, warp.races->now());
}
Clock known_to_some(const Warp& warp) {
  Clock all = warp.races->known.now;
  for (const LaneKnowledge& part : warp.races->partly) join(all, part.known.now);
  return all;
}

// Up to when a lane knows of another's accesses, or of all lanes'.
uint32_t seen(const WarpRaces& warp, uint32_t lane, uint32_t other) {
  uint32_t clock = warp.joined;
  if (warp.seen.empty()) return clock;
  const auto of = [&](uint32_t a, uint32_t b) {
    return a == b ? ~0u : std::max(warp.joined, warp.seen[a * kLanes + b]);
  };
  if (lane < kLanes && other < kLanes) return of(lane, other);
  clock = ~0u;
  for (uint32_t a = lane < kLanes ? lane : 0; a < (lane < kLanes ? lane + 1 : kLanes); ++a)
    for (uint32_t b = other < kLanes ? other : 0; b < (other < kLanes ? other + 1 : kLanes); ++b)
      clock = std::min(clock, of(a, b));
  return clock;
}

// A lane arrives at an mbarrier: it tells of itself, and of what it knows of other lanes.
void note_arrival(WarpRaces& own, uint32_t lane) {
  Arrivals& arrivals = own.arrivals;
  told_by_all(own, 0);
  arrivals.lanes[lane] = own.now();
  if (!own.seen.empty())
    for (uint32_t other = 0; other < kLanes; ++other)
      if (other != lane) arrivals.lanes[other] = std::max(arrivals.lanes[other], seen(own, lane, other));
  arrivals.kept.resize(Arrivals::kKept);
  const uint32_t place = arrivals.count++ % Arrivals::kKept;
  arrivals.clock[place] = own.now();
  arrivals.kept[place].all = arrivals.all;
  std::copy_n(arrivals.lanes, kLanes, arrivals.kept[place].lanes);
}

bool is_polled(const Unfenced& part) { return part.known[kPolled].now.far != nullptr; }

// A fence, or what counts as one, in these lanes. What has been polled takes a fence of the device itself.
void take_unfenced(Warp& warp, uint32_t lanes, int reach = kDeviceReach) {
  WarpRaces& own = *warp.races;
  if (own.unfenced.empty()) return;
  bool some = false;
  for (Unfenced& part : own.unfenced) {
    const uint32_t here = part.lanes & lanes;
    if (!here) continue;
    some = true;
    for (int r = kBlockReach; r <= reach; ++r) learn(warp, part.known[r], here);
    if (reach == kPolled || (reach == kDeviceReach && !is_polled(part))) part.lanes &= ~here;
  }
  if (!some) return;
  own.unfenced.erase(std::remove_if(own.unfenced.begin(), own.unfenced.end(),
                                    [](const Unfenced& part) { return part.lanes == 0; }),
                     own.unfenced.end());
  own.tick();
}

// What lanes have read without a fence. Of many sets of lanes, some are taken together.
void add_unfenced(WarpRaces& own, const Knowledge& known, uint32_t lanes, int reach) {
  constexpr size_t kMostSets = 64;
  for (Unfenced& part : own.unfenced)
    if (part.lanes == lanes) return join(part.known[reach], known);
  if (own.unfenced.size() < kMostSets) own.unfenced.push_back({lanes, {}});
  own.unfenced.back().lanes |= lanes;
  join(own.unfenced.back().known[reach], known);
}

void polled_by(const WarpRaces& own, uint32_t lanes, Knowledge& at) {
  for (const Unfenced& part : own.unfenced)
    if (part.lanes & lanes) join(at.now.far, part.known[kPolled].now.far);
}

}  // namespace

void FreeShadow::operator()(uint32_t* p) const {
  if (mapped)
    ::munmap(p, mapped);
  else
    std::free(p);
}

int64_t block_id(const uint32_t* grid, const uint32_t* cluster_shape, uint32_t cluster, uint32_t rank) {
  int64_t id = 0, stride = 1, left = cluster, within = rank;
  for (int d = 0; d < 3; ++d) {
    const int64_t clusters = grid[d] / cluster_shape[d];
    id += stride * (left % clusters * cluster_shape[d] + within % cluster_shape[d]);
    left /= clusters;
    within /= cluster_shape[d];
    stride *= grid[d];
  }
  return id;
}

namespace {

// ---- one access, to any number of granules

uint32_t new_record(RecordTable& table, const Record& record) {
  if (table.records.size() >= kMostRecords) return 0;
  table.records.push_back(record);
  return static_cast<uint32_t>(table.records.size() - 1);
}

template <bool kShared>
class Touch {
 public:
  // A `proxied` one also asks whether stores are visible to the async proxy.
  Touch(const Warp& warp, RecordTable& table, Shadow shadow, int shift, uint64_t base, uint32_t record,
        bool proxied = false)
      : warp_(warp),
        own_(*warp.races),
        table_(table),
        last_write_(shadow.last_write.begin()),
        since_(shadow.since.begin()),
        cells_(shadow.since.count()),
        shift_(shift),
        base_(base),
        record_(record),
        flags_(table.records[record].flags),
        fine_(kShared ? warp.races->shared_before : warp.races->global_before) {
    // what only some lanes know, or what only this access may disregard, is no good to others
    if (!own_.partly.empty() || own_.as_issued || (flags_ & (kStrong | kNonCoherent)) || proxied) {
      fine_ = own_fine_;
      kept_ = kOwnKept;
      forget();
    }
  }

  // Which lanes the reads and the updates of global memory that follow are by.
  void reads_by(uint32_t lanes) { readers_ = lanes; }
  // Lanes that access one element after the other; `lane` is the first one.
  void access_in_turn(uint64_t offset, uint64_t bytes, uint32_t lane, uint32_t element_bytes) {
    first_lane_ = lane;
    element_bytes_ = element_bytes;
    access(offset, bytes, kUnknownLane);
    element_bytes_ = 0;
  }
  void access(uint64_t offset, uint64_t bytes, uint32_t lane) {
    if (!own_.partly.empty()) forget();  // what one lane knows, another may not
    start_ = offset;
    uint64_t cell = offset >> shift_;
    const uint64_t end = end_of(offset, bytes);
    for (; cell + kRun <= end; cell += kRun)
      if (alike(since_ + cell) && (!last_write_ || alike(last_write_ + cell)) && !depends_on_lane(cell)) {
        access_cell(cell, lane);  // what one instruction wrote is often read by one, too
        repeat(since_ + cell);
        if (flags_ == kWrite) repeat_write(cell, lane);
      } else {
        for (uint64_t k = 0; k < kRun; ++k) access_cell(cell + k, lane);
      }
    for (; cell < end; ++cell) access_cell(cell, lane);
  }
  // A read by another agent, on behalf of the warp.
  void add_read(uint64_t offset, uint64_t bytes) {
    const uint64_t end = end_of(offset, bytes);
    const uint32_t mine = record_ << 6 | kUnknownLane;
    for (uint64_t cell = offset >> shift_; cell < end; ++cell)
      since_[cell] = since_[cell] ? transition(since_[cell], mine) : mine;
  }
  // Every active lane's own granules, in one line.
  void access_each(const uint64_t* offset, uint32_t bytes, uint32_t lanes) {
    if (!own_.partly.empty() || (flags_ & ~kWrite))
      return for_lanes(lanes, [&](int l) { access(offset[l], bytes, static_cast<uint32_t>(l)); });
    switch (bytes >> shift_) {
      case 0:
      case 1:
        return access_plainly<1>(offset, bytes, lanes);
      case 2:
        return access_plainly<2>(offset, bytes, lanes);
      case 4:
        return access_plainly<4>(offset, bytes, lanes);
      case 8:
        return access_plainly<8>(offset, bytes, lanes);
      case 16:
        return access_plainly<16>(offset, bytes, lanes);
      default:
        return access_plainly<32>(offset, bytes, lanes);
    }
  }
  void check_write(uint64_t offset, uint64_t bytes, uint32_t lane) {
    start_ = offset;
    const uint64_t end = end_of(offset, bytes);
    for (uint64_t cell = offset >> shift_; cell < end; ++cell) {
      check_proxied(last_write_[cell], cell, lane);
      check_set(since_[cell], cell, lane);
    }
  }
  void check_read(uint64_t offset, uint64_t bytes, uint32_t lane) {
    start_ = offset;
    const uint64_t end = end_of(offset, bytes);
    for (uint64_t cell = offset >> shift_; cell < end;) {
      const uint32_t* written = last_write_ + cell;
      check_proxied(*written, cell, lane);
      cell += end - cell >= kRun && alike(written) ? kRun : 1;
    }
  }
  // The same for a line of shared memory.
  void check_write(const LineShadow& line, uint32_t offset, uint32_t lane) {
    start_ = offset;
    check_proxied(line.last_write, offset >> shift_, lane);
    check_set(line.since, offset >> shift_, lane);
  }
  void check_read(const LineShadow& line, uint32_t offset, uint32_t lane) {
    start_ = offset;
    check_proxied(line.last_write, offset >> shift_, lane);
  }
  void read(LineShadow& line, uint32_t offset, uint32_t lane) {
    start_ = offset;
    line.since = after_read(line.last_write, line.since, offset >> shift_, lane);
  }
  void put_write(uint64_t offset, uint64_t bytes, uint32_t lane) {
    const uint64_t end = end_of(offset, bytes);
    for (uint64_t cell = offset >> shift_; cell < end; ++cell) {
      last_write_[cell] = record_ << 6 | lane;
      since_[cell] = 0;
    }
  }

 private:
  static constexpr uint64_t kRun = 8;  // granules that are looked at together

  // Behind the last granule of a run, of those that there are. Whatever looks at granules goes by it.
  uint64_t end_of(uint64_t offset, uint64_t bytes) const {
    return std::min(((offset + bytes - 1) >> shift_) + 1, cells_);
  }

  // N granules each. Most are as good as new, or hold what is known to come before.
  template <uint32_t N>
  void access_plainly(const uint64_t* offset, uint32_t bytes, uint32_t lanes) {
    // copies, since what is stored here might be members for all that the compiler knows
    uint32_t *const last_write = last_write_, *const all_since = since_;
    const uint64_t cells = cells_;
    const uint32_t *const before = fine_, record = record_;
    const int shift = shift_;
    const bool writes = flags_ & kWrite;
    const auto fine = [&](uint32_t entry) { return entry >> 6 == before[(entry >> 6) % kRecentlyBefore]; };
    const auto fine_since = [&](uint32_t since) {
      return since == 0 || (writes && (since & kSet ? since == fine_set_ : fine(since)));
    };
    for_lanes(lanes, [&](int l) {
      const uint64_t cell = offset[l] >> shift;
      if (cell + N > cells) return access(offset[l], bytes, static_cast<uint32_t>(l));
      uint32_t *last = last_write + cell, *since = all_since + cell;
      uint32_t entries = 0;
      for (uint32_t k = 0; k < N; ++k) entries |= last[k] | since[k];
      for (uint32_t k = 0; k < N && entries; ++k)
        if (!fine(last[k]) || !fine_since(since[k]))
          return access(offset[l], bytes, static_cast<uint32_t>(l));
      const uint32_t mine = record << 6 | static_cast<uint32_t>(l);
      for (uint32_t k = 0; k < N; ++k) {
        since[k] = writes ? 0 : mine;
        if (writes) last[k] = mine;
      }
    });
  }

  static bool alike(const uint32_t* entries) {
    uint64_t pairs[kRun / 2];
    std::memcpy(pairs, entries, sizeof pairs);
    return pairs[0] == pairs[1] && pairs[0] == pairs[2] && pairs[0] == pairs[3] &&
           pairs[0] >> 32 == entries[0];
  }
  void check_proxied(uint32_t written, uint64_t cell, uint32_t lane) {
    if (known_fine(written)) return;
    check(written, cell, lane);
    check_proxy(written, cell, lane);
  }
  static void repeat(uint32_t* entries) {  // the first of them
    const uint64_t pair = uint64_t{entries[0]} << 32 | entries[0];
    const uint64_t pairs[kRun / 2] = {pair, pair, pair, pair};
    std::memcpy(entries, pairs, sizeof pairs);
  }
  void repeat_write(uint64_t cell, uint32_t lane) {
    if (!element_bytes_) return repeat(last_write_ + cell);
    for (uint64_t k = 0; k < kRun; ++k) last_write_[cell + k] = record_ << 6 | lane_at(cell + k, lane);
  }
  // Whether lanes that access one element after the other may fare differently.
  bool depends_on_lane(uint64_t cell) const {
    if (!element_bytes_) return false;
    if (!own_.partly.empty()) return true;
    const uint32_t last = last_write_ ? last_write_[cell] : 0;
    if (last && is_own(last) && table_.records[last >> 6].clock > own_.joined) return true;
    const uint32_t since = since_[cell], top = top_of(since);
    if (top >> 6 == record_ && !in_turn(top)) return true;
    if (!(flags_ & kWrite) || !of_own_lanes(since, own_.joined)) return false;
    return (since & 63) != kInTurn || (since & kSet) ||
           table_.records[since >> 6].lanes != turn_of(base_ + start_, first_lane_, element_bytes_);
  }
  void forget() {
    std::fill_n(own_fine_, kOwnKept, 0u);
    fine_set_ = 0;
  }
  void access_cell(uint64_t cell, uint32_t lane) {
    if (flags_ & kStrong)
      strong(cell, lane);
    else if (flags_ & kWrite)
      write(cell, lane);
    else
      read(cell, lane);
  }
  void read(uint64_t cell, uint32_t lane) {
    since_[cell] = after_read(last_write_ ? last_write_[cell] : 0, since_[cell], cell, lane);
  }
  // What came since the last write, this read included.
  uint32_t after_read(uint32_t last, uint32_t since, uint64_t cell, uint32_t lane) {
    if (last) check(last, cell, lane);
    uint32_t mine = record_ << 6 | (kShared ? lane : readers_);
    if (since == mine || (since == to_ && to_)) return since;
    if (!kShared && top_of(since) >> 6 == record_) mine = with_lanes(top_of(since), mine, cell);
    if (since == 0) return mine;
    if (since & kSet ? table_.nodes[since & ~kSet].strong_writes : writes(since))
      check_set(since, cell, lane);
    return with(since, mine);
  }
  void write(uint64_t cell, uint32_t lane) {
    uint32_t &last = last_write_[cell], &since = since_[cell];
    if (last) check(last, cell, lane);
    if (since) {
      check_set(since, cell, lane);
      since = 0;
    }
    const uint32_t by = lane_at(cell, lane);
    last =
        last >> 6 == record_ && last != (record_ << 6 | by) ? record_ << 6 | kManyLanes : record_ << 6 | by;
  }
  void strong(uint64_t cell, uint32_t lane) {
    if (const uint32_t last = last_write_ ? last_write_[cell] : 0) check(last, cell, lane);
    uint32_t& since = since_[cell];
    if (!table_.observed.empty() && !updated(since)) table_.observed.erase(place(cell));
    uint32_t mine = record_ << 6 | (kShared || lane != kUnknownLane ? lane : readers_);
    if (since == mine) return;
    if (!kShared && top_of(since) >> 6 == record_) mine = with_lanes(top_of(since), mine, cell);
    if (since == mine) return;
    if (since == 0) {
      since = mine;
      return;
    }
    if ((flags_ & kWrite) || warp_.machine->races->narrow_scopes) check_set(since, cell, lane);
    since = with(since, mine);
  }

  bool writes(uint32_t entry) const { return (table_.records[entry >> 6].flags & kWrite) != 0; }

  void check_set(uint32_t set, uint64_t cell, uint32_t lane) {
    if (set == 0) return;
    if (set == fine_set_) {
      INVARIANT(every(set, [&](uint32_t entry) { return settled(entry); }));
      return;
    }
    const uint32_t all = set;
    only_here_ = false;
    while (set & kSet) {
      const Node& node = table_.nodes[set & ~kSet];
      check_since(node.entry, cell, lane);
      set = node.parent;
    }
    if (set) check_since(set, cell, lane);
    // Entries whose lanes are known come first in a set, and are of one warp: one lane of it speaks for
    // itself.
    if ((all & kSet) && !only_here_ && !(set && is_own(set) && has_lanes(set))) fine_set_ = all;
  }
  bool is_own(uint32_t entry) const {
    const Record& record = table_.records[entry >> 6];
    return record.agent == own_.agent && record.cluster == own_.cluster;
  }
  static bool in_turn(uint32_t entry) { return !kShared && (entry & 63) == kInTurn; }
  static bool several(uint32_t by) { return !kShared && by == kSeveral; }
  static bool has_lanes(uint32_t entry) {
    return (entry & 63) <= kManyLanes || in_turn(entry) || several(entry & 63);
  }
  uint32_t top_of(uint32_t since) const { return since & kSet ? table_.nodes[since & ~kSet].entry : since; }
  // Two accesses of one element by an instruction: the entry that says by how many lanes.
  uint32_t with_lanes(uint32_t entry, uint32_t mine, uint64_t cell) const {
    for (const uint32_t one : {entry, mine})
      if (!has_lanes(one) || (one & 63) == kManyLanes) return one;
    return by_at(entry, cell) == by_at(mine, cell) ? entry : record_ << 6 | kSeveral;
  }
  // The lane of an entry, of those in turn the one whose cell this is.
  uint32_t by_at(uint32_t entry, uint64_t cell) const {
    if (!in_turn(entry)) return entry & 63;
    return lane_in_turn(table_.records[entry >> 6].lanes, base_ + (cell << shift_));
  }
  void check_since(uint32_t entry, uint64_t cell, uint32_t lane) {
    const uint16_t theirs = table_.records[entry >> 6].flags;
    if (((flags_ & kCompareSwap) && (theirs & kGuess)) || ((theirs & kCompareSwap) && (flags_ & kGuess)))
      return;
    if ((flags_ & kWrite) || writes(entry)) check(entry, cell, lane);
  }

  bool known_fine(uint32_t entry) const { return entry >> 6 == fine_[(entry >> 6) & (kept_ - 1)]; }
  void is_fine(uint32_t index) {
    if (index & (kept_ - 1)) fine_[index & (kept_ - 1)] = index;  // the first place is that of no record
  }
  void check(uint32_t entry, uint64_t cell, uint32_t lane) {
    if (!known_fine(entry)) return check_record(entry, cell, lane);
    INVARIANT(settled(entry));
  }
  __attribute__((noinline)) void check_record(uint32_t entry, uint64_t cell, uint32_t lane) {
    const uint32_t index = entry >> 6;
    const Record& other = table_.records[index];
    if (((flags_ | other.flags) & kNonCoherent) && !of_other_launch(own_, other))
      return incoherent(other, by_at(entry, cell), cell, lane);
    if (other.cluster == own_.cluster && other.agent == own_.agent) {
      if (other.clock <= own_.joined) return is_fine(index);
      const uint32_t by = by_at(entry, cell);
      lane = lane_at(cell, lane);
      if ((by == lane && lane < kLanes) || (by > kManyLanes && !several(by)) || index == record_ ||
          (!kShared && lane > kManyLanes && !several(lane)))
        return;
      if (morally_strong(other)) return;
      if (writes(entry) && !(other.flags & kStrong) && by == kManyLanes) return;
      if (lane == kUnknownLane || all_seen(other, by, lane) || observed(other, cell, lane)) return;
      return conflict(other, by, cell, lane, unless_address(other, FaultKind::race));
    }
    const bool strong = morally_strong(other);
    if ((!strong || beside_volatile(other, cell)) && !ordered(warp_, other, lane)) {
      if (observed(other, cell, lane)) return;
      conflict(other, by_at(entry, cell), cell, lane,
               strong ? FaultKind::race_volatile : unless_address(other, FaultKind::race));
    } else if (const Arrivals::Arrival* arrival = strong ? nullptr : partly_told(other, lane)) {
      const uint32_t by = by_at(entry, cell);
      if (!by_lockstep(other, by, *arrival)) {
        only_here_ = true;  // another entry of the record may be by other lanes
        return;
      }
      conflict(other, by, cell, lane, FaultKind::race_lockstep);
    }
    is_fine(index);
  }

  // A kind of race, or that of an address which tcgen05.alloc has stored before the threads have met.
  FaultKind unless_address(const Record& record, FaultKind kind) const {
    if (!kShared || record.cluster != own_.cluster || !has_met(own_, record.agent, record.clock)) return kind;
    const Machine& machine = *warp_.machine;
    const bool stored = machine.name_of(machine.code[record.pc]) == "tcgen05.alloc";
    return stored ? FaultKind::race_relaxed : kind;
  }

  // The arrival from which the lane knows of an access by another warp, where not all lanes had told of
  // theirs.
  const Arrivals::Arrival* partly_told(const Record& other, uint32_t lane) const {
    const Cluster& cluster = *warp_.block->cluster;
    if (!cluster.races->lanes_arrive) return nullptr;
    if (other.cluster != own_.cluster || other.agent >= cluster.races->agents) return nullptr;
    const uint32_t warps = warp_.machine->warps_per_block;
    const Arrivals& arrivals = cluster.blocks[other.agent / warps].warps[other.agent % warps].races->arrivals;
    if (!arrivals.count) return nullptr;
    uint32_t known = own_.known.now.near[other.agent];
    for (const LaneKnowledge& part : own_.partly)
      if ((lane >= kLanes || part.lanes >> lane & 1) && other.agent < part.known.now.near.size())
        known = std::max(known, part.known.now.near[other.agent]);
    const Arrivals::Arrival* arrival = arrivals.at(known);
    return arrival && other.clock > arrival->all ? arrival : nullptr;
  }
  // Whether a lane whose access it was, as far as that is known, had not told of it.
  bool by_lockstep(const Record& other, uint32_t by, const Arrivals::Arrival& arrival) const {
    bool some = false;
    const uint32_t lanes = by < kLanes                                              ? 1u << by
                           : by == kManyLanes && kShared && !(other.flags & kWrite) ? other.lanes
                                                                                    : 0;
    for_lanes(lanes, [&](int l) { some |= arrival.lanes[l] < other.clock; });
    return some;
  }

  bool of_warp(const Record& record) const {
    const LaunchState& launch = own_.series->of_cluster(record.cluster);
    return record.agent < launch.warps_per_block * launch.cluster_size;
  }
  bool is_update(uint32_t entry) const {
    return (table_.records[entry >> 6].flags & (kWrite | kStrong)) == (kWrite | kStrong);
  }
  bool updated(uint32_t since) const {
    return since && (since & kSet ? table_.nodes[since & ~kSet].strong_writes : is_update(since));
  }
  // The name of a cell among those of all blocks.
  uint64_t place(uint64_t cell) const {
    const uint64_t own = kShared && !base_ ? (uint64_t{warp_.block->rank} + 1) << kRankShift : base_;
    return own + (cell << shift_);
  }
  // Whether the lane comes after a read, its own or another's, of what an update has left.
  bool observed(const Record& other, uint64_t cell, uint32_t lane) {
    if (table_.observed.empty() || !(other.flags & kStrong) || !(other.flags & kWrite) ||
        ((flags_ & kStrong) && !resets_early(other)) || own_.as_issued ||
        table_.records[record_].agent != own_.agent || !of_warp(other))
      return false;
    const auto found = table_.observed.find(place(cell));
    if (found == table_.observed.end() || found->second.broken) return false;
    lane = lane_at(cell, lane);
    only_here_ = std::any_of(found->second.by.begin(), found->second.by.end(), [&](uint32_t entry) {
      const Record& read = table_.records[entry >> 6];
      if (read.cluster != own_.cluster || read.agent != own_.agent) return ordered(warp_, read, lane);
      return (entry & 63) == lane || read.clock <= own_.joined || all_seen(read, entry & 63, lane);
    });
    return only_here_;
  }

  // Whether the later launch of two that follow one another stores what the other updates: a counter of that.
  bool resets_early(const Record& other) const {
    if (!((other.flags | flags_) & kReset) || !(other.flags & flags_ & kWrite) ||
        !of_other_launch(own_, other))
      return false;
    const LaunchSeries& series = *own_.series;
    const size_t own = warp_.machine->number,
                 theirs = static_cast<size_t>(&series.of_cluster(other.cluster) - series.launches.data());
    return ((own > theirs ? flags_ : other.flags) & kReset) &&
           series.follows(std::max(own, theirs), std::min(own, theirs));
  }

  // Whether one of two strong accesses is volatile only. A volatile load of what a volatile store sets is how
  // a flag is polled, if a branch depends on it, and who has polled it may set it.
  bool beside_volatile(const Record& other, uint64_t cell) const {
    if (!((other.flags | flags_) & kOnlyVolatile)) return false;
    if (!(other.flags & flags_ & kOnlyVolatile)) return true;
    if ((other.flags | flags_) & kSample) return true;
    return (other.flags & flags_ & kWrite) && !has_polled(since_[cell]);
  }
  bool has_polled(uint32_t set) const {
    const auto polls = [&](uint32_t entry) {
      return entry && is_own(entry) && !(table_.records[entry >> 6].flags & (kWrite | kSample));
    };
    for (; set & kSet; set = table_.nodes[set & ~kSet].parent)
      if (polls(table_.nodes[set & ~kSet].entry)) return true;
    return polls(set);
  }
  // Whether both are strong, and the scope of each includes the other's thread.
  bool morally_strong(const Record& other) const {
    if (!(other.flags & flags_ & kStrong) || resets_early(other)) return false;
    const uint16_t scopes = (other.flags | flags_) & kNarrowScope;
    if (!scopes) return true;
    if (other.cluster != own_.cluster) return false;
    const uint32_t warps = warp_.machine->warps_per_block;
    return !(scopes & kBlockScope) || other.agent / warps == own_.agent / warps ||
           other.agent >= warps * warp_.machine->cluster_size;  // TMA's, which is nobody's
  }
  // A load that goes past coherence, and a store of the same launch: no order makes it right.
  void incoherent(const Record& other, uint32_t by, uint64_t cell, uint32_t lane) const {
    Fault fault = conflict_with(other, by, cell, lane);
    const bool later =
        (other.flags & kNonCoherent) &&
        ((other.cluster == own_.cluster && other.agent == own_.agent) || ordered(warp_, other, lane));
    fault.kind = later ? FaultKind::read_only_changed : FaultKind::incoherent_load;
    report(*warp_.block->cluster, fault);
  }

  // Whether a lane knows of another's access in its warp, or of those of several.
  // Of two or more of which no more is known: whether any lane knows of any.
  bool all_seen(const Record& other, uint32_t by, uint32_t lane) const {
    if (several(by) || several(lane)) {
      bool some = other.clock <= own_.joined;
      for (size_t k = 0; k < own_.seen.size() && !some; ++k) {
        const auto a = static_cast<uint32_t>(k / kLanes), b = static_cast<uint32_t>(k % kLanes);
        some = a != b && (lane >= kLanes || lane == a) && (by >= kLanes || by == b) &&
               other.clock <= own_.seen[k];
      }
      return some;
    }
    if (by != kManyLanes) return other.clock <= seen(own_, lane, by);
    bool all = true;
    for_lanes(kShared ? other.lanes : ~0u,
              [&](int l) { all &= other.clock <= seen(own_, lane, static_cast<uint32_t>(l)); });
    return all;
  }
  uint32_t lanes_of(uint32_t entry) const {
    if ((entry & 63) < kLanes) return 1u << (entry & 63);
    return kShared ? table_.records[entry >> 6].lanes : ~0u;
  }

  // Of an access by the async proxy.
  void check_proxy(uint32_t entry, uint64_t cell, uint32_t lane) const {
    require_proxied(warp_, table_.records[entry >> 6], entry & 63, kShared ? Space::shared : Space::global,
                    base_ + std::max(cell << shift_, start_), lane < kLanes ? static_cast<int>(lane) : -1);
  }

  // Of lanes that access one element after the other, the one whose element this is.
  uint32_t lane_at(uint64_t cell, uint32_t lane) const {
    if (!element_bytes_) return lane;
    return first_lane_ + static_cast<uint32_t>((std::max(cell << shift_, start_) - start_) / element_bytes_);
  }

  // More of it conflicts with more: weak accesses with all, strong ones with those beyond their scope.
  static int conflicting(uint16_t flags) {
    return !(flags & kStrong) ? 3 : flags & kBlockScope ? 2 : flags & (kClusterScope | kOnlyVolatile) ? 1 : 0;
  }
  // Whether whoever is ordered after `mine` is ordered after `entry` as well, and conflicts no less.
  bool replaces(uint32_t entry, uint32_t mine) const {
    const Record& old = table_.records[entry >> 6];
    if (((old.flags & kWrite) && !(flags_ & kWrite)) || conflicting(old.flags) > conflicting(flags_) ||
        (old.flags & ~flags_ & (kNonCoherent | kReset)) ||
        (((old.flags ^ flags_) & kSample) && (flags_ & kStrong)))
      return false;
    if (old.cluster == own_.cluster && old.agent == own_.agent) {
      if (!has_lanes(entry) || old.clock <= own_.joined) return true;
      if (!kShared && entry >> 6 == mine >> 6) return true;
      if (several(mine & 63)) return several(entry & 63);
      if (in_turn(entry) || in_turn(mine))
        return (entry & 63) == (mine & 63) && old.lanes == table_.records[mine >> 6].lanes;
      return (mine & 63) != kUnknownLane && !(lanes_of(entry) & ~lanes_of(mine));
    }
    return ordered(own_, old);
  }

  // Whether all of an entry, or of a set, are accesses by lanes of this warp that are known, and the newest
  // is later than `met`.
  bool of_own_lanes(uint32_t entry, uint32_t met = 0) const {
    if (entry == 0) return false;
    if (entry & kSet) {
      const Node& node = table_.nodes[entry & ~kSet];
      return node.of_one_warp && of_own_lanes(node.entry, met);
    }
    return has_lanes(entry) && is_own(entry) && table_.records[entry >> 6].clock > met;
  }
  // Whether an entry is of this warp, and as good as the one that is being made.
  bool is_of_now(uint32_t entry) const {
    const Record& old = table_.records[entry >> 6];
    return kShared && !own_.as_issued && old.cluster == own_.cluster && old.agent == own_.agent &&
           old.clock == own_.now() && old.flags == flags_;
  }

  __attribute__((noinline)) uint32_t with(uint32_t since, uint32_t mine) {
    if (!(since & kSet)) {
      if (is_of_now(since)) {
        if ((since & 63) > kManyLanes) return mine;
        if ((mine & 63) > kManyLanes) return since;
        return by_many(since, mine);
      }
      if (replaces(since, mine)) return mine;
    }
    if (__builtin_expect(of_own_lanes(since), 0) && !own_.as_issued && has_lanes(mine))
      return transition(since, mine);
    // of accesses by several warps, lanes are not kept
    if (!kShared && !(since & kSet) && !is_own(since)) since = (since & ~63u) | kUnknownLane;
    const uint32_t any = (mine & ~63u) | kUnknownLane;
    if (since != from_) {  // an instruction always adds the same entry
      from_ = since;
      to_ = transition(since, any);
    }
    INVARIANT(to_ == transition(since, any));
    return to_ == any ? mine : to_;  // but where it takes the place of them all
  }
  uint32_t transition(uint32_t since, uint32_t mine) {
    const uint64_t key = uint64_t{since} << 32 | mine;
    RecordTable::Recent& recent = table_.recent[(key * 0x9e3779b97f4a7c15u >> 32) % RecordTable::kRecent];
    if (recent.key != key) {
      auto [place, is_new] = table_.transitions.try_emplace(key, 0);
      if (is_new) place->second = extended(since, mine);
      recent = {key, place->second};
    }
    INVARIANT(own_.as_issued ||
              every(since, [&](uint32_t entry) { return kept_in(recent.to, entry, mine); }));
    return recent.to;
  }
  // Two entries between the same ticks: the one whose lanes are those of both, else as the newer one.
  uint32_t by_many(uint32_t since, uint32_t mine) {
    const uint32_t lanes = lanes_of(since) | lanes_of(mine);
    if (lanes == lanes_of(mine)) return mine;
    if (lanes == lanes_of(since)) return since;
    const uint32_t all = (mine & ~63u) | kManyLanes;
    if (lanes == ~0u) return all;
    const auto [place, is_new] = table_.by_many.try_emplace(uint64_t{mine} << 32 | lanes, all);
    if (is_new) {
      Record several = table_.records[mine >> 6];
      several.lanes = lanes;
      if (const uint32_t index = new_record(table_, several)) place->second = index << 6 | kManyLanes;
    }
    INVARIANT(!(lanes & ~lanes_of(place->second)));
    return place->second;
  }
  uint32_t extended(uint32_t since, uint32_t mine) {
    const uint32_t length = since & kSet ? table_.nodes[since & ~kSet].length : 1;
    if (top_of(since) == mine) return since;
    if (length >= kLongest || table_.nodes.size() >= kSet - 1) return since;
    if (length > kWalked) return push(since, mine);
    uint32_t kept[kWalked + 1], count = 0;
    bool dropped = false;
    const auto visit = [&](uint32_t entry) {
      if (entry != mine && replaces(entry, mine))
        dropped = true;
      else
        kept[count++] = entry;
    };
    uint32_t set = since;
    while (set & kSet) {
      visit(table_.nodes[set & ~kSet].entry);
      set = table_.nodes[set & ~kSet].parent;
    }
    visit(set);
    if (std::find(kept, kept + count, mine) != kept + count) return since;
    uint32_t first = 0;
    if (count && (mine & 63) <= kManyLanes && is_of_now(kept[0])) {  // other lanes, just before
      if (!(lanes_of(mine) & ~lanes_of(kept[0]))) return since;
      mine = by_many(kept[first++], mine);
      dropped = true;
    }
    if (!dropped) return push(since, mine);
    if (count == first) return mine;
    set = kept[--count];
    while (count > first) set = push(set, kept[--count]);
    return push(set, mine);
  }
  uint32_t push(uint32_t parent, uint32_t entry) {
    const bool set = (parent & kSet) != 0;
    const uint32_t length = set ? table_.nodes[parent & ~kSet].length : 1;
    const bool strong_writes =
        is_update(entry) || (set ? table_.nodes[parent & ~kSet].strong_writes : is_update(parent));
    table_.nodes.push_back(
        {parent, entry, length + 1, strong_writes, of_own_lanes(parent) && of_own_lanes(entry)});
    return kSet | static_cast<uint32_t>(table_.nodes.size() - 1);
  }

  // A store's race with another one waits for what it stores.
  void conflict(const Record& other, uint32_t by, uint64_t cell, uint32_t lane,
                FaultKind kind = FaultKind::race) const {
    Fault fault = conflict_with(other, by, cell, lane);
    fault.kind = kind;
    if (kind != FaultKind::race) return report(*warp_.block->cluster, fault);
    const uint64_t offset = std::max(cell << shift_, start_);
    const bool plain = flags_ == kWrite && (other.flags & 0xff) == kWrite && !(fault.info & kAsynchronous);
    const uint8_t* bytes = plain && warp_.races->storing ? stored_at(offset) : nullptr;
    if (!bytes) return raise_race(warp_, fault);
    Overwrite overwrite{fault, bytes, {}, static_cast<uint32_t>(((cell + 1) << shift_) - offset)};
    std::memcpy(overwrite.before, bytes, overwrite.count);
    warp_.races->overwrites.push_back(overwrite);
  }

  // The byte of memory that an offset means.
  const uint8_t* stored_at(uint64_t offset) const {
    if (kShared) {
      const uint64_t rank = base_ >> kRankShift;
      const Block& block = rank ? warp_.block->cluster->blocks[rank - 1] : *warp_.block;
      return block.shared.data() + offset;
    }
    const Allocation* allocation = find_allocation(*warp_.machine->launch, base_);
    return allocation ? allocation->data + offset : nullptr;
  }

  Fault conflict_with(const Record& other, uint32_t by, uint64_t cell, uint32_t lane) const {
    const LaunchState& theirs = own_.series->of_cluster(other.cluster);
    const uint32_t cluster = other.cluster - theirs.first_cluster;
    Fault fault;
    fault.kind = FaultKind::race;
    fault.pc = warp_.pc;
    fault.other_pc = other.pc;
    fault.block = warp_.block->id;
    fault.warp = warp_.id;
    fault.lane = lane < kLanes ? static_cast<int32_t>(lane) : -1;
    fault.address = base_ + std::max(cell << shift_, start_);
    fault.space = kShared ? Space::shared : Space::global;
    if (flags_ & kWrite) fault.info |= kWrites;
    if (other.flags & kWrite) fault.info |= kOtherWrites;
    const uint32_t warps = theirs.warps_per_block, agents = warps * theirs.cluster_size;
    const bool stored = other.agent >= agents_of(theirs.cluster_size, warps);
    if (other.agent < agents || stored) {
      const uint32_t agent = stored ? other.lanes : other.agent;
      fault.other_block = block_id(theirs.grid, theirs.cluster, cluster, agent / warps);
      fault.other_warp = static_cast<int32_t>(agent % warps);
      fault.other_lane = by < kLanes ? static_cast<int32_t>(by) : -1;
    } else if (other.agent >= agents + kSlots) {
      const uint32_t group = other.agent - agents - kSlots, each = (warps + 3) / 4;
      fault.other_block = block_id(theirs.grid, theirs.cluster, cluster, group / each);
      fault.other_warp = static_cast<int32_t>(group % each * 4);
    }
    if (stored || (other.agent >= agents && other.agent < agents + kSlots)) fault.info |= kAsynchronous;
    return of_other_launch(own_, other) ? between_launches(fault, theirs) : fault;
  }

  // The same as seen from the later launch, whichever access came first.
  Fault between_launches(Fault fault, const LaunchState& theirs) const {
    fault.launch = static_cast<int32_t>(warp_.machine->number);
    fault.other_launch = static_cast<int32_t>(&theirs - own_.series->launches.data());
    if (fault.other_launch < fault.launch) return fault;
    std::swap(fault.launch, fault.other_launch);
    std::swap(fault.pc, fault.other_pc);
    std::swap(fault.block, fault.other_block);
    std::swap(fault.warp, fault.other_warp);
    std::swap(fault.lane, fault.other_lane);
    const int64_t both = kWrites | kOtherWrites;
    if ((fault.info & both) != both) fault.info ^= both;
    fault.info &= both;
    return fault;
  }

#ifdef WORKBENCH_INVARIANTS
  template <class F>
  bool every(uint32_t set, F holds) const {
    for (; set & kSet; set = table_.nodes[set & ~kSet].parent)
      if (!holds(table_.nodes[set & ~kSet].entry)) return false;
    return holds(set);
  }
  // Whether an access comes before this one, conflicts with none, or has been blamed. What only this access
  // may disregard is not looked at again.
  bool settled(uint32_t entry) const {
    const Record& other = table_.records[entry >> 6];
    const Cluster& cluster = *warp_.block->cluster;
    return kept_ == kOwnKept || !((flags_ | other.flags) & kWrite) || is_own(entry) || ordered(own_, other) ||
           ((flags_ | other.flags) & (kGuess | kStrong)) || !own_.overwrites.empty() ||
           !warp_.machine->reported.known.empty() || cluster.suspected.kind != FaultKind::none;
  }
  // Whether a set has an entry of the one that it was made from, or one that stands for it.
  bool kept_in(uint32_t set, uint32_t entry, uint32_t mine) const {
    const Record &old = table_.records[entry >> 6], &now = table_.records[mine >> 6];
    return !every(set, [&](uint32_t one) { return one != entry; }) || replaces(entry, mine) ||
           (old.cluster == now.cluster && old.agent == now.agent && old.clock == now.clock);
  }
#endif

  const Warp& warp_;
  const WarpRaces& own_;
  RecordTable& table_;
  uint32_t *last_write_, *since_;  // as many cells of both; of a launch that writes nothing, no last write
  uint64_t cells_;
  int shift_;
  uint64_t base_, start_ = 0;
  uint32_t record_;
  uint16_t flags_;
  // Records that come before whatever the warp does, or have been blamed, in places for so many of them; and
  // a set of which no entry conflicts with this access. Own ones hold for this access alone.
  static constexpr uint32_t kOwnKept = 16;
  uint32_t *fine_, own_fine_[kOwnKept], kept_ = kRecentlyBefore, fine_set_ = 0;
  uint32_t from_ = 0,
           to_ = 0;  // the last transition, to which this access adds its own entry of no known lane
  uint32_t first_lane_ = 0, element_bytes_ = 0, readers_ = kUnknownLane;
  bool only_here_ = false;  // what was found to come before holds for this cell, and not for its records
};

// The record of what the warp is executing; 0 when there is no room for more.
uint32_t record_of(RecordTable& table, std::vector<uint32_t>& newest, const WarpRaces& warp, int pc,
                   uint16_t flags, uint32_t by, uint32_t clock) {
  const auto agent = static_cast<uint16_t>(by);
  uint32_t& index = newest[static_cast<size_t>(pc)];
  if (index) {
    const Record& known = table.records[index];
    if (known.clock == clock && known.agent == agent && known.cluster == warp.cluster && known.flags == flags)
      return index;
  }
  return index = new_record(table, {warp.cluster, agent, flags, clock, pc});
}

uint32_t record_of(RecordTable& table, std::vector<uint32_t>& newest, const WarpRaces& warp, int pc,
                   uint16_t flags) {
  return warp.as_issued ? record_of(table, newest, warp, pc, flags, warp.copier, warp.copied)
                        : record_of(table, newest, warp, pc, flags, warp.agent, warp.now());
}

uint16_t flags_of(const Warp& warp, Access access) {
  return warp.machine->prepared->record_flags[static_cast<size_t>(warp.pc)][static_cast<size_t>(access)];
}

// What an instruction's accesses are recorded as.
uint16_t flags_of(const Instruction& instruction, bool guess, Access access) {
  const Reach reach = reach_of(instruction.flags);
  const int narrow = reach == kBlockReach ? kBlockScope : reach == kClusterReach ? kClusterScope : 0;
  if (access == Access::atomic) {
    const bool swap = instruction.count == 4 && instruction.access[1] == 'a';
    return static_cast<uint16_t>(kWrite | kStrong | narrow | (swap ? kCompareSwap : 0));
  }
  const int only_volatile = instruction.flags & kVolatile ? kOnlyVolatile : 0;
  const int ordered = instruction.flags & kOrderMask ? kStrong | narrow | only_volatile : 0;
  if (access == Access::write) return static_cast<uint16_t>(ordered | kWrite | (ordered ? kReset : 0));
  const int cached = instruction.flags & kReadOnlyCache ? kNonCoherent : 0;
  const int sample = instruction.flags & kSamples ? kSample : 0;
  return static_cast<uint16_t>(ordered | cached | sample | (guess ? kGuess : 0));
}

Shadow shadow_of(BlockRaces& races) { return {races.last_write.view(), races.since.view()}; }

void spread(LineShadow& line, BlockRaces& races, uint64_t index, int shift) {
  if (line.last_write == kSpread) return;
  const uint64_t cells = kLineBytes >> shift;
  races.last_write.view().fill(index * cells, cells, line.last_write);
  races.since.view().fill(index * cells, cells, line.since);
  line.last_write = kSpread;
}
void spread(BlockRaces& races, uint64_t index, int shift) {
  if (LineShadow* line = races.lines.view().find(index)) spread(*line, races, index, shift);
}

// Calls whole(line, offset) for whole lines that fare alike, and part(offset, bytes) for all else.
template <class Whole, class Part>
void each_line(BlockRaces& races, int shift, uint32_t offset, uint32_t bytes, Whole whole, Part part) {
  if (!races.lines.count()) return part(offset, bytes);
  const uint64_t end = races.lines.count() * kLineBytes;
  if (offset >= end) return;
  bytes = static_cast<uint32_t>(std::min<uint64_t>(bytes, end - offset));
  LineShadow* line = races.lines.view().begin() + offset / kLineBytes;
  for (uint32_t here; bytes; offset += here, bytes -= here, ++line) {
    here = std::min(bytes, kLineBytes - offset % kLineBytes);
    if (here == kLineBytes && line->last_write != kSpread) {
      whole(*line, offset);
    } else {
      spread(*line, races, offset / kLineBytes, shift);
      part(offset, here);
    }
  }
}

// The same of runs, of which most are one line each: rows of a swizzled tile.
template <class Whole, class Part>
void each_line(BlockRaces& races, int shift, const std::vector<SharedRun>& runs, Whole whole, Part part) {
  const Cells<LineShadow> lines = races.lines.view();
  for (const SharedRun& run : runs) {
    const bool is_line = run.bytes == kLineBytes && run.offset % kLineBytes == 0;
    LineShadow* line = is_line ? lines.find(run.offset / kLineBytes) : nullptr;
    if (line && line->last_write != kSpread)
      whole(*line, run.offset);
    else
      each_line(races, shift, run.offset, run.bytes, whole, part);
  }
}

// Zeros of which only those pages cost memory that are touched.
std::unique_ptr<uint32_t, FreeShadow> zeros(size_t bytes) {
  constexpr size_t kLarge = size_t{1} << 26;
  void* found = bytes < kLarge ? std::calloc(bytes, 1)
                               : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!found || found == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<uint32_t*>(found), FreeShadow{bytes < kLarge ? 0 : bytes}};
}

// Memory that the launch only reads needs no last write, and what is only written no reads.
Shadow shadow_of(const Machine& machine, const Allocation& allocation, uint16_t flags) {
  MachineRaces& races = *machine.races;
  const auto k = static_cast<size_t>(&allocation - machine.launch->allocations.data());
  const size_t cells = (allocation.bytes >> races.global_shift) + 1;
  const auto room = [&](std::unique_ptr<uint32_t, FreeShadow>& shadow) {
    if (!shadow) shadow = zeros(cells * sizeof(uint32_t));
  };
  room(races.since[k]);
  if (flags == kWrite) room(races.last_write[k]);
  return global_shadow(races, allocation, k);
}

class Lock {
 public:
  explicit Lock(const Machine& machine) {
    if (machine.races->locked) lock_ = std::unique_lock<std::mutex>(machine.races->mutex);
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

// The smallest piece that an operation may store, of shared or of global memory; 0: it does not store there.
uint32_t stored_bytes(const std::string& name, const char* space) {
  const auto starts = [&](const char* prefix) { return name.rfind(prefix, 0) == 0; };
  if (!starts("st.") && !starts("atom.") && !starts("red.") && !starts("wmma.store.")) return 0;
  for (const char* other : {".shared", ".global", ".local", ".param"})
    if (name.find(other) != std::string::npos && std::string(other) != space) return 0;
  for (const auto& [type, bytes] :
       {std::pair<const char*, uint32_t>{"x2", 4}, {"16", 2}, {"b8", 1}, {"u8", 1}, {"s8", 1}})
    if (name.size() > 3 && name.compare(name.size() - std::string(type).size(), 4, type) == 0) {
      const uint32_t n = name.find(".v4") != std::string::npos   ? 4
                         : name.find(".v2") != std::string::npos ? 2
                                                                 : 1;
      return bytes * n;
    }
  return 4;
}

int shift_for(uint32_t bytes) { return bytes >= 4 ? 2 : bytes == 2 ? 1 : 0; }

}  // namespace

Shadow shadow_of(const Machine& machine, BlockRaces& races, uint64_t offset, uint64_t bytes) {
  if (!races.lines.count()) return shadow_of(races);
  const uint64_t lines = bytes ? std::min((offset + bytes - 1) / kLineBytes + 1, races.lines.count()) : 0;
  for (uint64_t k = offset / kLineBytes; k < lines; ++k) spread(races, k, machine.races->shared_shift);
  return shadow_of(races);
}

// Loads of what a later compare-and-swap compares with, perhaps after a few moves. Cells are not told apart
// by what they hold when: rather too many are found.
void find_guesses(const Program& program, Code& code) {
  const auto is_swap = [](const std::string& name) {
    return name.rfind("atom", 0) == 0 && name.find(".cas") != std::string::npos;
  };
  size_t last_swap = 0, swaps = 0;
  std::vector<bool> compared(static_cast<size_t>(program.register_bytes / 128));
  const auto compares = [&](const Operand& operand) -> bool {
    if (operand.slot < 0 || compared[static_cast<size_t>(operand.slot / 128)]) return false;
    return compared[static_cast<size_t>(operand.slot / 128)] = true;
  };
  const auto name_of = [&](size_t row) -> const std::string& {
    return operation_table()[static_cast<size_t>(program.rows[row].operation)].name;
  };
  const auto results_compared = [&](const Instruction& instruction) {
    for (int k = 0; k < instruction.count && instruction.access[k] < 'a'; ++k)
      if (instruction.operands[k].slot >= 0 &&
          compared[static_cast<size_t>(instruction.operands[k].slot / 128)])
        return true;
    return false;
  };
  std::vector<size_t> moves;
  for (size_t row = 0; row < program.rows.size(); ++row) {
    const std::string& name = name_of(row);
    if (is_swap(name)) {
      compares(code.instructions[row].operands[2]);
      last_swap = row;
      ++swaps;
    }
    if (name.rfind("mov.", 0) == 0) moves.push_back(row);
  }
  code.guesses.assign(program.rows.size(), false);
  if (swaps == 0) return;
  for (bool more = true; more;) {
    more = false;
    for (const size_t row : moves) {
      const Instruction& move = code.instructions[row];
      if (!results_compared(move)) continue;
      for (int k = 0; k < move.count; ++k)
        if (move.access[k] >= 'a') more |= compares(move.operands[k]);
    }
  }
  for (size_t row = 0; row < last_swap; ++row)
    code.guesses[row] = name_of(row).rfind("ld", 0) == 0 && results_compared(code.instructions[row]);
}

void find_record_flags(const Program& program, Code& code) {
  code.record_flags.resize(code.instructions.size());
  for (size_t row = 0; row < code.instructions.size(); ++row) {
    for (const Access access : {Access::read, Access::write, Access::atomic})
      code.record_flags[row][static_cast<size_t>(access)] =
          flags_of(code.instructions[row], code.guesses[row], access);
    const std::string& name = operation_table()[static_cast<size_t>(program.rows[row].operation)].name;
    if (name.find(".exch") != std::string::npos && !(code.instructions[row].flags & kObserves))
      code.record_flags[row][static_cast<size_t>(Access::atomic)] |= kReset;
  }
}

void find_granules(const Program& program, Code& code) {
  for (const Row& row : program.rows) {
    const std::string& name = operation_table()[static_cast<size_t>(row.operation)].name;
    if (const uint32_t bytes = stored_bytes(name, ".shared"))
      code.shared_granule = std::min(code.shared_granule, bytes);
    if (const uint32_t bytes = stored_bytes(name, ".global"))
      code.global_granule = std::min(code.global_granule, bytes);
    code.stores_tensors |=
        name.find(".global.shared") != std::string::npos && name.find("tensor") != std::string::npos;
    code.stores_in_bulk |= name.find(".bulk_group") != std::string::npos;
    const auto ordered = [&](const char* prefix) { return name.rfind(prefix, 0) == 0; };
    if (ordered("sust"))  // of one byte, or of two
      code.global_granule = std::min(code.global_granule, name.find(".b8") != std::string::npos    ? 1u
                                                          : name.find(".b16") != std::string::npos ? 2u
                                                                                                   : 4u);
    if (ordered("ld") || ordered("st") || ordered("atom") || ordered("red") || ordered("fence"))
      code.has_narrow_scopes |= reach_of(row.flags) != kDeviceReach || (row.flags & kVolatile);
    code.observes |= (row.flags & kObserves) != 0;
    code.loads_in_bulk |= name.rfind("cp.async.bulk", 0) == 0 && name.find(".mbarrier") != std::string::npos;
  }
}

namespace {

// The shadows of what is still allocated, with granules that are small enough for another launch.
void take_shadows(LaunchSeries& series, const std::vector<Allocation>& allocations, int shift) {
  MachineRaces& races = *series.races;
  const int finer = series.allocations.empty() ? 0 : std::max(0, races.global_shift - shift);
  races.global_shift = series.allocations.empty() ? shift : races.global_shift - finer;
  decltype(races.since) last_write(allocations.size()), since(allocations.size());
  const auto name = [](const Allocation& one) { return one.identity ? one.identity : one.address; };
  std::map<uint64_t, size_t> places;
  for (size_t k = 0; k < allocations.size(); ++k) places[name(allocations[k])] = k;
  for (size_t old = 0; old < series.allocations.size(); ++old) {
    const Allocation& from = series.allocations[old];
    const auto place = places.find(name(from));
    if (place == places.end() || allocations[place->second].bytes != from.bytes) continue;
    const size_t now = place->second;
    const size_t cells = (from.bytes >> races.global_shift) + 1;
    for (const auto& [of, to] :
         {std::pair{&races.last_write, &last_write}, std::pair{&races.since, &since}}) {
      std::unique_ptr<uint32_t, FreeShadow>& shadow = (*of)[old];
      (*to)[now] = std::move(shadow);
      if (!finer || !(*to)[now]) continue;
      auto spread = zeros(cells * sizeof(uint32_t));
      for (size_t k = 0; k < cells; ++k) spread.get()[k] = (*to)[now].get()[k >> finer];
      (*to)[now] = std::move(spread);
    }
  }
  races.last_write = std::move(last_write);
  races.since = std::move(since);
  series.allocations = allocations;
}

}  // namespace

void start_races(Machine& machine) {
  if (!(machine.launch->checks & kCheckRaces)) return;
  LaunchSeries& series = *machine.series;
  if (!series.races) series.races = std::make_shared<MachineRaces>();
  machine.races = series.races;
  MachineRaces& races = *machine.races;
  races.narrow_scopes |= machine.prepared->has_narrow_scopes;
  races.observes |= machine.prepared->observes;
  uint32_t global = machine.prepared->global_granule;
  if (machine.prepared->stores_tensors)
    for (const TensorMap& map : machine.launch->tensor_maps)
      global = std::min(global, static_cast<uint32_t>(map.strides[0] & -map.strides[0]));
  races.shared_shift = std::min(races.shared_shift, shift_for(machine.prepared->shared_granule));
  for (const HostCopy& copy : machine.launch->copies)
    for (const uint64_t number : {copy.to, copy.from, copy.bytes})
      while (number % global) global /= 2;
  take_shadows(series, machine.launch->allocations, shift_for(global));
}

void start_races(Cluster& cluster, int64_t index) {
  const Machine& machine = *cluster.machine;
  if (!machine.races) return;
  const LaunchState& launch = machine.series->launches[machine.number];
  if (!cluster.races) cluster.races = std::make_shared<ClusterRaces>();
  ClusterRaces& races = *cluster.races;
  races.agents = machine.cluster_size * machine.warps_per_block;
  races.table.records.resize(1);
  races.table.nodes.resize(1);
  races.table.transitions.clear();
  races.table.by_many.clear();
  races.table.observed.clear();
  std::fill(races.table.recent.begin(), races.table.recent.end(), RecordTable::Recent{});
  races.releases.clear();
  races.arriving = races.completed = Knowledge{};
  races.meeting.clear();
  races.met.clear();
  races.next_slot = races.next_storer = 0;
  races.lanes_arrive = false;
  const size_t lines = machine.launch->shared_bytes / kLineBytes + 1;
  const size_t cells = lines * (kLineBytes >> machine.races->shared_shift);
  for (Block& block : cluster.blocks) {
    if (!block.races) block.races = std::make_shared<BlockRaces>();
    BlockRaces& own = *block.races;
    if (machine.prepared->loads_in_bulk) {  // granules are filled when their line is spread
      own.last_write.resize(cells);
      own.since.resize(cells);
      own.lines.assign(lines, {0, 0});
    } else {
      own.last_write.assign(cells, 0);
      own.since.assign(cells, 0);
    }
    for (Knowledge& barrier : own.barriers) barrier = Knowledge{};
    own.exited = Knowledge{};
    own.mbarriers.clear();
    own.guests.clear();
    for (Warp& warp : block.warps) {
      if (!warp.races) warp.races = std::make_shared<WarpRaces>();
      WarpRaces& state = *warp.races;
      state.known = Knowledge{};
      state.storing = false;
      state.overwrites.clear();
      state.partly.clear();
      state.unfenced.clear();
      std::fill_n(state.storers, kLanes, 0u);
      for (auto& by_reach : state.last_acquired)
        for (LastAcquired& last : by_reach) last = {};
      state.last_proxied = nullptr;
      std::fill_n(state.published, kDeviceReach + 1, Published{});
      state.published_proxied = {};
      state.series = machine.series.get();
      state.first_cluster = launch.first_cluster;
      state.clusters = launch.clusters;
      state.known.now.far = launch.at_start;
      state.cluster = launch.first_cluster + static_cast<uint32_t>(index);
      state.agent = block.rank * machine.warps_per_block + static_cast<uint32_t>(warp.id);
      state.joined = state.joined_initialised = 0;
      state.seen.clear();
      state.arrivals.all = state.arrivals.count = 0;
      std::fill_n(state.arrivals.lanes, kLanes, 0u);
      std::fill_n(state.shared_before, kRecentlyBefore, 0u);
      std::fill_n(state.global_before, kRecentlyBefore, 0u);
      state.known.now.near.assign(agents_of(machine) + (has_executors(machine) ? kStorers : 0), 0);
      state.known.now.near[state.agent] = 1;
      state.shared_record.assign(machine.prepared->instructions.size(), 0);
      state.global_record.resize(machine.prepared->instructions.size());
    }
  }
}

// ---- accesses

void race_shared(Warp& warp, const uint64_t* offset, uint32_t bytes, Access access, Pattern pattern) {
  const uint16_t flags = flags_of(warp, access);
  RecordTable& table = warp.block->cluster->races->table;
  const uint32_t record = record_of(table, warp.races->shared_record, *warp.races, warp.pc, flags);
  if (!record) return;
  BlockRaces& races = *warp.block->races;
  if (races.lines.count()) {
    uint64_t before = ~uint64_t{0};
    for_lanes(warp.active, [&](int l) {  // an aligned access lies in one line
      const uint64_t index = offset[l] / kLineBytes;
      if (index != before) spread(races, before = index, warp.machine->races->shared_shift);
    });
  }
  Touch<true> touch(warp, table, shadow_of(races), warp.machine->races->shared_shift, 0, record);
  const bool collective = warp.machine->code[static_cast<size_t>(warp.pc)].kind == Kind::aligned;
  if (pattern == Pattern::uniform && warp.races->partly.empty())
    touch.access(offset[0], bytes, collective ? kCollective : kManyLanes);
  else if (collective)
    for_lanes(warp.active, [&](int l) { touch.access(offset[l], bytes, kCollective); });
  else
    touch.access_each(offset, bytes, warp.active);
}

namespace {

// The lanes that use what the load that the warp executes brings; those of other threads race with nobody.
uint32_t using_lanes(const Warp& warp, Access access) {
  const Code& code = *warp.machine->prepared;
  const int32_t flags = code.instructions[static_cast<size_t>(warp.pc)].flags & kUnusedMask;
  const uint32_t* block = warp.machine->launch->block;
  if (!flags || access != Access::read || block[1] > 1 || block[2] > 1) return ~0u;
  uint32_t lanes = 0;
  for (int l = 0; l < kLanes; ++l)
    if (!((warp.id * kLanes + l) & flags >> kUnusedShift)) lanes |= 1u << l;
  return lanes;
}

// By which lane an entry says that elements are read which lie one behind the other, as lanes from the first
// on do; their number.
uint32_t reader(Record& record, uint64_t address, uint32_t first, uint64_t count, uint32_t bytes) {
  if (count == 1) return first;
  const uint32_t turn = turn_of(address, first, bytes);
  if (record.lanes == kNoTurn) record.lanes = turn;
  return record.lanes == turn ? kInTurn : kUnknownLane;
}

}  // namespace

void race_global(Warp& warp, const Allocation& allocation, const uint64_t* offset, uint32_t bytes,
                 Access access, Pattern pattern) {
  if (!allocation.writable) return;
  const uint32_t lanes = using_lanes(warp, access);
  if (!(lanes & warp.active)) return;
  const Lock lock(*warp.machine);
  MachineRaces& races = *warp.machine->races;
  const uint16_t flags = flags_of(warp, access);
  const uint32_t record = record_of(races.table, warp.races->global_record, *warp.races, warp.pc, flags);
  if (!record) return;
  Touch<false> touch(warp, races.table, shadow_of(*warp.machine, allocation, flags), races.global_shift,
                     allocation.address, record);
  // Elements that are smaller than granules, and what a copy reads, are not told apart by lane.
  const bool by_lane =
      flags != kWrite && !(flags & kNonCoherent) && !warp.races->as_issued && bytes >> races.global_shift;
  const auto read_by = [&](int lane, uint64_t count) {
    if (by_lane)
      touch.reads_by(reader(races.table.records[record], allocation.address + offset[lane],
                            static_cast<uint32_t>(lane), count, bytes));
  };
  if (!warp.races->partly.empty() || lanes != ~0u)
    for_lanes(warp.active & lanes, [&](int l) {
      read_by(l, 1);
      touch.access(offset[l], bytes, static_cast<uint32_t>(l));
    });
  else if (pattern == Pattern::scattered && access == Access::read)
    for (uint32_t left = warp.active; left;) {  // neighbours that read neighbouring elements, as one
      const auto again = [&](int lane) {        // whether the next one reads the same
        const uint32_t rest = left & (left - 1);
        return rest && offset[__builtin_ctz(rest)] == offset[lane];
      };
      const int first = __builtin_ctz(left);
      const bool several = again(first);  // lanes read each element of these
      uint64_t end = offset[first] + bytes;
      int last = first;
      while (left &= left - 1) {
        const int next = __builtin_ctz(left);
        if (offset[next] == end && (several ? again(next) : next == last + 1))
          end += bytes;
        else if (offset[next] + bytes != end || !several)
          break;
        last = next;
      }
      if (several) {
        touch.reads_by(by_lane ? kSeveral : kUnknownLane);
        touch.access(offset[first], end - offset[first], by_lane ? kSeveral : kUnknownLane);
      } else {
        read_by(first, (end - offset[first]) / bytes);
        touch.access_in_turn(offset[first], end - offset[first], static_cast<uint32_t>(first), bytes);
      }
    }
  else if (pattern == Pattern::scattered)
    touch.access_each(offset, bytes, warp.active);
  else if (pattern == Pattern::contiguous) {
    read_by(0, kLanes);
    touch.access_in_turn(offset[0], uint64_t{bytes} * kLanes, 0, bytes);
  } else {
    if (by_lane) touch.reads_by(kManyLanes);
    touch.access(offset[0], bytes, kManyLanes);
  }
}

void race_product(const Warp& warp, const std::vector<SharedRun>& runs, bool begins) {
  RecordTable& table = warp.block->cluster->races->table;
  const uint32_t record = record_of(table, warp.races->shared_record, *warp.races, warp.pc, 0);
  if (!record) return;
  BlockRaces& races = *warp.block->races;
  const int shift = warp.machine->races->shared_shift;
  Touch<true> touch(warp, table, shadow_of(races), shift, 0, record, begins);
  LineShadow before{kSpread, 0}, after{};  // the reading of the last line
  each_line(
      races, shift, runs,
      [&](LineShadow& line, uint32_t offset) {
        if (line.last_write != before.last_write || line.since != before.since) {
          before = after = line;
          begins ? touch.check_read(line, offset, kCollective) : touch.read(after, offset, kCollective);
        }
        line = after;
      },
      [&](uint32_t offset, uint32_t bytes) {
        begins ? touch.check_read(offset, bytes, kCollective) : touch.access(offset, bytes, kCollective);
      });
}

uint32_t race_products_end(Warp& warp) {
  if (!warp.races) return 0;
  const Block& block = *warp.block;
  const uint32_t agent = block.cluster->races->agents + kSlots + block.rank * warpgroups_of(*warp.machine) +
                         static_cast<uint32_t>(warp.id) / 4;
  uint32_t time = 0;
  Warp* members = &warp.block->warps[static_cast<size_t>(warp.id / 4 * 4)];
  for (int w = 0; w < 4; ++w) time = std::max(time, members[w].races->known.now.near[agent]);
  return warp.races->known.now.near[agent] = time + 1;
}

void race_products_read(const Warp& warp, const std::vector<SharedRun>& runs, uint32_t time) {
  WarpRaces& own = *warp.races;
  const Block& block = *warp.block;
  own.as_issued = true;
  own.copied = time;
  own.copier = block.cluster->races->agents + kSlots + block.rank * warpgroups_of(*warp.machine) +
               static_cast<uint32_t>(warp.id) / 4;
  race_product(warp, runs, false);
  own.as_issued = false;
}

uint32_t race_new_executor(Cluster& cluster) {
  return static_cast<uint32_t>(agents_of(*cluster.machine)) + cluster.races->next_storer++ % kStorers;
}

void race_unit_reads(Warp& warp, Block& block, const std::vector<SharedRun>& runs, uint32_t lane,
                     uint32_t executor, uint32_t time) {
  WarpRaces& own = *warp.races;
  RecordTable& table = block.cluster->races->table;
  const uint32_t issued = record_of(table, own.shared_record, own, warp.pc, 0);
  const uint32_t reading =
      new_record(table, {own.cluster, static_cast<uint16_t>(executor), 0, time, warp.pc, own.agent});
  if (!issued || !reading) return;
  BlockRaces& races = *block.races;
  const int shift = warp.machine->races->shared_shift;
  const uint64_t base = &block == warp.block ? 0 : cluster_address(block, 0);
  Touch<true> check(warp, table, shadow_of(races), shift, base, issued, true);
  own.as_issued = true;
  Touch<true> note(warp, table, shadow_of(races), shift, base, reading);
  LineShadow before{kSpread, 0}, after{};  // the reading of the last line
  each_line(
      races, shift, runs,
      [&](LineShadow& line, uint32_t offset) {
        if (line.last_write != before.last_write || line.since != before.since) {
          before = after = line;
          check.check_read(line, offset, lane);
          note.read(after, offset, lane);
        }
        line = after;
      },
      [&](uint32_t offset, uint32_t bytes) {
        check.check_read(offset, bytes, lane);
        note.access(offset, bytes, lane);
      });
  own.as_issued = false;
}

void race_unit_done(Block& block, uint32_t barrier, uint32_t executor, uint32_t time, const Clock& issued) {
  Clock& arriving = block.races->mbarriers[barrier].arriving.now;
  join(arriving, issued);
  if (arriving.near.size() <= executor) arriving.near.resize(executor + 1);
  arriving.near[executor] = std::max(arriving.near[executor], time);
}

void race_stored(Warp& warp) {
  std::vector<Overwrite>& overwrites = warp.races->overwrites;
  warp.races->storing = false;
  for (Overwrite& overwrite : overwrites) {
    if (std::memcmp(overwrite.before, overwrite.bytes, overwrite.count) != 0)
      raise_race(warp, overwrite.fault);
    else {
      overwrite.fault.kind = FaultKind::race_same_value;
      raise_race(warp, overwrite.fault);
    }
  }
  overwrites.clear();
}

void race_shared_run(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, Access access,
                     uint32_t lane) {
  if (!warp.machine->races || bytes == 0) return;
  RecordTable& table = block.cluster->races->table;
  const uint32_t record =
      record_of(table, warp.races->shared_record, *warp.races, warp.pc, flags_of(warp, access));
  if (!record) return;
  const uint64_t base = &block == warp.block ? 0 : (uint64_t{block.rank} + 1) << kRankShift;
  Touch<true>(warp, table, shadow_of(*warp.machine, *block.races, offset, bytes),
              warp.machine->races->shared_shift, base, record)
      .access(offset, bytes, lane);
}

void race_global_run(const Warp& warp, const Allocation& allocation, uint64_t offset, uint64_t bytes,
                     Access access, uint32_t lane) {
  if (!warp.machine->races || !allocation.writable || bytes == 0) return;
  const Lock lock(*warp.machine);
  MachineRaces& races = *warp.machine->races;
  const uint16_t flags = flags_of(warp, access);
  const uint32_t record = record_of(races.table, warp.races->global_record, *warp.races, warp.pc, flags);
  if (!record) return;
  Touch<false>(warp, races.table, shadow_of(*warp.machine, allocation, flags), races.global_shift,
               allocation.address, record)
      .access(offset, bytes, lane);
}

void race_copy_issued(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint32_t lane) {
  if (!warp.machine->races) return;
  RecordTable& table = block.cluster->races->table;
  const uint32_t record = record_of(table, warp.races->shared_record, *warp.races, warp.pc, kWrite);
  if (!record) return;
  Touch<true>(warp, table, shadow_of(*warp.machine, *block.races, offset, bytes),
              warp.machine->races->shared_shift, 0, record)
      .check_write(offset, bytes, lane);
}

void race_copy_landed(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint32_t lane,
                      int pc) {
  if (!warp.machine->races) return;
  RecordTable& table = block.cluster->races->table;
  const uint32_t record = record_of(table, warp.races->shared_record, *warp.races, pc, kWrite);
  if (!record) return;
  Touch<true>(warp, table, shadow_of(*warp.machine, *block.races, offset, bytes),
              warp.machine->races->shared_shift, 0, record)
      .put_write(offset, bytes, lane);
}

void race_bulk_issued(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, uint32_t lane,
                      Block& barrier_block, uint32_t barrier, uint64_t phase, int swizzle) {
  if (!warp.machine->races || bytes == 0) return;
  ClusterRaces& races = *block.cluster->races;
  const uint32_t slot = barrier_block.races->mbarriers[barrier].slot;
  const auto flags = static_cast<uint16_t>(kWrite | swizzle_flags(swizzle));
  const uint32_t record =
      new_record(races.table, {warp.races->cluster, static_cast<uint16_t>(races.agents + slot), flags,
                               static_cast<uint32_t>(phase + 1), warp.pc});
  if (!record) return;
  BlockRaces& own = *block.races;
  const int shift = warp.machine->races->shared_shift;
  Touch<true> touch(warp, races.table, shadow_of(own), shift, 0, record, true);
  each_line(
      own, shift, offset, bytes, [&](LineShadow& line, uint32_t at) { touch.check_write(line, at, lane); },
      [&](uint32_t at, uint32_t length) { touch.check_write(at, length, lane); });
  const LineShadow written{record << 6 | kCollective, 0};
  each_line(
      own, shift, offset, bytes, [&](LineShadow& line, uint32_t) { line = written; },
      [&](uint32_t at, uint32_t length) {
        if (own.lines.count() && length == kLineBytes)
          own.lines.view().put(at / kLineBytes, written);
        else
          touch.put_write(at, length, kCollective);
      });
  race_guest_copy(warp, block, offset, static_cast<int>(lane), slot, phase);
}

namespace {

constexpr uint64_t kMapBytes = sizeof(TensorMapBytes);

void add_map_read(const Warp& warp, uint64_t map, uint32_t agent, uint32_t clock) {
  const Allocation* allocation = find_allocation(*warp.machine->launch, map);
  if (!allocation || !allocation->writable) return;
  const Lock lock(*warp.machine);
  MachineRaces& races = *warp.machine->races;
  const uint32_t record = new_record(
      races.table, {warp.races->cluster, static_cast<uint16_t>(agent), 0, clock, warp.pc, warp.races->agent});
  if (!record) return;
  Touch<false>(warp, races.table, shadow_of(*warp.machine, *allocation, 0), races.global_shift,
               allocation->address, record)
      .add_read(map - allocation->address, kMapBytes);
}

// Of a bulk store of a lane: who carries it out.
uint32_t storer_of(Warp& warp, uint32_t lane) {
  uint32_t& storer = warp.races->storers[lane];
  if (!storer)
    storer = static_cast<uint32_t>(agents_of(*warp.machine)) +
             warp.block->cluster->races->next_storer++ % kStorers;
  return storer;
}

}  // namespace

void race_map_loads(const Warp& warp, uint64_t map, Block& barrier_block, uint32_t barrier, uint64_t phase) {
  if (!warp.races) return;
  const uint32_t slot = barrier_block.races->mbarriers[barrier].slot;
  add_map_read(warp, map, warp.block->cluster->races->agents + slot, static_cast<uint32_t>(phase + 1));
}

void race_map_stores(Warp& warp, uint64_t map, uint32_t lane) {
  if (warp.races) add_map_read(warp, map, storer_of(warp, lane), warp.bulk_group[lane] + 1);
}

void race_store_issued(Warp& warp, const Allocation& allocation, uint64_t offset, uint64_t bytes,
                       Access access, uint32_t lane) {
  if (!warp.races || !allocation.writable || bytes == 0) return;
  WarpRaces& own = *warp.races;
  const uint32_t storer = storer_of(warp, lane);
  const Lock lock(*warp.machine);
  MachineRaces& races = *warp.machine->races;
  const auto flags = static_cast<uint16_t>(access == Access::atomic ? kWrite | kStrong : kWrite);
  const uint32_t record =
      record_of(races.table, own.global_record, own, warp.pc, flags, storer, warp.bulk_group[lane] + 1);
  if (!record) return;
  races.table.records[record].lanes = own.agent;
  Touch<false>(warp, races.table, shadow_of(*warp.machine, allocation, flags), races.global_shift,
               allocation.address, record)
      .access(offset, bytes, lane);
}

void race_stores_done(Warp& warp, uint32_t lanes, uint32_t left) {
  if (!warp.races) return;
  WarpRaces& own = *warp.races;
  bool news = false;
  for_lanes(lanes, [&](int l) {
    if (!own.storers[l] || warp.bulk_group[l] <= left) return;
    const Record done{own.cluster, static_cast<uint16_t>(own.storers[l]), 0, warp.bulk_group[l] - left, 0};
    if (ordered(warp, done, static_cast<uint32_t>(l))) return;
    Knowledge written;
    written.now.near.resize(own.storers[l] + 1);
    written.now.near.back() = done.clock;
    learn(warp, written, 1u << l);
    news = true;
  });
  if (news) own.tick();
}

void race_same_instruction(const Warp& warp, uint8_t* const* pointer, const uint64_t* value,
                           const uint64_t* address, Space space, uint32_t bytes) {
  if (warp.active == ~0u) {  // the common case, and quick to tell
    bool ascending = true;
    for (int l = 1; l < kLanes; ++l) ascending &= pointer[l] > pointer[l - 1];
    if (ascending) return;
  }
  constexpr uint32_t kBuckets = 64;
  int8_t bucket[kBuckets];
  std::memset(bucket, -1, sizeof bucket);
  for (uint32_t left = warp.active; left; left &= left - 1) {
    const int l = __builtin_ctz(left);
    const uintptr_t place = reinterpret_cast<uintptr_t>(pointer[l]) / bytes;
    uint32_t at = static_cast<uint32_t>(place ^ place >> 6) % kBuckets;
    while (bucket[at] >= 0 && pointer[bucket[at]] != pointer[l]) at = (at + 1) % kBuckets;
    const int first = bucket[at];
    if (first < 0) {
      bucket[at] = static_cast<int8_t>(l);
    } else if (value[first] != value[l]) {
      Fault fault;
      const bool replicas = warp.machine->launch->replicas && space == Space::shared;
      fault.kind = replicas ? FaultKind::race_of_replicas : FaultKind::race;
      fault.pc = fault.other_pc = warp.pc;
      fault.block = fault.other_block = warp.block->id;
      fault.warp = fault.other_warp = warp.id;
      fault.lane = l;
      fault.other_lane = first;
      fault.address = address[l];
      fault.space = space;
      fault.info = kWrites | kOtherWrites | kSameInstruction;
      report(*warp.block->cluster, fault);
    }
  }
}

// ---- order within a warp and a block

void race_initialised_joined(Warp& warp) {
  if (!warp.races) return;
  WarpRaces& own = *warp.races;
  const Times& told = own.known.initialised.near;
  if (own.agent < told.size()) own.joined_initialised = std::max(own.joined_initialised, told[own.agent]);
}

void race_lanes_joined(Warp& warp, uint32_t lanes) {
  if (!warp.races) return;
  WarpRaces& own = *warp.races;
  take_unfenced(warp, lanes);
  Knowledge polled;
  polled_by(own, lanes, polled);
  if (polled.now.far) add_unfenced(own, polled, lanes, kPolled);
  share(warp, lanes);
  if ((lanes & warp.exists) == warp.exists) {
    own.joined = own.now();
    own.seen.clear();
  } else {
    if (own.seen.empty()) own.seen.assign(kLanes * kLanes, 0);
    uint32_t together[kLanes] = {};
    for_lanes(lanes, [&](int l) {
      for (int a = 0; a < kLanes; ++a)
        together[a] = std::max(together[a], own.seen[static_cast<size_t>(l * kLanes + a)]);
    });
    for_lanes(lanes, [&](int l) { together[l] = own.now(); });
    for_lanes(lanes, [&](int l) { std::copy_n(together, kLanes, own.seen.begin() + l * kLanes); });
  }
  own.tick();
}

void race_fence(Warp& warp, int32_t flags) {
  if (!warp.races) return;
  WarpRaces& own = *warp.races;
  const Reach reach = reach_of(flags);
  take_unfenced(warp, warp.active, reach == kDeviceReach ? kPolled : reach);
  const Clock now = known_to_some(warp);
  own.known.fenced_block = now;
  if (reach >= kClusterReach && warp.machine->cluster_size > 1) own.known.fenced_cluster = now;
  if (reach == kDeviceReach) own.known.fenced_device = now;
  own.tick();
}

void race_arrive(Warp& warp, Knowledge& at) {
  if (!warp.races) return;
  tell(warp, at);
  warp.races->tick();
}

void race_arrive_relaxed(Warp& warp, Knowledge& at, const Clock& fenced) {
  if (!warp.races) return;
  const Knowledge& known = warp.races->known;
  Knowledge told;
  told.now = fenced;
  told.fenced_block = known.fenced_block;
  told.fenced_cluster = known.fenced_cluster;
  told.fenced_device = known.fenced_device;
  told.proxied = known.proxied;
  told.initialised = known.initialised;
  join(at, told);
  if (warp.races->agent < fenced.near.size()) told_by_all(*warp.races, fenced.near[warp.races->agent]);
  warp.races->tick();
}

void race_learn(Warp& warp, const Knowledge& from, uint32_t lanes) {
  if (!warp.races) return;
  take_unfenced(warp, lanes);
  learn(warp, from, lanes);
  warp.races->tick();
}

void race_barrier_completed(Block& block, int number, bool all) {
  if (!block.races) return;
  Knowledge& sum = block.races->barriers[number];
  if (all) join(sum, block.races->exited);
  const auto waits = [&](const Group& group) {
    return group.wait == Wait::barrier && group.key == static_cast<uint64_t>(number);
  };
  const auto waiting = [&](const Warp& warp) {
    uint32_t lanes = 0;
    for (const Group& group : warp.groups)
      if (waits(group)) lanes |= group.mask;
    return lanes;
  };
  Knowledge polled;  // a fence behind the barrier takes it, whoever has polled
  for (Warp& warp : block.warps)
    if (const uint32_t lanes = waiting(warp)) {
      take_unfenced(warp, lanes);
      polled_by(*warp.races, lanes, polled);
      tell(warp, sum);
    }
  for (Warp& warp : block.warps) {
    const uint32_t lanes = waiting(warp);
    if (!lanes) continue;
    learn(warp, sum, lanes);
    if (polled.now.far) add_unfenced(*warp.races, polled, lanes, kPolled);
    race_lanes_joined(warp, lanes);
  }
  sum = Knowledge{};
}

void race_meets(const Warp& warp) {
  Times& meeting = warp.block->cluster->races->meeting;
  const Times known = known_to_some(warp).near;
  if (meeting.size() < known.size()) meeting.resize(known.size());
  for (size_t agent = 0; agent < known.size(); ++agent)
    meeting[agent] = std::max(meeting[agent], known[agent]);
}

void race_met(Warp& warp) { warp.races->met = warp.block->cluster->races->met; }

void race_cluster_completed(ClusterRaces& races) {
  races.met = races.meeting;
  join(races.completed, races.arriving);
  races.arriving = Knowledge{};
}

void race_join(Knowledge& to, const Knowledge& from) { join(to, from); }

uint32_t race_lanes_seen(const WarpRaces& warp, uint32_t lane, uint32_t other) {
  return seen(warp, lane, other);
}

void race_proxy_fence(Warp& warp) {
  if (!warp.races) return;
  WarpRaces& own = *warp.races;
  take_unfenced(warp, warp.active);
  join(own.known.proxied, known_to_some(warp));
  own.tick();
}

void race_mbarrier_fence(Warp& warp) {
  if (!warp.races) return;
  WarpRaces& own = *warp.races;
  join(own.known.initialised, known_to_some(warp));
  own.tick();
}

void race_exit(Warp& warp) {
  if (!warp.races) return;
  race_arrive(warp, warp.block->races->exited);
  race_arrive(warp, warp.block->cluster->races->arriving);
}

// ---- mbarriers

void race_mbarrier_initialised(const Warp& warp, Block& block, uint32_t offset, int lane) {
  if (!block.races) return;
  MbarrierKnowledge& barrier = block.races->mbarriers[offset];
  barrier = MbarrierKnowledge{};
  barrier.slot = block.cluster->races->next_slot++ % kSlots;
  const WarpRaces& own = *warp.races;
  barrier.initialised = {own.cluster, static_cast<uint16_t>(own.agent), 0, own.now(), warp.pc};
  barrier.lane = static_cast<uint32_t>(lane);
}

void race_mbarrier_arrive(Warp& warp, Block& block, uint32_t offset, int32_t flags, uint32_t lane) {
  if (!block.races) return;
  Knowledge& arriving = block.races->mbarriers[offset].arriving;
  WarpRaces& own = *warp.races;
  if (is_relaxed(flags))
    return race_arrive_relaxed(warp, arriving,
                               &block == warp.block ? own.known.fenced_block : own.known.fenced_cluster);
  tell_of_lanes(own, arriving);
  note_arrival(own, lane);
  warp.block->cluster->races->lanes_arrive = true;
  own.tick();
}

uint32_t race_copier(const Block& block, uint32_t barrier) {
  return block.cluster->races->agents + block.races->mbarriers.at(barrier).slot;
}

std::shared_ptr<const Clock> race_issued(Warp& warp, uint32_t lane) {
  if (!warp.races) return nullptr;
  WarpRaces& own = *warp.races;
  auto known = std::make_shared<Clock>(own.known.now);
  for (const LaneKnowledge& part : own.partly)
    if (part.lanes >> lane & 1) join(*known, part.known.now);
  told_by_all(own, own.now());
  own.tick();
  return known;
}

void race_mbarrier_landed(const Warp& issuer, Block& block, uint32_t offset, uint64_t phase) {
  if (!block.races) return;
  MbarrierKnowledge& barrier = block.races->mbarriers[offset];
  Times& times = barrier.arriving.now.near;
  const uint32_t agents = block.cluster->races->agents;
  times.resize(std::max<size_t>(times.size(), agents + kSlots));
  uint32_t& engine = times[agents + barrier.slot];
  engine = std::max(engine, static_cast<uint32_t>(phase + 1));
  uint32_t& reader = times[issuer.races->agent];  // of what the copy read
  reader = std::max(reader, issuer.races->now());
  told_by_all(*issuer.races, issuer.races->now());
}

void race_mbarrier_completed(Block& block, uint32_t offset) {
  if (!block.races) return;
  MbarrierKnowledge& barrier = block.races->mbarriers[offset];
  join(barrier.completed, barrier.arriving);
  barrier.arriving = Knowledge{};
}

void race_mbarrier_passed(Warp& warp, uint32_t offset, uint32_t lanes, int32_t flags) {
  if (!warp.races) return;
  const Knowledge& completed = warp.block->races->mbarriers[offset].completed;
  if (!is_relaxed(flags)) return race_learn(warp, completed, lanes);
  add_unfenced(*warp.races, completed, lanes, kBlockReach);
}

// ---- flags and atomics

namespace {

constexpr int kAcquires = 2, kReleases = 3, kBoth = 4;

// What a snapshot of this warp's knowledge tells others; the last one again while nothing has come to it.
std::shared_ptr<const Far> published(const WarpRaces& warp, const Clock& clock, Published& last) {
  if (clock.near.empty()) return nullptr;
  if (last.all && last.clock.far == clock.far && last.clock.near == clock.near) return last.all;
  auto all = clock.far ? std::make_shared<Far>(*clock.far) : std::make_shared<Far>();
  (*all)[warp.cluster] = std::make_shared<const Times>(clock.near);
  last = {clock, all};
  return all;
}

// Calls f(map of releases, key, lanes) for each distinct address of the active lanes.
template <class F>
void each_flag(Warp& warp, Space space, const uint64_t* address, F f) {
  for (uint32_t left = warp.active; left;) {
    const int first = __builtin_ctz(left);
    uint32_t same = 0;
    for_lanes(left, [&](int l) { same |= (address[l] == address[first] ? 1u : 0u) << l; });
    left &= ~same;
    uint64_t key = address[first];
    const bool shared = space == Space::shared || (space == Space::none && key >> 32 == kSharedWindow >> 32);
    if (!shared && key < kFirstGlobal) continue;
    if (shared) {
      key &= 0xffffffffu;
      if (key >> kRankShift == 0) key |= uint64_t{warp.block->rank + 1} << kRankShift;
      f(warp.block->cluster->races->releases, key, same);
    } else {
      f(warp.machine->races->releases, key, same);
    }
  }
}

#ifdef WORKBENCH_INVARIANTS
// Whether a clock has come as far as others.
bool covers(const Clock& clock, uint32_t cluster, const Far& others) {
  return std::all_of(others.begin(), others.end(), [&](const auto& other) {
    for (uint32_t agent = 0; agent < other.second->size(); ++agent)
      if ((*other.second)[agent] && !knows(clock, cluster, other.first, agent, (*other.second)[agent]))
        return false;
    return true;
  });
}
bool has_acquired(const WarpRaces& own, const Far& from, uint32_t lanes, Acquires acquires) {
  bool all = true;
  for_lanes(lanes, [&](int l) {
    Clock clock = own.known.now;
    for (const LaneKnowledge& part : own.partly)
      if (part.lanes >> l & 1) join(clock, part.known.now);
    for (const Unfenced& part : own.unfenced)
      if (acquires != kAtOnce && part.lanes >> l & 1)
        for (const Knowledge& known : part.known) join(clock, known.now);
    all &= covers(clock, own.cluster, from);
  });
  return all;
}
#endif

// Lanes read what a fence or a release of that reach has put there.
void acquire(Warp& warp, const std::shared_ptr<const Far>& from, uint32_t lanes, Reach reach,
             Acquires acquires) {
  WarpRaces& own = *warp.races;
  LastAcquired& last = own.last_acquired[acquires][reach];
  if (!from) return;
  if (last.from == from && !(lanes & ~last.lanes)) {
    INVARIANT(has_acquired(own, *from, lanes, acquires));
    return;
  }
  last = {from, lanes};
  Knowledge learnt;
  const auto near = from->find(own.cluster);
  if (near != from->end()) join(learnt.now.near, *near->second);
  join(learnt.now.far, from);
  if (acquires == kByLoad) {  // what other clusters have told
    Knowledge polled;
    std::swap(polled.now.far, learnt.now.far);
    add_unfenced(own, polled, lanes, kPolled);
  }
  if (acquires != kAtOnce) return add_unfenced(own, learnt, lanes, reach);
  learn(warp, learnt, lanes);
  own.tick();
}

void acquire_proxied(WarpRaces& own, const std::shared_ptr<const Far>& from) {
  if (!from) return;
  if (own.last_proxied == from) {
    INVARIANT(covers(own.known.proxied, own.cluster, *from));
    return;
  }
  own.last_proxied = from;
  const auto near = from->find(own.cluster);
  if (near != from->end()) join(own.known.proxied.near, *near->second);
  join(own.known.proxied.far, from);
}

}  // namespace

namespace {

// The part of a release that reaches one block or its cluster.
void release_near(Release& release, const Warp& warp, const std::shared_ptr<const Far>& block,
                  const std::shared_ptr<const Far>& cluster) {
  std::vector<NearRelease>& all = release.near[warp.races->cluster];
  const auto same = std::find_if(all.begin(), all.end(),
                                 [&](const NearRelease& near) { return near.rank == warp.block->rank; });
  NearRelease& near = same == all.end() ? all.emplace_back(NearRelease{warp.block->rank, {}, {}}) : *same;
  join(near.block, block);
  join(near.cluster, cluster);
}

}  // namespace

void race_released(Warp& warp, Space space, const uint64_t* address, int32_t flags, bool update) {
  if (!warp.races || (!update && !(flags & kOrderMask))) return;
  WarpRaces& own = *warp.races;
  const bool releases = (flags & kOrderMask) >= kReleases;
  const Reach reach = reach_of(flags);
  const Lock lock(*warp.machine);
  if (!releases && own.known.fenced_block.near.empty() &&
      (update || (warp.machine->races->releases.empty() && warp.block->cluster->races->releases.empty())))
    return;
  if (releases) take_unfenced(warp, warp.active, reach == kDeviceReach ? kPolled : reach);
  const Clock now = releases ? known_to_some(warp) : Clock{};
  const Times& told = releases ? now.near : own.known.fenced_block.near;
  if (own.agent < told.size()) told_by_all(own, told[own.agent]);
  // What is ordered by a fence, or by this, reaches no further than either.
  const auto up_to = [&](Reach r, const Clock& fenced) {
    return reach < r ? nullptr : published(own, releases ? now : fenced, own.published[r]);
  };
  std::shared_ptr<const Far> block, cluster;
  if (warp.machine->prepared->has_narrow_scopes) {
    block = up_to(kBlockReach, own.known.fenced_block);
    if (warp.machine->cluster_size > 1) cluster = up_to(kClusterReach, own.known.fenced_cluster);
  }
  std::shared_ptr<const Far> device = up_to(kDeviceReach, own.known.fenced_device);
  std::shared_ptr<const Far> proxied = published(own, own.known.proxied, own.published_proxied);
  each_flag(warp, space, address, [&](auto& all, uint64_t key, uint32_t) {
    Release& release = all[key];
    if (!update) release = Release{};
    if (block) release_near(release, warp, block, cluster);
    join(release.device, device);
    join(release.proxied, proxied);
  });
  if (releases) own.tick();
}

void race_acquired(Warp& warp, Space space, const uint64_t* address, int32_t flags, bool by_load) {
  if (!warp.races) return;
  const int order = flags & kOrderMask;
  const Acquires acquires = order == kAcquires || order >= kBoth ? kAtOnce : by_load ? kByLoad : kByAtomic;
  const Reach reach = reach_of(flags);
  const Lock lock(*warp.machine);
  if (warp.machine->races->releases.empty() && warp.block->cluster->races->releases.empty()) return;
  each_flag(warp, space, address, [&](auto& all, uint64_t key, uint32_t lanes) {
    const auto found = all.find(key);
    if (found == all.end()) return;
    const Release& release = found->second;
    acquire_proxied(*warp.races, release.proxied);
    if (reach == kDeviceReach) acquire(warp, release.device, lanes, kDeviceReach, acquires);
    const auto near = release.near.find(warp.races->cluster);
    if (near == release.near.end()) return;
    for (const NearRelease& one : near->second)
      if (one.rank == warp.block->rank)
        acquire(warp, one.block, lanes, kBlockReach, acquires == kAtOnce ? kAtOnce : kByAtomic);
      else if (reach >= kClusterReach)
        acquire(warp, one.cluster, lanes, kClusterReach, acquires == kAtOnce ? kAtOnce : kByAtomic);
  });
}

std::unique_lock<std::mutex> race_in_order(const Warp& warp) {
  const Machine& machine = *warp.machine;
  if (!machine.races || !machine.races->locked || !machine.races->observes) return {};
  return std::unique_lock<std::mutex>(machine.races->mutex);
}

void race_observed(Warp& warp, Space space, const uint64_t* address, uint32_t bytes, Access access) {
  if (!warp.races || !warp.machine->races->observes) return;
  std::unique_lock<std::mutex> lock;
  if (access != Access::atomic) lock = race_in_order(warp);
  Machine& machine = *warp.machine;
  const auto pc = static_cast<size_t>(warp.pc);
  const bool reads = (machine.prepared->instructions[pc].flags & kObserves) != 0;
  for_lanes(warp.active, [&](int l) {
    const bool shared =
        space == Space::shared || (space == Space::none && address[l] >> 32 == kSharedWindow >> 32);
    if (!shared && address[l] < kFirstGlobal) return;
    ClusterRaces& cluster = *warp.block->cluster->races;
    RecordTable& table = shared ? cluster.table : machine.races->table;
    if (access == Access::read && table.observed.empty()) return;
    uint32_t record = shared ? warp.races->shared_record[pc] : warp.races->global_record[pc];
    const Record& newest = table.records[record];
    // Where the access was recorded, a release has at most told twice since: after a fence, and by itself.
    // A lane that has found no memory has no record, and the newest is an older one.
    if (newest.clock + 2 < warp.races->now() || newest.cluster != warp.races->cluster) record = 0;
    INVARIANT(!record || (newest.agent == warp.races->agent && newest.pc == warp.pc));
    const uint16_t flags = table.records[record].flags;
    // a narrow scope may not include whoever updates, or observes
    const bool alone = shared && machine.cluster_size == 1;
    const bool narrow = !record || ((flags & kNarrowScope) && !alone);
    const int shift = shared ? machine.races->shared_shift : machine.races->global_shift;
    uint64_t first = address[l];
    if (shared) {
      first &= 0xffffffffu;
      if (first >> kRankShift == 0) first |= (uint64_t{warp.block->rank} + 1) << kRankShift;
    }
    for (uint64_t cell = first >> shift; cell <= (first + bytes - 1) >> shift; ++cell) {
      const uint32_t entry = record << 6 | static_cast<uint32_t>(l);
      if (access == Access::read) {
        const auto found = table.observed.find(cell << shift);
        if (found == table.observed.end() || narrow) continue;
        std::vector<uint32_t>& by = found->second.by;
        if (by.size() < kWalked && std::find(by.begin(), by.end(), entry) == by.end()) by.push_back(entry);
        continue;
      }
      Observed& observed = table.observed[cell << shift];
      observed.broken |= narrow || (access == Access::write && observed.updated);
      observed.updated = true;
      observed.by.clear();
      if (access == Access::atomic && reads && !narrow) observed.by.push_back(entry);
    }
  });
}

}  // namespace workbench::emulator::WORKBENCH_ISA
