// A launch: the program made ready to run, blocks given out to host threads, and one result.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>

#include "counters.hpp"
#include "heap.hpp"
#include "lanes.hpp"
#include "launches.hpp"
#include "mbarrier.hpp"
#include "memory.hpp"
#include "race.hpp"
#include "scheduler.hpp"
#include "standstill.hpp"
#include "trace.hpp"
#include "undefined.hpp"
#include "warpgroup.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr uint64_t kBlockSlice =
    1 << 15;                     // warp instructions of a cluster before another one of the thread's may run
constexpr size_t kTogether = 8;  // clusters that give way to each other before a slice of one is over
constexpr uint64_t kPatience =
    2;  // slices of each cluster of a full device before it is looked at, then twice as many
constexpr uint64_t kFinished = ~uint64_t{0};
constexpr uint8_t kGarbage = 0xa5;  // what shared and local memory hold at first

// ---- decoding

// Carries out an instruction that decides, and notes what came out in the lanes that took part.
void noted_outcome(Warp& warp, const Instruction& instruction) {
  const size_t pc = static_cast<size_t>(warp.pc);
  warp.machine->prepared->deciding[pc](warp, instruction);
  uint8_t& seen = warp.block->cluster->outcomes[pc];
  // a copy of it is carried out on values that are made up, to see what depends on what is undefined
  if (&instruction != warp.machine->code + pc) return;
  for (int k = 0; k < std::min(2, instruction.count); ++k) {
    const Operand& result = instruction.operands[k];
    if ((k == 1 && instruction.access[1] != 'P') || result.slot == kAbsent || (seen >> 2 * k & 3) == 3)
      continue;
    const uint32_t set = lanes_of(source_cells<int32_t>(warp, Operand{result.slot, 4, 0}));
    const int found = (set & warp.active ? kTrue : 0) | (~set & warp.active ? kFalse : 0);
    seen = static_cast<uint8_t>(seen | found << 2 * k);
  }
}

void note_outcomes(const Program& program, Code& code) {
  code.deciding.resize(code.instructions.size());
  for (size_t k = 0; k < code.instructions.size(); ++k) {
    Instruction& instruction = code.instructions[k];
    const std::string& name = operation_table()[static_cast<size_t>(program.rows[k].operation)].name;
    const bool decides = (instruction.count > 0 && instruction.access[0] == 'P') ||
                         (instruction.count > 1 && instruction.access[1] == 'P') ||
                         name.compare(0, 4, "set.") == 0;
    if (!decides || !instruction.function) continue;
    code.deciding[k] = instruction.function;
    instruction.function = noted_outcome;
  }
}

std::shared_ptr<const Code> prepare(const Program& program) {
  const auto& table = operation_table();
  auto code = std::make_shared<Code>();
  code->instructions.resize(program.rows.size());
  code->following.resize(program.rows.size());
  std::vector<size_t> first(program.rows.size());
  for (size_t k = 0; k < program.rows.size(); ++k) {
    const Row& row = program.rows[k];
    first[k] = code->access.size();
    const std::string letters = expand_signature(table[static_cast<size_t>(row.operation)].signature);
    code->access.insert(code->access.end(), letters.begin(), letters.begin() + row.operand_count);
  }
  for (size_t k = 0; k < program.rows.size(); ++k) {
    const Row& row = program.rows[k];
    const Operation& operation = table[static_cast<size_t>(row.operation)];
    Instruction& instruction = code->instructions[k];
    const Function watching = watched(operation, row.flags);
    instruction.function = watching ? watching : operation.function;
    instruction.control = operation.control;
    instruction.operands = program.operands.data() + row.first_operand;
    instruction.access = code->access.data() + first[k];
    instruction.guard = row.guard;
    instruction.guard_negated = row.guard_negated != 0;
    instruction.target = row.target;
    instruction.variant = operation.variant;
    instruction.count = row.operand_count;
    instruction.flags = row.flags;
    instruction.member_operand = static_cast<int16_t>(operation.member_operand);
    instruction.kind = operation.kind;
    instruction.is_product = operation.is_product;
    instruction.proxy = operation.proxy;
    if (operation.unit &&
        std::find(code->units.begin(), code->units.end(), operation.unit) == code->units.end())
      code->units.push_back(operation.unit);
    code->following[k] = following(operation, row.operand_count);
    instruction.is_move = operation.name.compare(0, 4, "mov.") == 0 && row.operand_count >= 2 &&
                          (instruction.access[0] == 'W' || instruction.access[0] == 'D') &&
                          instruction.operands[row.operand_count - 1].slot >= 0;
  }
  note_outcomes(program, *code);
  find_ways_beyond_barriers(*code);
  find_single_tries(*code);
  find_granules(program, *code);
  find_guesses(program, *code);
  find_record_flags(program, *code);
  track_registers(program, *code);
  return code;
}

std::shared_ptr<const Code> prepared(const Program& program) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  auto code = std::dynamic_pointer_cast<const Code>(program.prepared);
  if (!code) program.prepared = code = prepare(program);  // none, or another instruction set's
  return code;
}

// ---- which cluster starts when

// Clusters start in order of their index, except that those which fit on the device together are shuffled:
// hardware promises no order among them.
class Order {
 public:
  Order(int64_t count, int64_t together, uint64_t seed)
      : count_(count), together_(std::max<int64_t>(1, together)), seed_(seed) {}

  int64_t at(int64_t position) {
    const int64_t wave = position / together_;
    if (wave != wave_) shuffle(wave);
    return wave * together_ + wave_order_[static_cast<size_t>(position % together_)];
  }

 private:
  void shuffle(int64_t wave) {
    wave_ = wave;
    const int64_t size = std::min(together_, count_ - wave * together_);
    wave_order_.resize(static_cast<size_t>(size));
    for (int64_t k = 0; k < size; ++k) wave_order_[static_cast<size_t>(k)] = k;
    if (seed_ == 0) return;
    Random random{seed_ + static_cast<uint64_t>(wave)};
    for (size_t k = wave_order_.size(); k > 1; --k)
      std::swap(wave_order_[k - 1], wave_order_[random.below(static_cast<uint32_t>(k))]);
  }

  int64_t count_, together_, wave_ = -1;
  uint64_t seed_;
  std::vector<int64_t> wave_order_;
};

// ---- host threads

using SteadyClock = std::chrono::steady_clock;
constexpr auto kPollInterval = std::chrono::milliseconds(50);

struct Job {  // one of the launches that run together
  Machine machine;
  Order order;
  int64_t next = 0, count;  // clusters that have been started, and that there are
  int64_t resident;         // that the device holds

  Job(int64_t clusters, int64_t together, uint64_t seed)
      : order(clusters, together, seed), count(clusters), resident(together) {}
  // The part of the device that a cluster takes, where a host thread has one of so many of it.
  double room(int64_t thread, int64_t threads) const {
    return 1.0 /
           static_cast<double>(std::max<int64_t>(1, resident / threads + (thread < resident % threads)));
  }
};
using Jobs = std::vector<std::unique_ptr<Job>>;

struct Shared {  // what the host threads of a run share
  std::mutex mutex;
  std::condition_variable ended;
  int64_t running = 0;  // of the other threads
  SteadyClock::time_point start = SteadyClock::now();
  Jobs& jobs;
  LaunchSeries& series;
  Random random;                 // of launches that run together
  int64_t started = 0;           // clusters
  std::atomic<int64_t> stop_at;  // position of the earliest cluster that failed: later ones need not run
  Result* failing = nullptr;     // whose cluster that is
  bool alone;
  std::vector<uint64_t> still;                      // of each host thread, see `stands_still`
  std::pair<int64_t, int32_t> first_ended{-1, -1};  // the first block of those that have ended, and where

  Shared(Jobs& j, LaunchSeries& s, uint64_t seed, size_t threads)
      : jobs(j),
        series(s),
        random{seed},
        stop_at(std::numeric_limits<int64_t>::max()),
        alone(threads == 1),
        still(threads) {}

  // The next cluster of a launch that may begin and fits; null where there is none.
  template <class Fits>
  Job* take(int64_t& position, int64_t& index, const Fits& fits) {
    std::lock_guard<std::mutex> lock(mutex);
    Job* chosen = nullptr;
    uint32_t found = 0;
    for (const std::unique_ptr<Job>& job : jobs) {
      if (job->next >= job->count || !fits(*job)) continue;
      if (!series.may_begin(series.launches[job->machine.number])) continue;
      if (++found == 1 || random.below(found) == 0) chosen = job.get();
    }
    if (!chosen || started >= stop_at) return nullptr;
    if (chosen->next == 0) launch_begins(series.launches[chosen->machine.number], series);
    position = started++;
    index = chosen->order.at(chosen->next++);
    return chosen;
  }
  // A cluster of a launch that has not started, and now never will; -1: none. A device may refuse also where
  // some are left, so that with a seed every fourth request is refused.
  int64_t cancel(Job& job) {
    std::lock_guard<std::mutex> lock(mutex);
    if (job.next >= job.count || (job.machine.launch->seed && random.below(4) == 0)) return -1;
    launch_cluster_cancelled(job.machine);
    return job.order.at(job.next++);
  }
  void failed(int64_t position, const Fault& fault, const Cluster& cluster) {
    std::lock_guard<std::mutex> lock(mutex);
    if (position >= stop_at) return;
    // With one host thread, what happens first is the same in every run. And a block that another one waits
    // for is gone, so that nobody else's finding is worth anything.
    stop_at = alone || fault.kind == FaultKind::race ? -1 : position;
    if (failing) failing->fault = Fault{}, failing->waiting.clear();
    Result* result = failing = machine_of(fault, cluster).result;
    result->fault = fault;
    if (fault.kind == FaultKind::deadlock || fault.kind == FaultKind::budget ||
        fault.kind == FaultKind::barrier_diverged || fault.kind == FaultKind::race)
      result->waiting = cluster.waiting();
  }

  // A race between launches counts for the later one.
  const Machine& machine_of(const Fault& fault, const Cluster& cluster) const {
    return fault.launch < 0 ? *cluster.machine : *series.launches[static_cast<size_t>(fault.launch)].machine;
  }

  // How many clusters wait until another one ends, and the first of them.
  int64_t not_started(Job& job, int64_t& first) {
    std::lock_guard<std::mutex> lock(mutex);
    if (job.next < job.count) first = job.order.at(job.next);
    return job.count - job.next;
  }

  // A host thread is full, and all that it runs goes round in loops while global memory is `digest`; 0: it
  // goes on. True when that is so of all host threads.
  bool stands_still(size_t thread, uint64_t digest) {
    std::lock_guard<std::mutex> lock(mutex);
    still[thread] = digest;
    return digest && std::all_of(still.begin(), still.end(),
                                 [&](uint64_t each) { return each == digest || each == kFinished; });
  }
  void finished(size_t thread) {  // it has no clusters any more
    std::lock_guard<std::mutex> lock(mutex);
    still[thread] = kFinished;
  }
  void block_ended(const Block& block) {
    std::lock_guard<std::mutex> lock(mutex);
    if (first_ended.first < 0 || block.id < first_ended.first) first_ended = {block.id, block.exit_pc};
  }
  // No block can go on until one ends that waits for it: all blocks of this host thread say where they are.
  void not_resident(const Fault& fault, const std::vector<Waiting>& waiting) {
    std::lock_guard<std::mutex> lock(mutex);
    if (stop_at < 0) return;
    stop_at = -1;
    jobs[0]->machine.result->fault = fault;
    jobs[0]->machine.result->waiting = waiting;
  }
};

// Asks whoever launched whether to give up; only the thread that launched may.
class Poll {
 public:
  Poll(const Launch& launch, Shared& shared, bool may_ask)
      : asks_(may_ask && launch.interrupted),
        launch_(launch),
        shared_(shared),
        next_(shared.start + kPollInterval) {}
  void operator()() {
    if (!asks_ || SteadyClock::now() < next_) return;
    next_ = SteadyClock::now() + kPollInterval;
    if (!launch_.interrupted()) return;
    asks_ = false;
    std::lock_guard<std::mutex> lock(shared_.mutex);
    for (const std::unique_ptr<Job>& job : shared_.jobs) job->machine.result->interrupted = true;
    shared_.stop_at = -1;
  }

 private:
  bool asks_;
  const Launch& launch_;
  Shared& shared_;
  SteadyClock::time_point next_;
};

// A launch has so many seconds; past them, the cluster that is running is what hangs.
void check_seconds(const Launch& launch, const Shared& shared, const Cluster& cluster) {
  const std::chrono::duration<double> passed = SteadyClock::now() - shared.start;
  if (launch.seconds > 0 && passed.count() > launch.seconds)
    throw cluster.hung(static_cast<int64_t>(launch.seconds * 1000), true);
}

// One host thread: runs its clusters in turn, and only starts another one when all of them need longer than a
// slice, or one of a few gives way.
class Worker {
 public:
  Worker(Shared& shared, size_t number, int64_t threads, Poll& poll)
      : shared_(shared),
        first_(*shared.jobs[0]),
        together_(shared.jobs.size() > 1),
        number_(number),
        threads_(threads),
        poll_(poll) {}

  void work() {
    for (;;) {
      Running cluster = next();
      if (!cluster) break;
      const uint64_t fuel = together_            ? uint64_t{1} << (4 + shared_.random.below(10))
                            : cluster->fuel_left ? cluster->fuel_left
                                                 : kBlockSlice;
      const bool ended = guarded(*cluster, [&] { return cluster->run(fuel); });
      const bool gave_way = cluster->fuel_left > 0;
      put_back(std::move(cluster), ended);
      if (gave_way || together_) continue;
      const double part = full() ? room(first_) : all_begun() ? 1.0 / static_cast<double>(held() + 1) : 0;
      if (part > 0 && static_cast<double>(++slices_) * part >= static_cast<double>(patience_))
        look_for_standstill();
    }
    shared_.finished(number_);
    if (!parked_.empty()) throw std::logic_error("launches wait for each other");
    add_up();
  }

 private:
  using Running = std::unique_ptr<Cluster>;

  size_t held() const { return running_.size() + giving_way_.size(); }
  double room(const Job& job) const { return job.room(static_cast<int64_t>(number_), threads_); }
  bool fits(const Job& job) const { return occupied_ + room(job) < 1 + 1e-6; }
  bool full() const { return !fits(first_); }
  bool all_begun() const {
    int64_t first = 0;
    return shared_.not_started(first_, first) == 0;
  }

  // A new cluster while there is room and few give way to each other, else the one of these, or of the
  // others, that has waited longest; none when all have ended.
  Running next() {
    int64_t position, index;
    Running cluster;
    const bool enough = (together_ ? running_ : giving_way_).size() >= kTogether,
               wants = !enough && (!together_ || running_.empty() || shared_.random.below(2));
    Job* job = wants ? shared_.take(position, index, [&](const Job& one) { return fits(one); }) : nullptr;
    if (job) {
      cluster = new_cluster(job->machine);
      occupied_ += room(*job);
      cluster->order = position;
      cluster->start(index);
      goes_on();
    } else if (together_) {
      cluster = any_running();
    } else if (held()) {
      turn_ = !turn_;
      auto& queue = running_.empty() || (!giving_way_.empty() && (enough || turn_)) ? giving_way_ : running_;
      // those that would only read again what has not changed let others go first
      for (size_t k = queue.size(); k > 0 && queue.front()->polls_in_vain(); --k) {
        queue.push_back(std::move(queue.front()));
        queue.pop_front();
      }
      cluster = std::move(queue.front());
      queue.pop_front();
    }
    return cluster;
  }

  Running new_cluster(Machine& machine) {
    const auto fitting = std::find_if(idle_.rbegin(), idle_.rend(),
                                      [&](const Running& one) { return one->machine == &machine; });
    Running cluster;
    if (fitting == idle_.rend()) {
      cluster = std::make_unique<Cluster>();
      cluster->machine = &machine;
    } else {
      cluster = std::move(*fitting);
      idle_.erase(std::next(fitting).base());
    }
    return cluster;
  }

  // Of launches that run together: one of the clusters that need not wait for another launch's end.
  Running any_running() {
    if (running_.empty() && shared_.stop_at < 0) std::swap(running_, parked_);  // they end: something failed
    if (running_.empty()) return nullptr;
    const size_t drawn = shared_.random.below(static_cast<uint32_t>(running_.size()));
    std::swap(running_[drawn], running_.back());
    Running cluster = std::move(running_.back());
    running_.pop_back();
    return cluster;
  }

  // Whether the cluster has ended after `run`, by a fault or because another one has failed, too.
  template <class Run>
  bool guarded(Cluster& cluster, const Run& run) {
    bool ended = true;
    try {
      if (cluster.order <= shared_.stop_at) ended = run();
      if (!ended) check_seconds(*cluster.machine->launch, shared_, cluster);
      if (ended) {
        if (cluster.order <= shared_.stop_at) carry_out_copies(cluster);
        cluster.report_suspected();
      }
    } catch (const Fault& fault) {
      ended = true;
      const FaultKind suspected = cluster.suspected.kind;
      const bool says_more = fault.kind == FaultKind::race || suspected == FaultKind::none ||
                             (fault.kind == FaultKind::in_flight && suspected != FaultKind::race);
      Fault found = fault;
      if (!says_more) try {
          cluster.report_suspected();  // which came first, and may not be what ends the launch
        } catch (const Fault& first) {
          found = first;
        }
      if (found.kind == FaultKind::budget && full()) found = while_full(found);
      shared_.failed(cluster.order, found, cluster);
    }
    poll_();
    return ended;
  }

  void put_back(Running cluster, bool ended) {
    if (!ended) {
      const bool waits = together_ && cluster->waits_for_launches();
      (waits                              ? parked_
       : cluster->fuel_left && !together_ ? giving_way_
                                          : running_)
          .push_back(std::move(cluster));
      return;
    }
    goes_on();
    for (const Block& block : cluster->blocks) cluster->executed += block.executed;
    shared_.block_ended(cluster->blocks.front());
    const bool launch_ended = launch_cluster_ended(*cluster);
    for (const std::unique_ptr<Job>& job : shared_.jobs)
      if (&job->machine == cluster->machine) occupied_ -= room(*job);
    idle_.push_back(std::move(cluster));
    if (!launch_ended) return;
    for (size_t k = 0; k < parked_.size();)
      if (launch_released(*parked_[k])) {
        running_.push_back(std::move(parked_[k]));
        parked_.erase(parked_.begin() + static_cast<std::ptrdiff_t>(k));
      } else {
        ++k;
      }
  }

  void goes_on() {
    slices_ = 0;
    patience_ = kPatience;
    shared_.stands_still(number_, 0);
  }

  // The device is full, and blocks have not begun: whether those that have can end. Global memory may be
  // large: it is only compared where nothing else speaks against it.
  void look_for_standstill() {
    slices_ = 0;
    patience_ *= 2;
    int64_t first = 0;
    const Launch& launch = *first_.machine.launch;
    const int64_t left = shared_.not_started(first_, first);
    std::vector<Waiting> waiting;
    uint64_t memory = 0;
    if (all_circle(waiting)) {
      memory = digest_of_global_memory(launch);
      if (!all_circle(waiting) || digest_of_global_memory(launch) != memory) memory = 0;
    }
    if (shared_.stands_still(number_, memory)) report(waiting, left, first);
  }

  // Whether all clusters go round in loops; then also where they wait.
  bool all_circle(std::vector<Waiting>& waiting) {
    waiting.clear();
    std::move(giving_way_.begin(), giving_way_.end(), std::back_inserter(running_));
    giving_way_.clear();
    for (size_t k = running_.size(); k > 0; --k) {
      Running cluster = std::move(running_.front());
      running_.pop_front();
      Motion motion = Motion::ended;
      int32_t loads_at = -1;
      const bool ended = guarded(*cluster, [&] {
        motion = watch_motion(*cluster, loads_at);
        return motion == Motion::ended;
      });
      if (motion == Motion::circles)
        for (Waiting wait : cluster->waiting()) {
          if (wait.reason == WaitReason::none && loads_at >= 0) wait.pc = loads_at;
          waiting.push_back(wait);
        }
      put_back(std::move(cluster), ended);
      if (ended || motion != Motion::circles) return false;
    }
    return true;
  }

  // A block hangs while others have not begun: perhaps it waits for one of these.
  Fault while_full(Fault hung) {
    int64_t first = 0;
    const Launch& launch = *first_.machine.launch;
    if (const int64_t left = together_ ? 0 : shared_.not_started(first_, first)) {
      hung.address = static_cast<uint64_t>(left * first_.machine.cluster_size);
      hung.other_block = block_id(launch.grid, launch.cluster, static_cast<uint32_t>(first), 0);
    }
    return hung;
  }

  void report(const std::vector<Waiting>& waiting, int64_t left, int64_t first) {
    const Launch& launch = *first_.machine.launch;
    const int64_t size = first_.machine.cluster_size;
    Fault fault;
    fault.kind = FaultKind::not_resident;
    for (const Waiting& wait : waiting)
      if (wait.reason == WaitReason::none) {
        fault.pc = wait.pc;
        fault.block = wait.block;
        fault.warp = wait.warp;
        fault.lane = __builtin_ctz(wait.lanes);
        break;
      }
    fault.info = std::max<int64_t>(1, launch.resident_blocks / size) * size;
    fault.detail = left * size;
    fault.other_block = block_id(launch.grid, launch.cluster, static_cast<uint32_t>(first), 0);
    if (left == 0) {
      fault.kind = FaultKind::budget;
      fault.detail = 2;
      std::tie(fault.other_block, fault.other_pc) = shared_.first_ended;
    }
    shared_.not_resident(fault, waiting);
  }

  void add_up() {
    std::lock_guard<std::mutex> lock(shared_.mutex);
    for (const auto& cluster : idle_) {
      Result& result = *cluster->machine->result;
      add_counters(*cluster, result);
      add_trace(*cluster, result);
      result.switches += cluster->switches;
      result.instructions += cluster->executed;
      for (size_t k = 0; k < cluster->counts.size(); ++k) {
        result.counts[k] += cluster->counts[k];
        result.outcomes[k] |= cluster->outcomes[k];
      }
    }
  }

  Shared& shared_;
  Job& first_;
  const bool together_;  // several launches, which one host thread executes
  const size_t number_;
  const int64_t threads_;
  Poll& poll_;
  double occupied_ = 0;                       // of the device
  std::deque<Running> giving_way_, running_;  // within a slice, and with a new one
  std::deque<Running> parked_;                // for the end of another launch
  std::vector<Running> idle_;
  bool turn_ = false;                           // of those that give way
  uint64_t slices_ = 0, patience_ = kPatience;  // since a cluster has begun or ended
};

}  // namespace

int64_t linear(const Launch& launch, const uint32_t* block) {
  return block[0] + int64_t{launch.grid[0]} * (block[1] + int64_t{launch.grid[1]} * block[2]);
}

void place_cluster(const Launch& launch, int64_t index, uint32_t* position) {
  uint32_t clusters[3];
  for (int d = 0; d < 3; ++d) clusters[d] = launch.grid[d] / launch.cluster[d];
  position[0] = static_cast<uint32_t>(index % clusters[0]);
  position[1] = static_cast<uint32_t>(index / clusters[0] % clusters[1]);
  position[2] = static_cast<uint32_t>(index / clusters[0] / clusters[1]);
}

void allocate(Block& block) {
  Machine& machine = *block.machine;
  const Launch& launch = *machine.launch;
  const size_t warps = machine.warps_per_block,
               register_bytes = static_cast<size_t>(machine.program->register_bytes);
  block.register_storage.resize(warps * register_bytes);
  uint8_t* registers = block.registers =
      block.register_storage.data();  // aligned as every recycled buffer is
  block.local_storage.resize(warps * kLanes * launch.local_bytes);
  block.local_written.resize(block.local_storage.size());
  block.shared.resize(launch.shared_bytes);
  block.shared_written.resize(launch.shared_bytes);
  block.in_flight.resize(launch.shared_bytes / 4 + 1);
  block.warps.resize(warps);
  for (size_t w = 0; w < warps; ++w) {
    Warp& warp = block.warps[w];
    warp.block = &block;
    warp.machine = &machine;
    warp.id = static_cast<int32_t>(w);
    warp.registers = registers + w * register_bytes;
    warp.constants = launch.constants;
    warp.local = block.local_storage.data() + w * kLanes * launch.local_bytes;
    warp.local_written = WrittenBytes(
        block.local_written.view().part(w * kLanes * launch.local_bytes, kLanes * launch.local_bytes));
    const uint32_t threads = machine.threads_per_block - static_cast<uint32_t>(w) * kLanes;
    warp.exists = threads >= kLanes ? ~0u : (1u << threads) - 1;
  }
}

void reset(Block& block, const uint32_t* cluster_position, const uint32_t* within) {
  const Machine& machine = *block.machine;
  const Launch& launch = *machine.launch;
  for (int d = 0; d < 3; ++d) block.position[d] = cluster_position[d] * launch.cluster[d] + within[d];
  block.id = linear(launch, block.position);
  std::fill(block.shared.begin(), block.shared.end(), kGarbage);
  block.shared_written.assign(kNeverWritten);
  std::fill(block.shared.end() - launch.reserved_bytes, block.shared.end(), uint8_t{0});
  written_in(block).mark(launch.shared_bytes - launch.reserved_bytes, launch.reserved_bytes);
  block.in_flight.assign(0);
  std::fill(block.local_storage.begin(), block.local_storage.end(), kGarbage);
  block.local_written.assign(kNeverWritten);
  block.words_in_flight = 0;
  block.mbarriers.clear();
  block.initialisations = 0;
  block.stores.clear();
  block.products_in_flight = 0;
  block.acquired_maps.clear();
  block.warpgroups.clear();
  block.free_registers = 0;
  block.exit_pc = -1;
  block.alive = machine.threads_per_block;
  block.executed = block.ticks = 0;
  block.triggered = false;
  for (NamedBarrier& barrier : block.barriers) barrier = NamedBarrier{};
  block.leaver = Leaver{};
  // registers keep no value from the block before: what a kernel reads uninitialised is the same in every run
  std::memset(block.registers, 0, block.warps.size() * static_cast<size_t>(machine.program->register_bytes));

  for (Warp& warp : block.warps) {
    warp.groups.clear();
    warp.groups.push_back({warp.exists, 0});
    warp.alive = warp.exists;
    warp.apart = false;
    warp.active = 0;
    warp.pc = 0;
    warp.rotate = false;
    warp.turn = 0;
    warp.ran = 0;
    warp.last_allocation = nullptr;
    warp.carry = 0;
    warp.copies.clear();
    warp.copy_sequence = 0;
    warp.copy_arrivals.clear();
    warp.products.clear();
    warp.locked.clear();
    warp.product_group = 0;
    warp.fences = 0;
    if (!machine.prepared->untracked.empty())
      warp.written.assign(static_cast<size_t>(machine.program->register_bytes / 128) + 1, RegisterWrite{});
    warp.thread_registers = launch.registers ? launch.registers : kUnknownRegisters;
    for (int l = 0; l < kLanes; ++l) warp.copy_group[l] = warp.bulk_group[l] = warp.cluster_phase[l] = 0;

    auto* special = reinterpret_cast<uint32_t*>(warp.registers + machine.program->special_offset);
    const int64_t first_sm = launch.seed ? Random{launch.seed}.below(132) : 0;
    // a multiprocessor has 64 places for warps; the first warp of a block is in any of those of its scheduler
    const int64_t first_warp =
        launch.seed ? 4 * Random{launch.seed + static_cast<uint64_t>(block.id)}.below(16) : 0;
    const auto set = [&](Special which, int lane, uint32_t value) {
      special[static_cast<int>(which) * kLanes + lane] = value;
    };
    for (int l = 0; l < kLanes; ++l) {
      const uint32_t thread = static_cast<uint32_t>(warp.id * kLanes + l), bit = 1u << l;
      set(Special::tid_x, l, thread % launch.block[0]);
      set(Special::tid_y, l, thread / launch.block[0] % launch.block[1]);
      set(Special::tid_z, l, thread / launch.block[0] / launch.block[1]);
      set(Special::laneid, l, static_cast<uint32_t>(l));
      set(Special::warpid, l, static_cast<uint32_t>((warp.id + first_warp) % 64));
      set(Special::smid, l, static_cast<uint32_t>((block.id + first_sm) % 132));
      for (int d = 0; d < 3; ++d) {
        set(static_cast<Special>(static_cast<int>(Special::ctaid_x) + d), l, block.position[d]);
        set(static_cast<Special>(static_cast<int>(Special::clusterid_x) + d), l, cluster_position[d]);
        set(static_cast<Special>(static_cast<int>(Special::cluster_ctaid_x) + d), l, within[d]);
      }
      set(Special::cluster_ctarank, l, block.rank);
      set(Special::lanemask_eq, l, bit);
      set(Special::lanemask_lt, l, bit - 1);
      set(Special::lanemask_le, l, bit | (bit - 1));
      set(Special::lanemask_gt, l, ~(bit | (bit - 1)));
      set(Special::lanemask_ge, l, ~(bit - 1));
    }
  }
}

namespace {

std::unique_ptr<Job> make_job(const Work& work, const std::shared_ptr<LaunchSeries>& series) {
  const Launch& launch = *work.launch;
  const uint32_t size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
  const int64_t blocks = int64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  auto job =
      std::make_unique<Job>(blocks / size, std::max<int64_t>(1, launch.resident_blocks / size), launch.seed);
  Machine& machine = job->machine;
  machine.result = work.result;
  machine.program = work.program;
  machine.launch = work.launch;
  machine.threads_per_block = launch.block[0] * launch.block[1] * launch.block[2];
  machine.warps_per_block = (machine.threads_per_block + kLanes - 1) / kLanes;
  machine.cluster_size = size;
  machine.check_initialised = (launch.checks & kCheckInitialised) != 0;
  machine.check_in_flight = (launch.checks & kCheckInFlight) != 0;
  machine.check_exited = (launch.checks & kCheckExitedMembers) != 0;
  machine.prepared = prepared(*work.program);
  machine.code = machine.prepared->instructions.data();
  machine.series = series;
  start_heap(machine);
  start_counters(machine);
  start_trace(machine);
  work.result->counts.assign(work.program->rows.size(), 0);
  work.result->outcomes.assign(work.program->rows.size(), 0);
  join_series(machine, *series);
  start_races(machine);
  return job;
}

}  // namespace

void run_launches(const std::vector<Work>& works, std::shared_ptr<Series>& given) {
  auto series = std::dynamic_pointer_cast<LaunchSeries>(given);  // none, or another instruction set's
  if (!series) given = series = std::make_shared<LaunchSeries>();
  const uint32_t first = static_cast<uint32_t>(series->launches.size());
  Jobs jobs;
  for (const Work& work : works) jobs.push_back(make_job(work, series));
  for (const std::unique_ptr<Job>& job : jobs) {
    job->machine.together = jobs.size() > 1;
    series->launches[job->machine.number].machine = &job->machine;
  }
  const Launch& launch = *works[0].launch;
  // each host thread owns part of the residency, and together they never hold more than the device would
  const int64_t most = jobs.size() > 1 ? 1 : std::min<int64_t>(jobs[0]->count, jobs[0]->resident);
  const int64_t threads = std::max<int64_t>(1, std::min<int64_t>(launch.threads, most));
  Shared shared(jobs, *series, launch.seed, static_cast<size_t>(threads));
  for (const std::unique_ptr<Job>& job : jobs)
    job->machine.cancel = [&shared, &one = *job] { return shared.cancel(one); };
  if (series->races) series->races->locked = threads > 1;
  std::vector<std::thread> others;
  Poll poll(launch, shared, true);
  shared.running = threads - 1;
  for (int64_t k = 1; k < threads; ++k)
    others.emplace_back([&, k] {
      Poll nobody(launch, shared, false);
      Worker(shared, static_cast<size_t>(k), threads, nobody).work();
      std::lock_guard<std::mutex> lock(shared.mutex);
      --shared.running;
      shared.ended.notify_one();
    });
  Worker(shared, 0, threads, poll).work();
  const auto all_ended = [&] { return shared.running == 0; };
  for (std::unique_lock<std::mutex> lock(shared.mutex);
       !shared.ended.wait_for(lock, kPollInterval, all_ended);) {
    lock.unlock();
    poll();
    lock.lock();
  }
  for (std::thread& thread : others) thread.join();
  for (const std::unique_ptr<Job>& job : jobs) end_heap(job->machine);
  for (size_t k = first; k < series->launches.size(); ++k) series->launches[k].machine = nullptr;
}

}  // namespace workbench::emulator::WORKBENCH_ISA
