// Tensor memory: 128 lanes of 512 columns of 32 bits a block, and who uses which of it.
//
// A warp allocates columns, loads and stores its 32 lanes, and waits for both. One thread issues products,
// copies and shifts; they end when the mbarrier of a commit says so. Values are computed as soon as an
// instruction is issued; what may still be under way on a device is told by happens-before: each thread that
// issues has an agent whose clock counts its commits, and an operation is used before its end by whoever does
// not know that the agent has come to the commit behind it. Memory keeps, for each column of 16 lanes (a
// band), the last write and the newest reads since.
#pragma once

#include <map>
#include <unordered_map>

#include "race.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

constexpr uint32_t kTensorLanes = 128, kTensorColumns = 512;
constexpr uint32_t kBandLanes = 16, kBands = kTensorLanes / kBandLanes;

inline uint32_t tensor_lane(uint32_t address) { return address >> 16; }
inline uint32_t tensor_column(uint32_t address) { return address & 0xffff; }

// Some lanes of some bands, in columns that follow one another.
struct TensorRegion {
  uint8_t bands;   // a bit each
  uint16_t lanes;  // of each of these bands, a bit each
  uint32_t first, columns;
};
constexpr uint16_t kAllOfBand = 0xffff;

// The flags of tcgen05 in a row, as tcgen05.py writes them.
enum TensorFlag : int32_t {
  kTensorKindShift = 19,  // of a product: TensorKind; of a copy: CopyShape
  kTensorKindMask = 7,
  kTensorPair = 1 << 22,     // cta_group::2
  kTensorVariantShift = 23,  // of a product: factors of a row and a step of K; of a copy: decompression
  kTensorVariantMask = 7,    // 0, 1, 2, 4; 0, 4 or 6 bits
  kTensorShiftA = 1 << 26,   // .ashift
  kTensorWeights = 1 << 27,  // .ws
  kTensorPacked = 1 << 28,   // pack::16b, unpack::16b
  // Of a product: which of the collector's buffers, and what it does with it.
  kCollectorShift = 28,
  kCollectorMask = 3,
  kCollectorBufferShift = 30,
  // Of ld.red the kind says what the registers are, u32, s32 or f32, and the variant has these bits.
  kTensorMax = 1,
  kTensorAbsolute = 2,
  kTensorNan = 4,
};

struct TensorRecord {  // an operation
  uint32_t agent = 0, clock = 0;
  uint32_t fenced = 0;  // the warp's clock at the fence::before_thread_sync behind it; 0: none yet
  int32_t pc = -1, warp = -1, lane = -1;
  int64_t block = -1;
  TensorUse use = TensorUse::none;
  bool pending = false;   // a load or store that its warp has not waited for
  bool executed = false;  // by an agent of its own
  uint64_t accumulator = 0;
};

struct TensorShadow {  // numbers of records, 0: none
  uint32_t write = 0, reads[3] = {};
};

struct TensorAllocation {
  uint32_t first, columns;
  int32_t pc, freed_pc;  // -1: not yet
  bool pair;
  uint32_t number = 0;  // of its record
};

enum CollectorUse { kDiscard, kFill, kUse, kLastUse };

struct Collected {  // a matrix in a buffer of the collector
  bool filled = false;
  int32_t pc = -1;      // of who filled it, or has discarded it
  uint64_t matrix = 0;  // its descriptor, or its address in tensor memory
  uint64_t form = 0;
};

struct TensorMemory {                              // of a block
  std::vector<uint32_t> cells;                     // [lane][column]; empty until the first allocation
  std::vector<uint16_t> written;                   // [band][column]: lanes, a bit each
  std::vector<uint16_t> defined;                   // the same of those that hold no undefined value
  std::unordered_map<uint32_t, uint32_t> origins;  // of undefined values, by address
  std::vector<TensorShadow> shadow;                // [band][column]
  std::vector<TensorAllocation> allocations;
  Collected collected[5];  // A, and B of .ws in each of four buffers
  uint32_t reserved = 0;   // columns at the beginning that another block holds
  int32_t relinquished_pc = -1;
  int group = 0;  // cta_group of its instructions
  int32_t group_pc = -1;
  struct {  // an allocation for a pair that waits for the other block
    int32_t pc = -1, warp = -1;
    uint32_t columns = 0;
    int64_t granted = -1;  // address
  } asked;

  uint32_t& cell(uint32_t lane, uint32_t column) { return cells[size_t{lane} * kTensorColumns + column]; }
};

class TensorUnit final : public AsyncUnit {
 public:
  explicit TensorUnit(Cluster& cluster) : cluster_(cluster) {}
  static TensorUnit& of(const Warp& warp);

  void start() override;
  size_t in_flight() const override { return commits_.size(); }
  void complete(size_t index) override;
  void touch(Warp& warp, const Instruction& instruction, uint32_t lanes) override;
  void warp_exits(Warp& warp, uint32_t lanes) override;
  bool explain_standstill(Fault& fault) const override;

  TensorMemory& memory(const Block& block) { return memories_[block.rank]; }
  // The other block of a pair; faults where there is none.
  Block& peer(const Warp& warp, int lane);
  // All instructions of a kernel have one cta_group.
  void require_group(const Warp& warp, const Instruction& instruction, int lane);

  // An operation of a warp, or one that it hands to its agent.
  uint32_t issue(Warp& warp, int lane, TensorUse use, uint64_t accumulator = 0);
  TensorRecord& record(uint32_t number) { return records_[number]; }
  // Checks that a region is allocated, and what else uses it; notes the use. False when it is not allocated.
  bool use(const Warp& warp, int lane, Block& block, const TensorRegion& region, uint32_t number,
           bool writes);
  // It is written, with what is defined; or, not written, what it holds means nothing any more.
  void note_written(Block& block, const TensorRegion& region, bool written = true);
  // A cell holds an undefined value.
  void note_undefined(Block& block, uint32_t lane, uint32_t column, uint32_t origin);
  // The origin of the undefined value that a cell holds, or 0.
  uint32_t origin_of(const Warp& warp, Block& block, uint32_t lane, uint32_t column);
  bool is_written(Block& block, const TensorRegion& region);
  bool is_defined(Block& block, const TensorRegion& region);
  // As an operand of the operation: a finding where nothing has written a part of it.
  void require_written(const Warp& warp, int lane, Block& block, const TensorRegion& region, TensorUse use);

  // Shared memory that an operation of this record reads, of a block. True when nothing has written a part.
  bool read_shared(Warp& warp, int lane, Block& block, const std::vector<SharedRun>& runs, uint32_t number);

  Flow allocate(Warp& warp, const Instruction& instruction, uint32_t lanes);
  void free(Warp& warp, const Instruction& instruction);
  void relinquish(Warp& warp, const Instruction& instruction);
  void load_issued(Warp& warp, const Instruction& instruction, uint32_t number, int registers);
  void store_issued(Warp& warp, uint32_t number);
  void wait(Warp& warp, bool loads);
  void fence(Warp& warp, bool before);
  void commit(Warp& warp, const Instruction& instruction);

 private:
  struct Commit {
    Warp* warp;
    int lane;
    int32_t pc;
    uint32_t executor, time;
    std::vector<Block*> blocks;
    uint32_t barrier;
    std::shared_ptr<const Clock> issued;
  };
  struct Executor {
    uint32_t agent = 0;
    uint32_t commits = 0;
  };
  struct OfWarp {
    std::map<int, Executor> executors;    // by lane
    std::vector<uint32_t> loads, stores;  // records that are not waited for
    std::map<int32_t, uint32_t> loading;  // registers, and the record of the load
    std::vector<uint32_t> unfenced;       // records
    Times fenced;                         // clocks known at the last fence::after_thread_sync
    std::pair<int32_t, uint32_t> newest{-1, 0};
  };

  OfWarp& of_warp(const Warp& warp) {
    return warps_[warp.block->rank * warps_per_block() + static_cast<size_t>(warp.id)];
  }
  size_t warps_per_block() const;
  bool check_allocated(const Warp& warp, int lane, Block& block, const TensorRegion& region);
  void check_order(const Warp& warp, int lane, const TensorRecord& before, const TensorRecord& now,
                   bool writes, uint32_t address);
  void conflict(const Warp& warp, FaultKind kind, int lane, uint32_t address, const TensorRecord& before,
                int64_t info = 0);
  int64_t find_columns(TensorMemory& memory, TensorMemory* other, uint32_t columns);
  void check_peer_has_allocated(const Warp& warp, const TensorAllocation& freed);
  void grant(Warp& warp, Block& block, uint32_t first, uint32_t columns, int32_t pc, bool pair);
  void store_address(Warp& warp, const Instruction& instruction, uint32_t address);
  void wake();
  void loaded(Warp& warp, uint32_t number);

  Cluster& cluster_;
  std::vector<TensorMemory> memories_;
  std::vector<OfWarp> warps_;
  std::vector<TensorRecord> records_;
  std::vector<Commit> commits_;  // in the order of their issue
};

std::unique_ptr<AsyncUnit> make_tensor_unit(Cluster& cluster);

// tcgen05_product.cpp and tcgen05_copy.cpp
void add_tensor_products(Table& table);
void add_tensor_copies(Table& table);

}  // namespace workbench::emulator::WORKBENCH_ISA
