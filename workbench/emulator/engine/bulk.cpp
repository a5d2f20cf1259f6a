// Bulk copies: TMA tiles and plain runs of bytes, into shared memory (completing on an mbarrier) and out of
// it (completing in bulk groups). Loads wait in the cluster until the scheduler lands them; stores read
// shared memory when their group is waited for.
#include <algorithm>

#include "atomic_update.hpp"
#include "mbarrier.hpp"
#include "memory.hpp"
#include "race.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

enum DescriptorProblem { kUnknownMap = 2, kWrongRank = 3, kWideSwizzle = 4 };

// ---- tiles

int elements_along(const TensorMap& map, int d) {
  const int stride = d == 0 ? 1 : static_cast<int>(map.element_strides[d]);  // of dimension 0 it is ignored
  return (static_cast<int>(map.box[d]) + stride - 1) / stride;
}

uint32_t box_bytes(const TensorMap& map) {
  uint64_t bytes = map.strides[0];
  for (int d = 0; d < map.rank; ++d) bytes *= static_cast<uint64_t>(elements_along(map, d));
  return static_cast<uint32_t>(bytes);
}

// The swizzle exchanges 16-byte columns by the row of 128 bytes they are in, counted in absolute shared
// addresses.
uint32_t swizzled(uint32_t offset, int swizzle) {
  return swizzle ? offset ^ (offset >> 7 & static_cast<uint32_t>(swizzle / 16 - 1)) << 4 : offset;
}

// Calls f(shared offset, global address or 0 when out of bounds, first byte inside, bytes inside) for every
// row of the box.
template <class F>
void each_row(const Transfer& transfer, F f) {
  const TensorMap& map = *transfer.map;
  const int64_t element = static_cast<int64_t>(map.strides[0]), row_elements = elements_along(map, 0);
  const int64_t row_bytes = row_elements * element;
  const int64_t begin = std::clamp<int64_t>(-int64_t{transfer.coordinates[0]}, 0, row_elements) * element;
  const int64_t end =
      std::clamp<int64_t>(static_cast<int64_t>(map.sizes[0]) - transfer.coordinates[0], 0, row_elements) *
      element;
  int index[5] = {};
  for (uint32_t at = transfer.shared; at < transfer.shared + transfer.bytes;
       at += static_cast<uint32_t>(row_bytes)) {
    uint64_t address = map.address + static_cast<uint64_t>(transfer.coordinates[0] * element);
    bool inside = begin < end;
    for (int d = 1; d < map.rank; ++d) {
      const int64_t position = transfer.coordinates[d] + int64_t{index[d]} * map.element_strides[d];
      inside &= position >= 0 && position < static_cast<int64_t>(map.sizes[d]);
      address += static_cast<uint64_t>(position) * map.strides[d];
    }
    f(at, address, inside ? begin : 0, inside ? end : 0, row_bytes);
    for (int d = 1; d < map.rank && ++index[d] == elements_along(map, d); ++d) index[d] = 0;
  }
}

// Copies between a row in shared memory and plain bytes, 16 bytes at a time because of the swizzle.
template <class F>
void each_piece(uint32_t offset, int64_t begin, int64_t end, int swizzle, F f) {
  while (begin < end) {
    const uint32_t at = offset + static_cast<uint32_t>(begin);
    const int64_t length = std::min<int64_t>(swizzle ? 16 - at % 16 : end - begin, end - begin);
    f(swizzled(at, swizzle), begin, static_cast<size_t>(length));
    begin += length;
  }
}

const TensorMap& find_map(const Warp& warp, uint64_t address, int lane, int rank) {
  if (address < kSharedWindow) address += kParamWindow;  // an address in the param space itself
  for (const TensorMap& map : warp.machine->launch->tensor_maps) {
    if (map.descriptor != address) continue;
    if (map.rank != rank)
      warp.fault(FaultKind::descriptor, lane, address, Space::param, kWrongRank, map.rank);
    if (map.swizzle && map.box[0] * map.strides[0] > static_cast<uint64_t>(map.swizzle))
      warp.fault(FaultKind::descriptor, lane, address, Space::param, kWideSwizzle, map.swizzle);
    return map;
  }
  warp.fault(FaultKind::descriptor, lane, address, Space::param, kUnknownMap);
}

Transfer new_transfer(Warp& warp, int lane) {
  Transfer transfer{};
  transfer.reduction = -1;
  transfer.issuer = warp.block;
  transfer.warp = warp.id;
  transfer.lane = lane;
  transfer.pc = warp.pc;
  return transfer;
}

void require_multiple(const Warp& warp, int lane, uint64_t address, Space space, uint32_t alignment) {
  if (address % alignment) warp.fault(FaultKind::misaligned, lane, address, space, alignment);
}

// ---- issue of loads

// Puts a load on its way: into the block that `destination` names or, multicast, to the same offset in
// several.
void send(Warp& warp, Transfer transfer, uint32_t destination, uint64_t barrier, uint32_t multicast,
          int lane) {
  uint32_t offset;
  Block& named = shared_block(warp, destination, lane, offset);
  const MbarrierPlace place = mbarrier_place(warp, static_cast<uint32_t>(barrier), lane, false);
  transfer.shared = offset;
  transfer.barrier = place.offset;
  const auto to = [&](Block& block, Block& barrier_block) {
    const uint64_t phase = require_mbarrier(warp, {&barrier_block, place.offset}, lane).phase;
    mark_in_flight(warp, block, offset, transfer.bytes, lane);
    race_bulk_issued(warp, block, offset, transfer.bytes, static_cast<uint32_t>(lane), barrier_block,
                     place.offset, phase);
    transfer.block = &block;
    transfer.barrier_block = &barrier_block;
    warp.block->cluster->loads.push_back(transfer);
  };
  if (!multicast) return to(named, *place.block);
  for (Block& block : warp.block->cluster->blocks)
    if (multicast >> block.rank & 1) to(block, block);
}

uint32_t multicast_mask(const Warp& warp, const Instruction& instruction, int operand, int lane) {
  return operand < instruction.count
             ? source_cells<uint32_t>(warp, instruction.operands[operand])[lane] & 0xffff
             : 0;
}

void load_tile(Warp& warp,
               const Instruction& instruction) {  // [dst], [map, coordinates], [mbarrier]{, blocks}
  const int rank = instruction.variant;
  uint64_t destination[kLanes], map[kLanes], barrier[kLanes];
  read_addresses(warp, instruction.operands[0], destination);
  read_addresses(warp, instruction.operands[1], map);
  read_addresses(warp, instruction.operands[2 + rank], barrier);
  for_lanes(warp.active, [&](int l) {
    Transfer transfer = new_transfer(warp, l);
    transfer.map = &find_map(warp, map[l], l, rank);
    for (int d = 0; d < rank; ++d)
      transfer.coordinates[d] = source_cells<int32_t>(warp, instruction.operands[2 + d])[l];
    transfer.bytes = box_bytes(*transfer.map);
    require_multiple(warp, l, destination[l], Space::shared, 128);
    send(warp, transfer, static_cast<uint32_t>(destination[l]), barrier[l],
         multicast_mask(warp, instruction, 3 + rank, l), l);
  });
}

constexpr int kFromShared = 1;

void load_run(Warp& warp, const Instruction& instruction) {  // [dst], [src], size, [mbarrier]{, blocks}
  uint64_t destination[kLanes], source[kLanes], barrier[kLanes];
  read_addresses(warp, instruction.operands[0], destination);
  read_addresses(warp, instruction.operands[1], source);
  read_addresses(warp, instruction.operands[3], barrier);
  const bool from_shared = instruction.variant == kFromShared;
  for_lanes(warp.active, [&](int l) {
    Transfer transfer = new_transfer(warp, l);
    transfer.bytes = source_cells<uint32_t>(warp, instruction.operands[2])[l];
    if (transfer.bytes % 16) warp.fault(FaultKind::bad_operand, l, 0, Space::none, transfer.bytes);
    require_multiple(warp, l, destination[l], Space::shared, 16);
    require_multiple(warp, l, source[l], from_shared ? Space::shared : Space::global, 16);
    if (from_shared) {
      transfer.source = &shared_block(warp, static_cast<uint32_t>(source[l]), l, transfer.source_offset);
      check_shared_run(warp, *transfer.source, transfer.source_offset, transfer.bytes, Access::read, l);
    } else {
      transfer.global = source[l];
      resolve_global_run(warp, source[l], transfer.bytes, Access::read, l);
    }
    send(warp, transfer, static_cast<uint32_t>(destination[l]), barrier[l],
         multicast_mask(warp, instruction, 4, l), l);
  });
}

// ---- issue of stores

void note_store(Warp& warp, Transfer transfer, uint32_t source, uint32_t alignment, int lane) {
  require_multiple(warp, lane, source, Space::shared, alignment);
  transfer.block = &shared_block(warp, source, lane, transfer.shared);
  if (transfer.block != warp.block)
    warp.fault(FaultKind::out_of_bounds, lane, source, Space::shared, transfer.bytes);
  check_shared_run(warp, *warp.block, transfer.shared, transfer.bytes, Access::read, lane);
  transfer.group = warp.bulk_group[lane];
  warp.block->stores.push_back(transfer);
}

// variant: rank, and a reduction + 1 above
constexpr int kReductionShift = 4;

void store_tile(Warp& warp, const Instruction& instruction) {  // [map, coordinates], [src]
  const int rank = instruction.variant & 15;
  uint64_t map[kLanes], source[kLanes];
  read_addresses(warp, instruction.operands[0], map);
  read_addresses(warp, instruction.operands[1 + rank], source);
  for_lanes(warp.active, [&](int l) {
    Transfer transfer = new_transfer(warp, l);
    transfer.map = &find_map(warp, map[l], l, rank);
    for (int d = 0; d < rank; ++d)
      transfer.coordinates[d] = source_cells<int32_t>(warp, instruction.operands[1 + d])[l];
    transfer.bytes = box_bytes(*transfer.map);
    transfer.reduction = (instruction.variant >> kReductionShift) - 1;
    transfer.element_type = transfer.map->element_type;
    note_store(warp, transfer, static_cast<uint32_t>(source[l]), 128, l);
  });
}

// variant: a reduction + 1, and the element type above
void store_run(Warp& warp, const Instruction& instruction) {  // [dst], [src], size
  uint64_t destination[kLanes], source[kLanes];
  read_addresses(warp, instruction.operands[0], destination);
  read_addresses(warp, instruction.operands[1], source);
  for_lanes(warp.active, [&](int l) {
    Transfer transfer = new_transfer(warp, l);
    transfer.global = destination[l];
    transfer.bytes = source_cells<uint32_t>(warp, instruction.operands[2])[l];
    transfer.reduction = (instruction.variant & 15) - 1;
    transfer.element_type = instruction.variant >> kReductionShift;
    if (transfer.bytes % 16) warp.fault(FaultKind::bad_operand, l, 0, Space::none, transfer.bytes);
    require_multiple(warp, l, destination[l], Space::global, 16);
    note_store(warp, transfer, static_cast<uint32_t>(source[l]), 16, l);
  });
}

// ---- carrying them out

// While a transfer is carried out, faults are those of the instruction that issued it.
class AsIssuer {
 public:
  explicit AsIssuer(const Transfer& transfer)
      : warp_(transfer.issuer->warps[static_cast<size_t>(transfer.warp)]),
        pc_(std::exchange(warp_.pc, transfer.pc)) {}
  ~AsIssuer() { warp_.pc = pc_; }
  const Warp& warp() const { return warp_; }

 private:
  Warp& warp_;
  int32_t pc_;
};

void fill(const TensorMap& map, uint8_t* bytes, size_t length) {
  std::memset(bytes, map.nan_fill ? 0xff : 0, length);
}

bool has_unwritten(const Warp& warp, uint64_t address, uint64_t bytes) {
  const Allocation* from = find_allocation(*warp.machine->launch, address);
  return from->initialised && !all_written(from->initialised + (address - from->address), bytes);
}

// True when nothing has written a part of what was copied.
bool carry_in(const Warp& warp, const Transfer& transfer) {
  bool unwritten = false;
  uint8_t* shared = transfer.block->shared.data();
  if (transfer.source) {
    std::memmove(shared + transfer.shared, transfer.source->shared.data() + transfer.source_offset,
                 transfer.bytes);
    return !all_written(transfer.source->shared_initialised.data() + transfer.source_offset, transfer.bytes);
  }
  if (!transfer.map) {
    std::memcpy(shared + transfer.shared,
                resolve_global_run(warp, transfer.global, transfer.bytes, Access::read, transfer.lane),
                transfer.bytes);
    return has_unwritten(warp, transfer.global, transfer.bytes);
  }
  const TensorMap& map = *transfer.map;
  each_row(transfer, [&](uint32_t at, uint64_t address, int64_t begin, int64_t end, int64_t row_bytes) {
    const auto outside = [&](uint32_t offset, int64_t, size_t length) { fill(map, shared + offset, length); };
    each_piece(at, 0, begin, map.swizzle, outside);
    if (begin < end) {
      const uint8_t* global =
          resolve_global_run(warp, address + static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin),
                             Access::read, transfer.lane);
      unwritten |=
          has_unwritten(warp, address + static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin));
      each_piece(at, begin, end, map.swizzle, [&](uint32_t offset, int64_t position, size_t length) {
        std::memcpy(shared + offset, global + (position - begin), length);
      });
    }
    each_piece(at, end, row_bytes, map.swizzle, outside);
  });
  return unwritten;
}

// The same way for what is known of the bytes: a copy of what nothing has written is undefined.
void carry_undefined(const Warp& warp, const Transfer& transfer) {
  if (transfer.source)
    return copied_undefined(warp, *transfer.block, transfer.shared, transfer.bytes, transfer.source_offset,
                            transfer.source);
  if (!transfer.map)
    return copied_undefined(warp, *transfer.block, transfer.shared, transfer.bytes, transfer.global);
  each_row(transfer, [&](uint32_t at, uint64_t address, int64_t begin, int64_t end, int64_t) {
    each_piece(at, begin, end, transfer.map->swizzle, [&](uint32_t offset, int64_t position, size_t length) {
      copied_undefined(warp, *transfer.block, offset, static_cast<uint32_t>(length),
                       address + static_cast<uint64_t>(position));
    });
  });
}

void carry_out(const Warp& warp, const Transfer& transfer) {
  const uint8_t* shared = transfer.block->shared.data();
  const Access access = transfer.reduction < 0 ? Access::write : Access::atomic;
  const auto put = [&](uint8_t* global, const uint8_t* from, size_t length) {
    const auto offset = static_cast<uint32_t>(from - shared);
    if (warp.machine->check_initialised &&
        !all_written(transfer.block->shared_initialised.data() + offset, length))
      undefined_stored(warp, transfer.lane, origin_in_shared(warp, *transfer.block, offset, length));
    if (transfer.reduction < 0)
      std::memcpy(global, from, length);
    else if (!reduce_bytes(transfer.reduction, transfer.element_type, global, from, length))
      warp.fault(FaultKind::unsupported, transfer.lane, transfer.global, Space::global,
                 transfer.element_type);
  };
  if (!transfer.map) {
    put(resolve_global_run(warp, transfer.global, transfer.bytes, access, transfer.lane),
        shared + transfer.shared, transfer.bytes);
    return;
  }
  each_row(transfer, [&](uint32_t at, uint64_t address, int64_t begin, int64_t end, int64_t) {
    if (begin >= end) return;
    uint8_t* global = resolve_global_run(warp, address + static_cast<uint64_t>(begin),
                                         static_cast<uint64_t>(end - begin), access, transfer.lane);
    each_piece(at, begin, end, transfer.map->swizzle, [&](uint32_t offset, int64_t position, size_t length) {
      put(global + (position - begin), shared + offset, length);
    });
  });
}

void commit(Warp& warp, const Instruction&) {
  for_lanes(warp.active, [&](int l) { ++warp.bulk_group[l]; });
}

// Both forms wait for the reading and then write: a kernel cannot tell that the writes come no later.
void wait_group(Warp& warp, const Instruction& instruction) {
  const uint32_t left = uniform(warp, instruction.operands[0]);
  std::vector<Transfer>& stores = warp.block->stores;
  const auto due = [&](const Transfer& t) {
    return t.warp == warp.id && (warp.active >> t.lane & 1) && t.group + left < warp.bulk_group[t.lane];
  };
  for (const Transfer& transfer : stores)
    if (due(transfer)) {
      const AsIssuer issuer(transfer);
      carry_out(issuer.warp(), transfer);
      race_shared_run(issuer.warp(), *transfer.block, transfer.shared, transfer.bytes, Access::read,
                      static_cast<uint32_t>(transfer.lane));  // reading lasted until now
    }
  stores.erase(std::remove_if(stores.begin(), stores.end(), due), stores.end());
}

void nothing(Warp&, const Instruction&) {}

}  // namespace

void land_transfer(Cluster& cluster, size_t index) {
  const Transfer transfer = cluster.loads[index];
  cluster.loads.erase(cluster.loads.begin() + static_cast<std::ptrdiff_t>(index));
  const AsIssuer issuer(transfer);
  const bool unwritten = carry_in(issuer.warp(), transfer);
  landed(*transfer.block, transfer.shared, transfer.bytes);
  if (unwritten && issuer.warp().machine->check_initialised) carry_undefined(issuer.warp(), transfer);
  const MbarrierPlace told{transfer.barrier_block, transfer.barrier};
  race_mbarrier_landed(issuer.warp(), *told.block, told.offset,
                       require_mbarrier(issuer.warp(), told, transfer.lane).phase);
  mbarrier_update(issuer.warp(), told, transfer.lane, 0, -static_cast<int64_t>(transfer.bytes));
}

void check_finished(Warp& warp, uint32_t exiting) {
  if (!warp.machine->check_in_flight) return;
  const int lane = __builtin_ctz(exiting);
  Block& block = *warp.block;
  if (!warp.products.empty())
    warp.fault(FaultKind::exited_with_work, lane, 0, Space::none, 0, 0, warp.products.front().pc);
  for (const Transfer& store : block.stores)
    if (store.warp == warp.id && (exiting >> store.lane & 1))
      warp.fault(FaultKind::exited_with_work, store.lane, store.shared, Space::shared, store.bytes, 0,
                 store.pc);
  if (block.alive != static_cast<uint32_t>(__builtin_popcount(exiting))) return;
  for (const Transfer& load : block.cluster->loads)  // the last thread of the block: its shared memory goes
    if (load.block == &block)
      warp.fault(FaultKind::exited_with_work, lane, load.shared, Space::shared, load.bytes, 0, load.pc);
}

void add_bulk_operations(Table& table) {
  const std::string end = ".mbarrier::complete_tx::bytes", multicast = ".multicast::cluster";
  for (const char* to : {".shared::cluster", ".shared"}) {
    const std::string run = "cp.async.bulk" + std::string(to);
    table.add(run + ".global" + end, "aawa", load_run);
    table.add(run + ".global" + end + multicast, "aawaw", load_run);
    table.add(run + ".shared" + end, "aawa", load_run, kFromShared);
    for (int rank = 1; rank <= 5; ++rank) {
      const std::string n = std::to_string(rank), tensor = "cp.async.bulk.tensor." + n + "d" + to + ".global";
      for (const char* mode : {".tile", ""}) {
        table.add(tensor + mode + end, "aaw" + n + "a", load_tile, rank);
        table.add(tensor + mode + end + multicast, "aaw" + n + "aw", load_tile, rank);
      }
    }
  }
  table.add("cp.async.bulk.global.shared.bulk_group", "aaw", store_run);
  for (int rank = 1; rank <= 5; ++rank) {
    const std::string n = std::to_string(rank);
    for (const char* mode : {".tile", ""}) {
      table.add("cp.async.bulk.tensor." + n + "d.global.shared" + mode + ".bulk_group", "aw" + n + "a",
                store_tile, rank);
      table.add("cp.async.bulk.prefetch.tensor." + n + "d.L2.global" + mode, "aw" + n, nothing);
      for (int r = 0; r < kReductions; ++r)
        table.add("cp.reduce.async.bulk.tensor." + n + "d.global.shared" + reduction_names()[r] + mode +
                      ".bulk_group",
                  "aw" + n + "a", store_tile, rank | (r + 1) << kReductionShift);
    }
  }
  for (const auto& [type, element_type] : reducible_types())
    for (int r = 0; r < kReductions; ++r)
      for (const char* form : {"", ".noftz"})
        table.add(
            "cp.reduce.async.bulk.global.shared.bulk_group" + std::string(reduction_names()[r]) + form + type,
            "aaw", store_run, (r + 1) | element_type << kReductionShift);
  table.add("cp.async.bulk.prefetch.L2.global", "aw", nothing);
  table.add("cp.async.bulk.commit_group", "", commit);
  table.add("cp.async.bulk.wait_group", "w", wait_group);
  table.add("cp.async.bulk.wait_group.read", "w", wait_group);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
