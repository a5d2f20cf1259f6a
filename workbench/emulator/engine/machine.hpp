// The state of a running launch: warps in blocks, blocks in clusters, and the table of operations that act on
// them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "async_unit.hpp"
#include "cells.hpp"
#include "engine.hpp"
#include "isa.hpp"
#include "recycled.hpp"
#include "tensor_walk.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

struct Warp;
struct Block;
struct Cluster;
struct Machine;
struct Instruction;

// What race.hpp keeps; null where races are not looked for.
struct Clock;
struct WarpRaces;
struct BlockRaces;
struct ClusterRaces;
struct MachineRaces;
// Of several launches, what launches.hpp keeps.
struct LaunchSeries;

// What counters.hpp keeps; null where nothing is counted.
struct ClusterCounters;
struct MachineCounters;
// What undefined.hpp keeps; null until a value is undefined.
struct WarpUndefined;
struct ClusterUndefined;
struct Following;

// What trace.hpp keeps; null where no timeline is wanted.
struct ClusterTrace;
struct MachineTrace;

// ---- operations

// What lanes do after a control operation: `stay` go on with the next instruction, the others have been dealt
// with.
struct Flow {
  uint32_t stay;
  bool yield = false;  // let another warp run first
};

using Function = void (*)(Warp&, const Instruction&);
using Control = Flow (*)(Warp&, const Instruction&, uint32_t lanes);

// Of a branch on a condition: the side from where no barrier of the block can be reached, where there is one.
enum class BeyondBarriers : uint8_t { none, taken, not_taken };

enum class Kind : uint8_t {
  straight,  // every active lane for itself, then the next instruction
  member,    // once all lanes of a member mask are here
  aligned,   // once the whole warp is here
  branch,
  control,  // everything else that parks, ends or yields
};

// Through what an instruction reads and writes memory. cp.async goes through the generic proxy, but kernels
// hand its tiles to wgmma without a proxy fence, and are not blamed for it. A product of tcgen05 is of the
// async proxy; a fence that is missing in front of it is a fault of its own.
enum class Proxy : uint8_t { generic, copy, async, product };

struct Operation {
  std::string name, signature;
  Kind kind = Kind::straight;
  Function function = nullptr;
  Control control = nullptr;
  int variant = 0;          // a constant for the function, where a template parameter would only cost code
  int member_operand = -1;  // which operand holds the member mask
  Proxy proxy = Proxy::generic;
  bool is_product = false;  // a wgmma
  MakeUnit unit = nullptr;  // the asynchronous unit that executes it
};

class Table {
 public:
  void add(std::string name, std::string signature, Function function, int variant = 0);
  // The same for a name in parts: strings that templates put together take a compiler longer than all else.
  void add(std::initializer_list<const char*> name, const char* signature, Function function,
           int variant = 0);
  void add_member(std::string name, std::string signature, Function function, int member_operand,
                  int variant = 0);
  void add_aligned(std::string name, std::string signature, Function function, int variant = 0);
  void add_control(std::string name, std::string signature, Control control, int variant = 0);
  void add_branch(std::string name);
  // The operation added last is one of an asynchronous unit's.
  void of_unit(MakeUnit unit, Proxy proxy = Proxy::generic) {
    operations_.back().unit = unit;
    operations_.back().proxy = proxy;
  }
  const std::vector<Operation>& operations() const { return operations_; }

 private:
  std::vector<Operation> operations_;
};

const std::vector<Operation>& operation_table();

void list_operations(std::vector<OperationInfo>& all);

// One letter for each operand, "W2a" is "WWa"; and for each letter whether the operand may be absent, '?' or
// ' '.
std::string expand_signature(const std::string& signature, std::string* optional = nullptr);

void add_integer_operations(Table&);
void add_bit_operations(Table&);
void add_float_operations(Table&);
void add_half_operations(Table&);
void add_directed_rounding_operations(Table&);
void add_compare_operations(Table&);
void add_move_operations(Table&);
void add_convert_operations(Table&);
void add_memory_operations(Table&);
void add_atomic_operations(Table&);
void add_warp_operations(Table&);
void add_matrix_operations(Table&);
void add_wgmma_operations(Table&);
void add_tcgen05_operations(Table&);
void add_wmma_operations(Table&);
void add_mbarrier_operations(Table&);
void add_copy_operations(Table&);
void add_bulk_operations(Table&);
void add_remote_operations(Table&);
void add_launch_control_operations(Table&);
void add_narrow_operations(Table&);
void add_block_scaled_operations(Table&);
void add_control_operations(Table&);
void add_warpgroup_operations(Table&);
void add_print_operations(Table&);
void add_texture_operations(Table&);
void add_heap_operations(Table&);

struct Instruction {
  Function function;
  Control control;
  const Operand* operands;
  const char* access;  // the signature letter of each operand
  int32_t guard, target, variant, count, flags;
  int16_t member_operand;
  Kind kind;
  BeyondBarriers beyond;
  bool guard_negated;
  bool is_move;  // mov of registers, also one that packs or unpacks them
  bool is_product;
  Proxy proxy;
};

// ---- asynchronous work not yet done

struct CopyToShared {  // one lane's cp.async
  uint32_t destination;
  const uint8_t* source;
  uint64_t global;       // its address
  bool unwritten;        // perhaps, in part
  uint32_t bytes, size;  // read, written; the rest is zeros
  uint32_t group;        // of the lane
  uint64_t sequence;
  int32_t lane, pc;
};

struct ArriveAfterCopies {  // one lane's cp.async.mbarrier.arrive
  Block* block;
  uint32_t barrier;
  uint64_t sequence;  // of the lane's copies issued before it
  int32_t lane, pc;
};

struct MatrixProduct {  // one warp's share of a wgmma, or a mov of registers that one is going to write
  const Instruction* instruction;
  int32_t pc;
  bool is_move;
  bool computed;  // and only the warp has not waited for it
  uint32_t group;
  uint32_t lanes;  // of a move
  uint64_t descriptor_a, descriptor_b;
  uint32_t low, high;  // bounds of the shared memory that it reads
  bool accumulate, transpose_a, transpose_b;
  float sign;
  int selector;  // of a sparse A, as its metadata, which is taken when the product is issued
  uint32_t metadata[kLanes];
};

struct Transfer {   // a bulk copy: TMA tile or plain run of bytes
  TilePlace tile;   // its map is null: a plain run
  uint64_t map;     // address of the map, which the copy reads until it has landed
  Block* block;     // whose shared memory it writes, or reads when it is a store
  uint32_t shared;  // offset there
  uint32_t bytes;
  uint64_t global;  // address of a plain run
  Block* source;    // of a copy from shared to shared memory, else null
  uint32_t source_offset;
  Block* barrier_block;  // of the mbarrier told when it lands
  uint32_t barrier;
  bool immediate;                   // what it writes comes from registers
  uint8_t payload[16];              // this
  uint64_t phase;                   // of the mbarrier when the copy was issued
  int32_t reduction, element_type;  // -1: none
  uint32_t group;                   // of the lane, for stores
  Block* issuer;
  std::shared_ptr<const Clock> issued;  // what was known then, for loads; see race.hpp
  int32_t warp, lane, pc;
};

// ---- barriers

// What the lanes of a warp have passed in their waits for an mbarrier.
struct Passed {
  uint64_t phases = 0;        // that had ended when a wait last passed
  uint32_t lanes = 0;         // of the warp, that have passed since
  uint32_t again = 0;         // lanes that first passed the end of a phase a second time
  int32_t again_pc = 0;       // where they did
  uint64_t again_phases = 0;  // that had ended then
};

struct Mbarrier {
  uint32_t address;
  bool valid;
  int32_t expected, pending;  // arrivals
  int64_t transactions;       // bytes announced and not yet arrived
  uint64_t phase;
  int32_t pc;                     // of its initialisation
  int32_t expect_pc;              // of the newest expect_tx
  uint64_t signature;             // what its bytes hold until something else is stored there
  std::vector<uint32_t> arrived;  // in this phase, of each warp of the cluster: lanes
  int32_t again_pc;               // where one of them first came a second time; -1: nowhere
  std::vector<Passed> passed;     // of each warp of the block
};

struct NamedBarrier {
  int32_t expected = 0;  // threads; 0: all of the block
  int32_t arrived = 0;   // by bar.arrive
  int32_t first_pc = -1;
  bool in_use = false;
};

struct Leaver {  // of the block's barriers: the newest thread that has gone where it comes to none any more
  int32_t pc = -1, warp = -1, lane = -1;  // the branch
};

enum class Wait : uint8_t {
  none,
  barrier,
  mbarrier,
  member,
  aligned,
  warp_barrier,
  cluster,
  registers,
  warpgroup,
  unit,
  grid,
};

struct Polled {  // what a warp's newest atomic or ordered access has read, and how often in turn
  int32_t pc = -1;
  uint32_t times = 0, bytes = 0;
  const uint8_t* place = nullptr;
  uint64_t value = 0;  // in its first bytes
  bool changed() const { return std::memcmp(place, &value, bytes) != 0; }
};

struct Group {  // lanes of a warp that share a program counter
  uint32_t mask;
  int32_t pc;
  Wait wait = Wait::none;
  uint64_t key = 0;       // barrier number, mbarrier address, member mask
  uint64_t expected = 0;  // barrier: lanes that must not exit meanwhile; mbarrier: the phase that must end;
                          // warpgroup: the first group of products that is not waited for
};

// ---- warpgroups

struct WarpgroupStep {
  int32_t pc;
  uint32_t registers;  // of setmaxnreg: twice their number, plus 1 where it is .inc; else 0
};

struct Warpgroup {                  // the instructions that its warps execute together
  std::deque<WarpgroupStep> steps;  // that not all warps have executed yet
  uint64_t first = 0;               // number of the first of them
  uint64_t done[4] = {};            // by each warp
};

struct RegisterWrite {  // the newest, to a register that a wgmma uses
  uint32_t fence = 0;   // wgmma.fences that the warp had executed
  int32_t pc = -1;
};

constexpr uint32_t kUnknownRegisters = ~0u;

// ---- the hierarchy

struct alignas(64) Warp {
  alignas(64) int32_t lane_mask[kLanes];  // active, as 0 or -1
  uint32_t active = 0;
  int32_t pc = 0;
  uint8_t* registers = nullptr;
  const uint8_t* constants = nullptr;
  uint8_t* local = nullptr;
  WrittenBytes local_written;  // of all lanes, one after the other
  Block* block = nullptr;
  Machine* machine = nullptr;
  int32_t id = 0;
  uint32_t exists = 0, alive = 0;
  bool apart = false;  // its lanes have taken different ways, and not come together for certain since
  std::array<uint32_t, kLanes> way{};  // of lanes that are apart: those of one way are together
  uint32_t ways = 0;
  void take_one_way(uint32_t lanes) {
    ++ways;
    for (; lanes; lanes &= lanes - 1) way[static_cast<size_t>(__builtin_ctz(lanes))] = ways;
  }
  std::vector<Group> groups;
  bool rotate = false;  // a time slice ended: the next run starts with another group, in turn
  int turn = 0;
  Polled polled;
  const Allocation* last_allocation = nullptr;

  uint32_t carry = 0;  // of add.cc and its like, a bit a lane
  uint32_t copy_group[kLanes] = {};
  uint64_t copy_sequence = 0;
  std::vector<CopyToShared> copies;
  std::vector<ArriveAfterCopies> copy_arrivals;
  uint32_t product_group = 0;
  std::vector<MatrixProduct> products;
  std::vector<uint8_t> locked;         // cells of accumulators in flight; empty when there are none
  uint32_t fences = 0;                 // wgmma.fences executed
  std::vector<RegisterWrite> written;  // by cell, where they are tracked
  uint32_t thread_registers = 0;       // that each thread holds
  uint32_t bulk_group[kLanes] = {};
  uint32_t cluster_phase[kLanes] = {};
  std::shared_ptr<WarpRaces> races;
  uint32_t run_until = 0;       // executed instructions at which it stops; earlier if it gives way
  uint32_t ran = 0;             // of its time slice, before it gave way
  bool tracking = false;        // some register holds an undefined value
  bool read_unwritten = false;  // the load being executed found bytes that nothing has written
  std::shared_ptr<WarpUndefined> undefined;

  [[noreturn]] void fault(FaultKind kind, int lane, uint64_t address = 0, Space space = Space::none,
                          int64_t info = 0, int64_t detail = 0, int other_pc = -1) const;
  // The same where the launch can go on; see `report`.
  void finding(FaultKind kind, int lane, uint64_t address = 0, Space space = Space::none, int64_t info = 0,
               int64_t detail = 0, int other_pc = -1) const;
  void set_active(uint32_t mask) {
    active = mask;
    for (int l = 0; l < kLanes; ++l) lane_mask[l] = -static_cast<int32_t>(mask >> l & 1u);
  }
  void next_turn() {
    rotate = true;
    ++turn;
  }
  bool runnable() const {
    for (const Group& group : groups)
      if (group.wait == Wait::none) return true;
    return false;
  }
};

struct Block {
  Cluster* cluster = nullptr;
  Machine* machine = nullptr;
  int64_t id = 0;
  uint32_t rank = 0;
  uint32_t position[3] = {};
  std::vector<Warp> warps;
  uint8_t* registers = nullptr;  // of all warps, in register_storage
  RecycledVector<uint8_t> register_storage, local_storage, shared;
  StoredCells<uint8_t> local_written, shared_written;
  StoredCells<int32_t> in_flight;  // for each 4 bytes: pc + 1 of the copy on its way there
  int64_t words_in_flight = 0;
  std::vector<Mbarrier> mbarriers;
  uint32_t initialisations = 0;  // of mbarriers
  NamedBarrier barriers[16];
  Leaver leaver;
  std::vector<Transfer> stores;  // bulk stores issued here that have not read their source yet
  int products_in_flight = 0;    // over all warps
  std::vector<Warpgroup> warpgroups;
  int64_t free_registers = 0;                        // given up by setmaxnreg.dec
  uint32_t alive = 0;                                // threads
  bool triggered = false;                            // launches that depend on this one
  int32_t exit_pc = -1;                              // where the last of them left
  uint64_t executed = 0;                             // warp instructions
  uint64_t ticks = 0;                                // that its clock is ahead of these
  std::map<uint64_t, TensorMapBytes> acquired_maps;  // in global memory, as fences of its threads found them
  std::shared_ptr<BlockRaces> races;
};

struct Random {  // splitmix64: any seed will do, and it is the same everywhere
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }
};

struct Cluster {
  Machine* machine = nullptr;
  int64_t order = 0;  // in which clusters are started
  std::vector<Block> blocks;
  std::vector<Warp*> warps;                       // of all blocks
  std::vector<Warp*> ready;                       // scratch of the scheduler
  std::vector<Transfer> loads;                    // that have not landed
  std::vector<std::unique_ptr<AsyncUnit>> units;  // that the program uses
  int arrivals_in_flight = 0;                     // cp.async.mbarrier.arrive, over all warps
  uint32_t barrier_phase = 0, barrier_arrived = 0;
  int32_t refused_pc = -1;  // where a thread has seen that no cluster was cancelled for it
  Random random{0};
  Random turns{0};                      // of `may_give_way`
  bool gives_way = false;               // to another cluster, as soon as its warp has stopped
  bool polls = false;                   // and its slice has ended: it waits for one
  uint64_t fuel_left = 0;               // when it gave way
  uint64_t switches = 0, executed = 0;  // over all blocks run here
  const Warp* last = nullptr;           // that ran
  std::vector<uint64_t> counts;
  std::vector<uint8_t> outcomes;  // of each instruction: bits of Outcome
  std::shared_ptr<ClusterRaces> races;
  std::shared_ptr<ClusterCounters> counters;
  std::shared_ptr<ClusterUndefined> undefined;
  std::shared_ptr<ClusterTrace> trace;
  Fault suspected;  // a value of shared memory that nothing had written by then: perhaps a race; or a race
                    // of two lanes of a warp: perhaps one of warps, too
  std::vector<Fault> more_suspected;  // races of other lines that wait with it
  std::vector<Waiting> suspected_at;  // where warps were when it was a race of warps
  bool raced = false;                 // a race or copy in flight was reported, which undefined values follow
  uint64_t after_race = 0;            // warp instructions since the suspected race

  void start(int64_t index);
  // Runs for about `fuel` warp instructions, fewer if it gives way; true when every block has ended.
  bool run(uint64_t fuel);
  std::vector<Waiting> waiting() const;
  bool waits_for_launches() const;
  // whether every warp that can run has read one value often, which is still there
  bool polls_in_vain() const;
  void report_suspected();
  // That it takes too long, at the place where it is.
  Fault hung(int64_t limit, bool seconds) const;
};

struct Code : Prepared {
  std::vector<Instruction> instructions;
  std::vector<char> access;
  uint32_t shared_granule = 4, global_granule = 4;  // bytes: the smallest store of the program
  bool stores_tensors = false;                      // to global memory
  bool loads_in_bulk = false;                       // to shared memory
  bool stores_in_bulk = false;                      // from there
  std::vector<MakeUnit> units;                      // asynchronous units that it uses
  bool has_narrow_scopes = false;                   // memory is ordered for a block or a cluster only
  bool observes = false;                            // what atomics have left
  std::vector<bool> guesses;  // loads that may feed the comparison of a compare-and-swap
  std::vector<std::array<uint16_t, 3>> record_flags;  // of a read, a write, an atomic; see race.hpp
  std::vector<Following> following;                   // of each instruction
  std::vector<Function>
      untracked;  // what instructions do apart from noting their writes; empty: none is noted
  std::vector<Function> deciding;  // what those do that decide, apart from noting the outcome

  Code();
  ~Code() override;
};

struct Reported {  // by a launch, so far
  std::mutex mutex;
  std::set<std::array<int32_t, 3>> known;  // kind and lines
  uint32_t failures = 0, others = 0;
};

struct Machine {
  Result* result = nullptr;
  Reported reported;
  std::mutex printing;
  const Program* program = nullptr;
  const Launch* launch = nullptr;
  std::shared_ptr<const Code> prepared;
  const Instruction* code = nullptr;
  uint32_t threads_per_block = 0, warps_per_block = 0, cluster_size = 1;
  // Takes a cluster that has not started, which then never does; -1: none. Null: it cannot be asked for.
  std::function<int64_t()> cancel;
  std::shared_ptr<LaunchSeries> series;
  uint32_t number = 0;       // of the launch in its series
  bool together = false;     // with others at the same time
  uint64_t heap_blocks = 0;  // when it began
  bool check_initialised = true, check_in_flight = true, check_exited = true;
  std::shared_ptr<MachineRaces> races;
  std::shared_ptr<MachineCounters> counters;
  std::shared_ptr<MachineTrace> trace;

  const std::string& name_of(const Instruction& instruction) const {
    const Row& row = program->rows[static_cast<size_t>(&instruction - code)];
    return operation_table()[static_cast<size_t>(row.operation)].name;
  }
};

void run_launches(const std::vector<Work>& works, std::shared_ptr<Series>& series);

// A finding behind which the launch can go on: kept, once for its lines, or thrown when it is the last that
// is wanted.
void report(Cluster& cluster, const Fault& fault);

// ---- asynchronous work, for the scheduler

void land_copy_arrival(Cluster& cluster);            // one cp.async.mbarrier.arrive
void land_transfer(Cluster& cluster, size_t index);  // one of cluster.loads
void check_products(const Warp& warp, Block& block, uint32_t low, uint32_t high, int lane);
// With accumulators in flight: faults when the instruction touches one; true when it was a mov, now in flight
// as well.
bool defer_or_check(Warp& warp, const Instruction& instruction, uint32_t lanes);
void check_finished(Warp& warp, uint32_t exiting);  // nothing may be left to wait for

}  // namespace workbench::emulator::WORKBENCH_ISA
