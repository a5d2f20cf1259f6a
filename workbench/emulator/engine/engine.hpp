// The contract between the Python decoder and the C++ engine. Everything in this file is read by both sides.
//
// A program is a list of rows, one for each PTX instruction, and a flat list of operands.
//
// Registers. Every warp has a register file `[cell][32 lanes]`. A cell has 4 bytes a lane (128 bytes) for
// predicates and for registers of 8, 16 and 32 bits, or 8 bytes a lane (256 bytes) for registers of 64 bits.
// A slot is the byte offset of a cell in the file, a multiple of 128. Of a register narrower than its cell
// only the low bits mean anything: readers ignore the rest, writers may leave anything there. A predicate is
// 0 or -1 in each lane.
//
// Constants. A negative slot is `~offset` into the constant pool, which Python fills for each launch: a value
// broadcast to 32 lanes, offset a multiple of 128. Immediates, uniform special registers (%ntid, %nctaid,
// %cluster_nctaid, ...), addresses of variables and, where convenient, kernel parameters live there.
//
// Special registers that differ between warps lie in the register file from `special_offset` on, one 4-byte
// cell each, in the order of `Special`; the engine fills them. %clock, %clock64, %globaltimer are operations
// (read.clock, ...).
//
// Operation names are PTX opcodes verbatim, after these removals by the decoder:
//   - order and scope (.weak .volatile .mmio .relaxed .acquire .release .acq_rel .sc .cta .cluster .gpu .sys)
//     of ld, st, atom, red, mbarrier and fence: they go into `flags`. `fence.*` and `membar.*` all become
//     `fence`, except `fence.proxy.*`, `fence.mbarrier_init.*` -> `fence.proxy`, `fence.mbarrier_init`
//     and of a tensor map's acquire, which is a `fence` and a `fence.proxy.tensormap.acquire`;
//   - cache hints (.ca .cg(not of cp.async) .cs .lu .cv .wb .wt .nc (a flag) .L1::* .L2::* .unified); the
//   cache-policy operand of
//     .L2::cache_hint is dropped with it;
//   - `::cta` of `.shared::cta`, `::entry` / `::func` of `.param::*`.
// and these additions, where PTX gives one opcode two operand shapes:
//   - mov with a vector of n elements: `mov.b64.pack2` (vector source), `mov.b64.unpack2` (vector
//   destination);
//   - wgmma.mma_async with A in registers: `.rs` appended;
//   - cp.async whose last operand is a predicate (ignore-src): `.ignore` appended;
//   - mov from %clock, %clock_hi, %clock64, %globaltimer, %globaltimer_lo, %globaltimer_hi: `read.clock` and
//   so on.
// `mad.f32/f64` is `fma`. `call` of `__assertfail` is `assertfail` with its five arguments. A `ret` of an
// entry is `exit`.
//
// Operands stand in PTX order, flattened: {a, b} vectors and `p|q` pairs expanded, `[register + offset]` one
// operand,
// `[map, {c0, c1}]` three. Every operation has a signature; a letter is an operand, a number repeats it, `?`
// makes it optional: an optional operand that is left out, and a `_`, is written as slot `kAbsent`.
//   W D P   destination: 4-byte cell, 8-byte cell, predicate       U   4-byte cell, read and written
//   w d p   source: 4-byte cell, 8-byte cell, predicate            f e   source like w d, whose immediates
//   are f32, f64 a       address: a 4- or 8-byte cell as `bytes` says, plus `offset` l       a label: no
//   operand, it goes to `target`
// A source predicate written `!p` has offset 1. A guard is a predicate slot with its own negation.
// Where PTX allows a 64-bit register as an operand of a narrower instruction (ld.u8 %rd, ...), the decoder
// inserts a cvt row and a scratch register.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace workbench::emulator {

constexpr int kLanes = 32;
constexpr int32_t kAbsent = INT32_MIN;  // slot of an operand that is not there
constexpr int32_t kNoGuard = kAbsent;

// ---- addresses

// Generic addresses: windows of 4 GiB; every other address is global. Allocations must lie above the last
// window. A shared address is `offset | (rank + 1) << 24` for the block of that rank in the cluster, or just
// `offset` for the own block. A generic address of local memory is `offset | owner << 20`, see `local_owner`.
// A kernel parameter's address in the param space is its offset in the parameter buffer.
constexpr uint64_t kSharedWindow = 1ull << 32;
constexpr uint64_t kLocalWindow = 2ull << 32;
constexpr uint64_t kParamWindow = 3ull << 32;
constexpr uint64_t kFirstGlobal = 4ull << 32;
constexpr int kRankShift = 24;
constexpr int kOwnerShift = 20;  // local memory: 512 KiB a thread at most
constexpr uint32_t kLocalOffset = (1u << kOwnerShift) - 1;

enum class Space : int32_t { none, global, shared, local, param, tensor };

// ---- program

struct Operand {
  int32_t slot;
  int32_t bytes;  // of the cell a lane: 4 or 8
  int64_t offset;
};

enum Flag : int32_t {  // low bits: memory order; then scope
  kOrderMask = 7,      // 0 weak, 1 relaxed (volatile too), 2 acquire, 3 release, 4 acq_rel, 5 sc
  kScopeShift = 3,     // 0 none, 1 cta, 2 cluster, 3 gpu, 4 sys
  kScopeMask = 7 << kScopeShift,
  kByLibrary = 1
      << 6,  // mbarrier.init of libcu++, which goes without the fence that the async proxy asks for
  kReadOnlyCache = 1 << 7,  // ld.global.nc
  kUnusedShift = 8,  // of a load: bits of %tid.x, one of which is set where its value is used for nothing
  kUnusedMask = 0x3ff << kUnusedShift,
  kObserves = 1 << 18,  // an atomic or strong load whose result is used
  // Of 32-bit arithmetic whose result reaches an address, widened as a signed or as an unsigned number.
  kSignedIndex = 1 << 19,
  kUnsignedIndex = 1 << 20,
  kVolatile = 1 << 21,   // of a load or store, which is relaxed by that and by nothing else
  kBlockPair = 1 << 22,  // cta_group::2, of a bulk copy
  kSamples = 1 << 23,    // of a volatile load whose value is used, and decides no branch
};

struct Row {  // as Python writes it: an int32 array [n][7]
  int32_t operation, guard, guard_negated, first_operand, operand_count, target, flags;
};

enum class Special : int32_t {
  tid_x,
  tid_y,
  tid_z,
  laneid,
  warpid,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  smid,
  clusterid_x,
  clusterid_y,
  clusterid_z,
  cluster_ctaid_x,
  cluster_ctaid_y,
  cluster_ctaid_z,
  cluster_ctarank,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  count
};
const std::vector<std::string>& special_names();  // "tid.x", ... in the order of `Special`

struct OperationInfo {
  std::string name, signature;
};
const std::vector<OperationInfo>& operations();

// ---- launch

struct Allocation {
  uint64_t address, bytes;
  uint8_t* data;
  uint8_t* initialised;  // one byte for each byte, 1 when written, else 0; null: all of it is initialised
  bool writable;
  bool is_heap = false;      // of malloc in kernels; see heap.hpp
  bool is_constant = false;  // a variable in .const
  uint64_t identity = 0;  // of the same memory at another address in launches of a series; 0: it stays there
};

struct TensorMap {
  uint64_t descriptor;  // generic address of the 128-byte descriptor (kParamWindow + offset, or global)
  uint64_t address;     // of the tensor
  int element_type;     // CUtensorMapDataType
  int rank;
  uint64_t sizes[5];
  uint64_t strides[5];  // bytes; strides[0] is the element size, or that of a unit
  uint32_t box[5];
  uint32_t element_strides[5];
  int swizzle;    // bytes: 0, 32, 64, 128; 128 + 32 * atomicity where that is not 0
  bool nan_fill;  // out of bounds elements are NaN instead of zero
  // An im2col map moves `box[0]` elements of each of `pixels` pixels. The first pixel may lie, in every
  // dimension but the innermost and the outermost, from `lower` on and up to `upper` beyond the last element.
  bool im2col;
  uint32_t pixels;
  int32_t lower[3], upper[3];
  bool wide;  // an im2col map for copies along the second dimension alone: corners in that one
  // Packed elements are counted in units along the first dimension: so many elements, which have so many
  // bytes behind them in shared memory.
  uint32_t per_unit = 1, gap = 0;
};

// Tensor maps that a kernel has copied or edited, by their bytes; any thread that executes blocks may add
// one.
using TensorMapBytes = std::array<uint8_t, 128>;
struct EditedMaps {
  std::mutex mutex;
  std::map<TensorMapBytes, TensorMap> maps;
};

enum ElementType {  // of CUtensorMapDataType: those that a load converts, and the first of those that are
                    // packed
  kFloat32Ftz = 10,
  kTfloat32 = 11,
  kTfloat32Ftz = 12,
  kPacked = 13,
};

// Of a map whose first dimension is given in elements: counts packed ones in units.
inline void count_units(TensorMap& map) {
  constexpr uint32_t kUnits[][3] = {{1, 2, 0}, {8, 16, 8}, {12, 16, 4}};  // bytes, elements, gap
  if (map.element_type < kPacked) return;
  const auto& unit = kUnits[map.element_type - kPacked];
  map.strides[0] = unit[0], map.per_unit = unit[1], map.gap = unit[2];
  map.sizes[0] /= map.per_unit;
  map.box[0] /= map.per_unit;
}

enum Swizzle : int {  // of 128 bytes, other than by pieces of 16 bytes
  kAtom32 = 160,      // by pieces of 32 bytes
  kAtom32Flip = 192,  // which also exchanges the halves of 16 bytes in every other row
  kAtom64 = 224,
};

enum Check : uint32_t {
  kCheckInitialised = 1,  // reads of shared, global, local memory never written
  kCheckInFlight =
      2,  // touching the destination of an asynchronous copy, or an accumulator, before it was waited for
  kCheckExitedMembers =
      4,            // a member mask of a warp collective names a lane that has exited or never existed
  kCheckRaces = 8,  // conflicting accesses that nothing puts in order, in shared and global memory
};  // bounds and alignment are always checked

// When a launch that follows another one may begin, and whether griddepcontrol.wait waits for the end of
// that.
enum class Port : uint8_t {
  ended,
  triggered,  // every block has triggered or ended
  begun,
  begun_only,  // and the wait does not wait for it
};

struct Predecessor {
  uint32_t launch;  // its number among those of a series
  Port port;
  bool is_waited_for() const { return port != Port::begun_only; }
};

struct HostCopy {     // what a copy or a memset does instead of a kernel
  uint64_t to, from;  // addresses; from 0: `value` is stored
  uint64_t bytes;
  int32_t value;
};
constexpr int32_t kHostReads = -1, kHostWrites = -2;  // values: the host itself accesses what lies at `to`

struct Launch {
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  const uint8_t* constants = nullptr;  // the pool, 128-byte aligned
  uint64_t constant_bytes = 0;
  const uint8_t* parameters = nullptr;  // the kernel parameter buffer, for ld.param
  uint64_t parameter_bytes = 0;
  std::vector<Allocation> allocations;  // sorted by address, disjoint
  std::vector<TensorMap> tensor_maps;
  std::shared_ptr<EditedMaps> edited_maps = std::make_shared<EditedMaps>();
  uint32_t shared_bytes = 0;     // static + dynamic, of a block
  uint32_t reserved_bytes = 0;   // at the end of those, which the system uses: zeros at first
  uint32_t local_bytes = 0;      // of a thread
  uint32_t registers = ~0u;      // of a thread when it starts; 0: no limit was declared, ~0: unknown
  uint32_t resident_blocks = 1;  // that the emulated device holds at once
  uint32_t threads = 1;          // of this machine
  uint32_t time_slice = 2000;    // warp instructions before another warp may run
  uint64_t seed = 0;
  uint64_t budget = ~0ull;            // warp instructions of one block before it counts as hung
  double seconds = 0;                 // after which the launch counts as hung; 0: no limit
  bool (*interrupted)() = nullptr;    // asked now and then by the thread that launched: whether to give up
  uint64_t trace_events = 0;          // most events of a timeline; 0: none is wanted
  std::vector<int64_t> trace_blocks;  // whose
  std::vector<int32_t> trace_lines;   // of each row: a number, the same for rows that are shown as one
  bool count = false;                 // whether Result::counters are wanted
  uint32_t checks = kCheckInitialised | kCheckInFlight | kCheckExitedMembers | kCheckRaces;
  // A finding behind which the launch can go on is reported once for its lines. The launch ends with the one
  // that makes the failures `most_findings`.
  uint32_t most_findings = 1;
  bool replicas = false;  // lanes of a store to one place of shared memory hold one value, up to rounding
  std::vector<uint8_t> failing;  // of each FaultKind: whether it is a failure; empty: all are
  std::vector<std::pair<int32_t, int32_t>> suppressed;  // FaultKind and row (-1: any) that do not count
  std::vector<int32_t> finding_lines;  // of each row: a number, the same for rows of one line; or empty
  std::vector<Predecessor> after;      // launches of the series
  std::vector<HostCopy> copies;
};

// ---- timeline, where it is asked for; see trace.hpp

enum class TraceKind : int32_t {
  run,       // a warp executes instructions of one source line
  wait,      // a warp waits at a gate
  load,      // a bulk copy on its way to shared memory; count: bytes
  copies,    // a group of cp.async of a warp, from the first to the wait for it; count: instructions
  products,  // the same of wgmma
  stores,    // the same of bulk stores
  tensor,    // of products, copies and shifts of tcgen05, from the first to the end of their commit
  moves,     // of tcgen05.ld and tcgen05.st, from the first to the wait for them
  phase,     // of an mbarrier; count: its number
};
enum class TraceGate : int32_t { none, named, mbarrier, cluster, grid };

struct TraceEvent {
  TraceKind kind;
  int64_t block;
  int32_t warp;
  uint64_t begin, end;
  int32_t pc;             // first instruction
  int32_t until_pc = -1;  // of a group: the wait
  TraceGate gate = TraceGate::none;
  uint32_t key = 0;  // of the gate: number or offset
  int64_t count = 0;
  uint64_t cause = 0;  // of a load: its number; of a wait: the load that ended it, or 0
};

// ---- result

enum class FaultKind : int32_t {
  none,
  out_of_bounds,          // address, space; info: bytes accessed
  misaligned,             // address, space; info: alignment required
  uninitialised,          // address, space (none: slot of a register) of what had never been written;
                          // info: what its value is used for; other_pc: where it was read
  read_only,              // a store into an allocation that is not writable
  in_flight,              // address, space; other_pc: the asynchronous copy that has not been waited for
  accumulator_in_flight,  // other_pc: the wgmma that has not been waited for; address: slot of the register;
                          // info: 1 when it was never committed
  deadlock,               // Result::waiting says who waits for what
  budget,                 // ran for longer than the launch allows; Result::waiting holds all warps;
                          // detail 1: in seconds, info: milliseconds. Where the device is full, address: how
                          // many blocks have not begun, other_block: the first of those
  mbarrier_invalid,       // address is not an initialised mbarrier. Or, info: initialised again while in use
                     // (1; other_pc: where before), of another block (2), parity (detail) not 0 or 1 (3),
                     // of another block than the destination of a copy (4)
  mbarrier_overflow,  // address; more arrivals than pending; info: expected count. detail 1: a thread came
                      // twice in the phase; other_pc: where for the second time. 2: phases have ended before
  mbarrier_transactions,  // address; transaction count out of range; info: the count
  mbarrier_count,         // mbarrier.init with a count out of range; info: the count
  barrier_count,          // bar with a bad thread count or number: info: the count, detail: the barrier
  barrier_mismatch,  // threads disagree about a barrier; info: this count, detail: the other; other_pc: the
                     // other
  barrier_diverged,  // an aligned barrier or collective reached by part of a warp; info: mask that arrived
  not_member,        // an executing lane is not in its own member mask; info: mask
  exited_member,     // a member mask names lanes that exited; info: mask, detail: exited lanes
  inactive_source,   // a shuffle reads from a lane that does not take part; info: the source lane
  trap,
  assertion,    // address: of the message; info: line; detail: address of the file name
  descriptor,   // a matrix descriptor or tensor map that is malformed or unknown; address: the descriptor;
                // info: why
  bad_operand,  // a value an instruction does not accept; info: the value. detail, of a multicast: how many
                // blocks there are
  resources,    // the launch asks for more than fits; info: how much
  exited_with_work,  // a warp exited with asynchronous work not waited for; other_pc: its instruction. Or,
                     // detail: a peer uses the shared memory (address) of a block that has exited (1) or may
                     // have (2); other_pc: the exit
  unsupported,       // a legal form the engine does not carry out
  race,              // address, space; other_*: the access that nothing puts before this one; info: RaceForm
  proxy_fence,       // address, space; other_*: the store that no proxy fence puts before this async access;
                     // info 1: to a tensor map, which the block has not acquired since
  mbarrier_not_visible,  // address; other_*: its initialisation; info: 1 when only a fence is missing
  mbarrier_bytes,  // address; info: bytes beyond what was expected in the phase (detail 1: of a copy that is
                   // still on its way when it ends); other_pc: the newest expect_tx
  swizzle_mismatch,  // address; other_pc: the copy that wrote it; info: swizzle of the descriptor, detail: of
                     // the tensor map
  wgmma_fence,  // other_pc: a write to a register (address: its slot) since the last wgmma.fence; -1: there
                // was none
  warpgroup_diverged,    // pc: what only some warps of a warpgroup execute, other_pc: what another does
                         // instead; info: warps in the group, where they are fewer than 4
  warpgroup_apart,       // the same, where both are setmaxnreg with one count and direction
  register_misuse,       // setmaxnreg; address: its count; info: why; detail: registers held
  mbarrier_in_use,       // address: initialised again or invalidated; other_*: a use that may come later
  mbarrier_overwritten,  // address; other_*: a use that came later (none: the writer is unknown, and this is
                         // the use); info: row of the initialisation
  not_resident,  // pc: where blocks wait in a loop; info: how many the device holds, detail: how many have
                 // not begun, other_block: the first of those; Result::waiting says who waits where
  mbarrier_init_fence,  // as mbarrier_not_visible, where only a fence is missing
  race_same_value,      // as race, of two stores of one value
  stores_pending,       // as exited_with_work, of bulk stores
  loads_pending,        // as exited_with_work, of bulk loads to the block's own shared memory or from there
  registers_unlimited,  // setmaxnreg, where no limit is declared: it does nothing; address: its count
  incoherent_load,      // as a race, of a load through the read-only cache and a store that it need not see
  read_only_changed,    // the same, of a store that comes after the load for certain
  sparse_metadata,   // address: the four bits; info: MetadataProblem; detail: the chunk's row, first element
                     // and elements, 8 bits each from the last on. Of a selector: it, and how many there are
  race_volatile,     // as race, of strong accesses of which one is no more than volatile
  race_of_replicas,  // as race, of lanes of one store to shared memory, where Launch::replicas
  race_lockstep,     // as race, where an arrival by other lanes of the warp tells of what a lane did
  race_relaxed,      // as race, of the address that tcgen05.alloc stores, behind a relaxed cluster barrier
  exited_relaxed,    // as exited_with_work, where a relaxed cluster barrier comes before the exit
  // Of tensor memory: address is `lane << 16 | column`; other_*: what else uses it.
  tensor_allocation,     // info: why it is refused (AllocationProblem); address: columns
  tensor_bounds,         // what is used is not allocated; info: columns used, detail: BoundsProblem
  tensor_lanes,          // address: named; info: the first lane that the warp uses
  tensor_free,           // info: columns, detail: FreeProblem
  tensor_not_freed,      // pc: of the allocation; info: columns; other_pc: the exit
  tensor_unwritten,      // what nothing has written is an operand; info: TensorUse
  tensor_load_pending,   // overwritten or freed while a tcgen05.ld (other_*) is not waited for
  tensor_load_unwaited,  // a register of a tcgen05.ld (other_pc) is used before its wait; address: its slot
  tensor_store_pending,  // used while a tcgen05.st (other_*) is not waited for
  tensor_not_committed,  // used while a product, copy or shift (other_*) may be under way
  tensor_race,           // used by threads that nothing puts in order
  tensor_unordered,      // of two operations of one thread, which PTX does not put in order
  tensor_fence,          // info: what is missing: a fence 1 before, 2 after the threads have met, 3 an order
                         // by the cluster barrier where they have
  tensor_group,          // info: the cta_group; other_pc: where another one was used
  tensor_pair,           // info: PairProblem
  tensor_overlap,        // a product writes over its operand; info: TensorUse
  tensor_collector,      // info: CollectorProblem; other_pc: what filled the buffer, or discarded it last
  tensor_descriptor,     // address: the descriptor; info: TensorDescriptorProblem; detail: the value
  heap_access,  // address; outside of blocks, or of one that was freed (detail -1; other_pc: where); else
                // detail: bytes behind its begin << 32 | its size, other_pc: the malloc
  heap_free,    // address: of what is freed; info: FreeOfHeap; other_pc: of the block
  heap_leak,  // pc: of a malloc; info: blocks that nobody has freed when the launch ends, detail: their bytes
  launch_control,  // clusterlaunchcontrol; info: LaunchControlProblem; other_pc: the query
  index_overflow,  // an address comes from 32-bit arithmetic (other_pc) whose result did not fit
  // Of the source only, which Python asks for by a program that is not optimised:
  race_optimised_away,
  barrier_optimised_away,
  product_proxy_fence,  // as proxy_fence, of a product of tcgen05
  count
};
const std::vector<std::string>& fault_names();

struct Fault {
  FaultKind kind = FaultKind::none;
  int32_t pc = -1, other_pc = -1;
  int64_t block = -1;  // linear index in the grid
  int32_t warp = -1, lane = -1;
  uint64_t address = 0;
  Space space = Space::none;
  int64_t info = 0, detail = 0;
  int64_t other_block = -1;  // of a race
  int32_t other_warp = -1, other_lane = -1;
  int32_t launch = -1, other_launch = -1;  // of a race between two of a series: the later one's
};

constexpr int64_t kLeftBefore =
    1;  // detail of a diverged barrier: others have gone past it (other_pc: the branch)

enum DescriptorProblem : int64_t {
  kBaseOffset = 1,   // a matrix descriptor with a base offset, which the engine does not carry out
  kUnknownMap = 2,   // the address is no tensor map's
  kWrongRank = 3,    // detail: the map's
  kWideSwizzle = 4,  // the box is wider than the swizzle; detail: bytes of it
  kWrongMode =
      6,  // a tiled map for an im2col copy, or the other way round; detail: whether the map is im2col
  kUnknownObject = 7,  // the value is no texture object's or (detail 1) no surface object's
  kTallBox = 8,        // of gather4 or scatter4: a box of more than one row; detail: rows
  kOffAtom = 5,  // a matrix (address) begins in the middle of a swizzle atom; detail: bytes of the swizzle
};
enum TileProblem : int64_t {  // detail of a bad operand, less the dimension; address: bytes of an element
  kTileBegins = -1,           // info: where
  kPixelsReach = -9,          // info: elements beyond the tensor that the pixels of a store reach
  kPixelOffset = -17,         // info: an offset that is too large
};
enum MetadataProblem : int64_t {
  kSound,
  kTwice,       // one place for both elements
  kOutOfOrder,  // the later place first, which .sp::ordered_metadata leaves undefined
  kNoElement,   // of tf32: neither of the two that stand for an element
  kNoSelector,
};
enum AllocationProblem : int64_t {
  kBadColumns = 1,
  kAfterRelinquish = 2,  // other_pc: that
  kNeverFits = 3,        // it waits for columns that nobody is going to free; other_pc: who holds them
};
enum BoundsProblem : int64_t {
  kBeyondMemory = 1,
  kNotAllocated = 2,
  kFreed = 3,    // other_pc: where
  kOddLane = 4,  // info: what the lane has to be a multiple of
  kOddRows = 5,  // address: where a matrix begins
};
enum FreeProblem : int64_t {
  kNoAllocation = 1,
  kOtherColumns = 2,  // address: the columns that were allocated
  kFreedBefore = 3,   // other_pc: where
};
enum PairProblem : int64_t {
  kNoPeer = 1,
  kPeerExited = 2,      // other_pc: where
  kPeerMissing = 3,     // the other block does not come
  kPeerDiffers = 4,     // other_pc: its instruction; detail: its columns
  kPeerNotStarted = 5,  // no thread of it has met one of this block
  kPeerUnknown = 6      // it may still allocate what is freed; other_pc: there
};
enum CollectorProblem : int64_t {
  kNotFilled = 1,
  kOtherMatrix = 2,
};
enum TensorDescriptorProblem : int64_t {
  kMatrixVersion = 1,  // bits 46-48
  kMatrixSwizzle = 2,  // bits 61-63
  kMatrixFixed = 3,    // bits that are zero
  kResultType = 4,     // of the instruction descriptor, from here on
  kTypeOfA = 5,
  kTypeOfB = 6,
  kColumns = 7,  // N
  kRows = 8,     // M
  kMajor = 9,    // detail: 0 A, 1 B
  kSparsity = 10,
  kSaturate = 11,
  kNegate = 12,
  kReserved = 13,
  kScaleType = 14,
  kScaleId = 15,
  kDepth = 16,
  kMaximumShift = 17,
};
enum LaunchControlProblem : int64_t {
  kAfterRefusal = 1,      // a request after the cluster has seen that one was refused
  kNothingCancelled = 2,  // asks a response for a block that it does not name
};
// What an operation does with tensor memory.
enum class TensorUse : int32_t {
  none,
  allocated,
  freed,
  loaded,
  stored,
  accumulated,
  multiplied,  // A
  scaled,      // factors of blocks
  selected,    // metadata of a sparse A
  copied,
  shifted,
};
constexpr size_t kMostPrints = 1 << 16;

enum RaceForm : int64_t {  // bits
  kWrites = 1,             // this access writes
  kOtherWrites = 2,        // the other access wrote
  kSameInstruction = 4,    // two lanes of one instruction
  kAsynchronous = 8,       // the other is a copy that TMA carried out
};

enum class FreeOfHeap : int64_t {
  none,
  foreign,  // no block of the heap
  inside,   // not at its begin
  twice,
};

enum class WaitReason : int32_t {
  none,
  barrier,
  mbarrier,
  collective,
  cluster_barrier,
  exited,
  registers,
  warpgroup,
  unit,          // an asynchronous unit
  grid,          // griddepcontrol.wait
  passed_again,  // not a wait any more: of an mbarrier whose phase had ended before the last one that passed
};

struct Waiting {  // what some lanes of a warp are doing when a launch does not end
  int64_t block;
  int32_t warp, pc;
  uint32_t lanes;
  WaitReason reason;     // none: still running
  uint64_t address;      // mbarrier address, barrier number, member mask, registers a thread
  int64_t expected;      // mbarrier: parity or phase waited for; barrier: threads; collective: lanes missing;
                         // registers: wanted
  int64_t phase;         // mbarrier: current phase
  int64_t pending;       // mbarrier: arrivals missing; barrier: threads arrived; registers: free
  int64_t transactions;  // mbarrier: bytes missing
  int64_t unseen;        // mbarrier: phases that have ended since the warp last passed a wait for it
};

// Of each instruction, where they are asked for.
enum class Counter : int {
  active_lanes,     // thread instructions, those included whose guard is false
  lanes,            // thread instructions whose guard is true
  divergent,        // branches that only part of the active lanes took
  blocked,          // times that lanes had to wait
  global_requests,  // warp instructions that touch global memory
  global_sectors,   // of 32 bytes
  global_bytes,     // that the lanes asked for
  local_requests,
  local_sectors,
  local_bytes,
  shared_requests,
  shared_wavefronts,  // passes of the data stage
  shared_ideal,       // the same without bank conflicts
  shared_bytes,
  remote_requests,  // shared memory of another block of the cluster
  remote_bytes,
  bulk_requests,      // TMA tiles and runs
  bulk_sectors,       // of global memory
  bulk_bytes,         // of shared memory
  tensor_operations,  // a multiplication and an addition are two
  tensor_requests,    // of tensor memory: loads, stores, and copies to it
  tensor_bytes,
  count
};
const std::vector<std::string>& counter_names();
constexpr size_t kCounters = static_cast<size_t>(Counter::count);
struct Printed {  // one printf of one thread
  int64_t block;
  int32_t warp, lane;
  uint64_t format;                 // address of the format
  std::vector<uint8_t> arguments;  // as far as they can reach, each at a multiple of its size
};

struct Finding {  // behind which the launch went on
  Fault fault;
  std::vector<Waiting> waiting;
};

// What a thread has got from an instruction that decides something: a predicate, or the second one of a pair.
enum Outcome : uint8_t { kTrue = 1, kFalse = 2, kOtherTrue = 4, kOtherFalse = 8 };

struct Result {
  Fault fault;                    // that ended the launch
  std::vector<Finding> findings;  // in the order of execution
  bool interrupted = false;
  std::vector<Printed> printed;  // in the order of execution
  uint64_t prints_dropped = 0;   // beyond kMostPrints
  std::vector<Waiting> waiting;
  uint64_t instructions = 0;       // warp instructions executed
  uint64_t switches = 0;           // times a warp was resumed
  std::vector<uint64_t> counts;    // executions of each row
  std::vector<uint8_t> outcomes;   // of each row: bits of Outcome
  std::vector<uint64_t> counters;  // [row][Counter]; empty unless asked for
  std::vector<TraceEvent> trace;
  bool trace_cut = false;  // whether events were left out
};

struct Prepared {  // what an instruction set's build of the engine makes of a program
  virtual ~Prepared() = default;
};

// A decoded kernel, independent of a launch. Throws std::invalid_argument for rows that contradict the
// signatures.
struct Program {
  std::vector<Row> rows;
  std::vector<Operand> operands;
  int64_t register_bytes = 0;  // of a warp, special registers included
  int64_t special_offset = 0;
  std::vector<Operand> unset;  // registers that may be read before anything has written them
  mutable std::shared_ptr<const Prepared> prepared;  // by the first launch, for those that follow
};
void validate(const Program& program);

enum class Isa : int32_t { baseline, v3 };
Isa best_isa();
// What launches that need not have ended before the next one begins have in common: memory of who accessed
// what.
struct Series {
  virtual ~Series() = default;
};
struct Work {
  const Program* program;
  const Launch* launch;
  Result* result;
};
// Executes launches together. They are the next ones of the series, where there is one.
void run(const std::vector<Work>& works, Isa isa, std::shared_ptr<Series>& series);

}  // namespace workbench::emulator
