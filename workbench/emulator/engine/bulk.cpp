// Bulk copies: TMA tiles and plain runs of bytes, into shared memory (completing on an mbarrier) and out of
// it (completing in bulk groups). Loads wait in the cluster until the scheduler lands them; stores read
// shared memory when their group is waited for.
#include "bulk.hpp"

#include <algorithm>
#include <numeric>

#include "atomic_update.hpp"
#include "mbarrier.hpp"
#include "memory.hpp"
#include "race.hpp"
#include "tensor_bytes.hpp"
#include "undefined.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

// ---- tiles

// The swizzle exchanges 16-byte columns by the row of 128 bytes they are in, counted in absolute shared
// addresses; or wider ones.
uint32_t swizzled(uint32_t offset, int swizzle) {
  const uint32_t row = offset >> 7;
  if (swizzle == kAtom64) return offset ^ (row & 1) << 6;
  if (swizzle > 128) return offset ^ (row & 3) << 5 ^ (swizzle == kAtom32Flip ? (row & 1) << 3 : 0);
  return swizzle ? offset ^ (row & static_cast<uint32_t>(swizzle / 16 - 1)) << 4 : offset;
}

// Calls f as `each_row` of a place does, with the offset in shared memory.
template <class F>
void each_row(const Transfer& transfer, F f) {
  each_row(transfer.tile, [&](uint32_t at, uint64_t address, int64_t begin, int64_t end, int64_t row_bytes) {
    f(transfer.shared + at, address, begin, end, row_bytes);
  });
}

// A load from global memory must come after a proxy fence, if the launch itself has written what it reads.
void check_proxy(const Warp& warp, const Transfer& transfer) {
  if (!warp.races) return;
  if (!transfer.tile.map) {
    proxy_reads_global(warp, transfer.global, transfer.bytes, transfer.lane);
    return;
  }
  if (!proxy_reads_global(warp, transfer.tile.map->address, 0, transfer.lane)) return;
  each_row(transfer, [&](uint32_t, uint64_t address, int64_t begin, int64_t end, int64_t) {
    if (begin < end)
      proxy_reads_global(warp, address + static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin),
                         transfer.lane);
  });
}

// Copies between a row in shared memory and plain bytes, 16 bytes at a time because of the swizzle, or 8.
template <class F>
void each_piece(uint32_t offset, int64_t begin, int64_t end, int swizzle, F f) {
  const uint32_t piece = swizzle == kAtom32Flip ? 8 : 16;
  while (begin < end) {
    const uint32_t at = offset + static_cast<uint32_t>(begin);
    const int64_t length = std::min<int64_t>(swizzle ? piece - (at & (piece - 1)) : end - begin, end - begin);
    f(swizzled(at, swizzle), begin, static_cast<size_t>(length));
    begin += length;
  }
}

// variant of an operation on tiles: the rank, this, a TileMode, and of stores a reduction + 1 above; of runs
// that do, this is above the rest
constexpr int kRank = 7, kIm2col = 8, kModeShift = 4, kModeMask = 3, kTileReductionShift = 6,
              kReductionShift = 4;

TileMode mode_of(int variant) { return static_cast<TileMode>(variant >> kModeShift & kModeMask); }
// Operands that say where a tile begins.
int coordinates_of(int variant) { return mode_of(variant) == TileMode::four_rows ? 5 : variant & kRank; }
int offsets_of(int variant) {
  return !(variant & kIm2col) ? 0 : mode_of(variant) == TileMode::box ? (variant & kRank) - 2 : 2;
}

// A map in global memory that the kernel has made or edited, or null.
const TensorMap* edited_map(const Warp& warp, uint64_t address, int lane) {
  const Launch& launch = *warp.machine->launch;
  const Allocation* allocation = find_allocation(launch, address);
  TensorMapBytes bytes;
  if (!allocation || address % 64 || address - allocation->address + bytes.size() > allocation->bytes)
    return nullptr;
  proxy_reads_global(warp, address, bytes.size(), lane);
  std::memcpy(bytes.data(), allocation->data + (address - allocation->address), bytes.size());
  require_acquired(warp, address, bytes, lane);
  const std::lock_guard<std::mutex> lock(launch.edited_maps->mutex);
  const auto known = launch.edited_maps->maps.find(bytes);
  if (known != launch.edited_maps->maps.end()) return &known->second;
  TensorMap map{};
  if (!decode_map(bytes.data(), map)) return nullptr;
  return &launch.edited_maps->maps.emplace(bytes, map).first->second;
}

// Copies of the block use the map as it is now, or as it is when one of its threads comes here again.
void acquire_map(Warp& warp, const Instruction& instruction) {
  uint64_t address[kLanes];
  read_addresses(warp, instruction.operands[0], address);
  for_lanes(warp.active, [&](int l) {
    const Allocation* allocation = find_allocation(*warp.machine->launch, address[l]);
    TensorMapBytes bytes;
    if (!allocation || address[l] - allocation->address + bytes.size() > allocation->bytes) return;
    std::memcpy(bytes.data(), allocation->data + (address[l] - allocation->address), bytes.size());
    warp.block->acquired_maps[address[l]] = bytes;
  });
  race_proxy_fence(warp);
}

const TensorMap& find_map(const Warp& warp, uint64_t address, int lane, int variant) {
  const int rank = variant & kRank;
  if (address < kSharedWindow) address += kParamWindow;  // an address in the param space itself
  const TensorMap* found = nullptr;
  for (const TensorMap& map : warp.machine->launch->tensor_maps)
    if (map.descriptor == address) found = &map;
  if (!found) found = edited_map(warp, address, lane);
  if (found) {
    const TensorMap& map = *found;
    if (map.rank != rank)
      warp.fault(FaultKind::descriptor, lane, address, Space::param, kWrongRank, map.rank);
    const bool wide = mode_of(variant) >= TileMode::along_w;
    if (map.im2col != ((variant & kIm2col) != 0) || map.wide != wide)
      warp.fault(FaultKind::descriptor, lane, address, Space::param, kWrongMode, map.wide ? 2 : map.im2col);
    if (mode_of(variant) == TileMode::four_rows && map.box[1] != 1)
      warp.fault(FaultKind::descriptor, lane, address, Space::param, kTallBox, map.box[1]);
    const int span = std::min(map.swizzle, 128);
    if (span && row_in_shared(map) > static_cast<uint64_t>(span))
      warp.fault(FaultKind::descriptor, lane, address, Space::param, kWideSwizzle, span);
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
// several: `multicast` has a bit for each of them, or is kNoMulticast.
void send(Warp& warp, Transfer transfer, uint32_t destination, uint64_t barrier, int32_t multicast, int lane,
          bool pair = false) {
  uint32_t offset;
  Block& named = shared_block(warp, destination, lane, offset);
  const MbarrierPlace place = mbarrier_place(warp, static_cast<uint32_t>(barrier), lane, false);
  if (multicast == kNoMulticast && &named != place.block && !(pair && (named.rank ^ 1) == place.block->rank))
    warp.fault(FaultKind::mbarrier_invalid, lane, cluster_address(*place.block, place.offset), Space::shared,
               4);
  transfer.shared = offset;
  transfer.barrier = place.offset;
  transfer.issued = race_issued(warp, static_cast<uint32_t>(lane));
  const auto to = [&](Block& block, Block& barrier_block) {
    const uint64_t phase = require_mbarrier(warp, {&barrier_block, place.offset}, lane).phase;
    race_mbarrier_used(warp, barrier_block, place.offset, lane, true);
    mark_in_flight(warp, block, offset, transfer.bytes, lane);
    race_bulk_issued(warp, block, offset, transfer.bytes, static_cast<uint32_t>(lane), barrier_block,
                     place.offset, phase, transfer.tile.map ? transfer.tile.map->swizzle : -1);
    if (transfer.tile.map) race_map_loads(warp, transfer.map, barrier_block, place.offset, phase);
    if (transfer.source && transfer.source != &block)
      race_copy_source(warp, *transfer.source, transfer.source_offset, lane, barrier_block, place.offset,
                       phase);
    transfer.block = &block;
    transfer.barrier_block = &barrier_block;
    transfer.phase = phase;
    warp.block->cluster->loads.push_back(transfer);
  };
  if (multicast == kNoMulticast) return to(named, *place.block);
  const auto blocks = static_cast<int64_t>(warp.block->cluster->blocks.size());
  if (multicast == 0 || multicast >> blocks)
    warp.fault(FaultKind::bad_operand, lane, 0, Space::none, multicast, blocks);
  for (Block& block : warp.block->cluster->blocks)
    if (multicast >> block.rank & 1) {
      if (block.alive == 0)
        warp.fault(FaultKind::exited_with_work, lane, cluster_address(block, offset), Space::shared, 0, 1,
                   block.exit_pc);
      // for a pair, the mbarrier of its block with an even rank or of that with an odd one
      const uint32_t told = pair ? (block.rank & ~1u) | (place.block->rank & 1) : block.rank;
      to(block, warp.block->cluster->blocks[std::min<size_t>(told, static_cast<size_t>(blocks) - 1)]);
    }
}

int32_t multicast_mask(const Warp& warp, const Instruction& instruction, int operand, int lane) {
  return operand < instruction.count
             ? source_cells<int32_t>(warp, instruction.operands[operand])[lane] & 0xffff
             : kNoMulticast;
}

// Elements in the fewest whole units of 16 bytes.
uint32_t step_along_row(const TensorMap& map) {
  return map.per_unit * 16 / std::gcd(16u, static_cast<uint32_t>(map.strides[0]));
}

// Where a tile may begin, as an H200 has it: at a multiple of 16 bytes along a row, and a store nowhere below
// 0. Beyond the last element it may. The pixels of a store lie within the tensor: so does their bounding box.
void require_place(const Warp& warp, const TilePlace& tile, int lane, bool store) {
  const TensorMap& map = *tile.map;
  if (tile.mode >= TileMode::along_w) {  // how a halo lies in shared memory is not documented
    if (tile.offsets[0]) warp.fault(FaultKind::unsupported, lane, tile.offsets[0]);
  }
  // 4-bit elements with gaps behind them are for loads alone
  if (store && map.gap == 8) warp.fault(FaultKind::unsupported, lane, map.address);
  const auto refuse = [&](int64_t value, int64_t why) {
    warp.fault(FaultKind::bad_operand, lane, step_along_row(map), Space::none, value, why);
  };
  for (int d = 0; d < map.rank; ++d) {
    const int64_t place = int64_t{tile.coordinates[d]} * (d ? 1 : map.per_unit);
    if ((d == 0 && place % step_along_row(map)) || (store && place < 0)) refuse(place, kTileBegins - d);
  }
  if (!map.im2col || map.wide) return;
  const int most_offset = (1 << 16 / (map.rank - 2)) - 1;
  for (int d = 0; d < map.rank - 2; ++d) {
    if (store && map.lower[d] < 0) refuse(map.lower[d], kTileBegins - 1 - d);
    if (store && map.upper[d] > 0) refuse(map.upper[d], kPixelsReach - 1 - d);
    if (tile.offsets[d] > most_offset) refuse(tile.offsets[d], kPixelOffset - 1 - d);
  }
}

// [map, coordinates] from operand `first` on, and from `offsets` on the offsets of an im2col load
TilePlace tile_place(const Warp& warp, const Instruction& instruction, uint64_t map, int first, int offsets,
                     int lane) {
  const int rank = instruction.variant & kRank;
  TilePlace tile{};
  tile.map = &find_map(warp, map, lane, instruction.variant);
  tile.mode = mode_of(instruction.variant);
  const auto coordinate = [&](int d) {
    return source_cells<int32_t>(warp, instruction.operands[first + 1 + d])[lane];
  };
  for (int d = 0; d < rank; ++d) tile.coordinates[d] = coordinate(d);
  const auto unit = static_cast<int32_t>(tile.map->per_unit);
  if (tile.coordinates[0] % unit)
    warp.fault(FaultKind::bad_operand, lane, step_along_row(*tile.map), Space::none, tile.coordinates[0],
               kTileBegins);
  tile.coordinates[0] /= unit;
  for (int k = 0; tile.mode == TileMode::four_rows && k < 4; ++k) tile.rows[k] = coordinate(1 + k);
  for (int d = 0; offsets && d < offsets_of(instruction.variant); ++d)
    tile.offsets[d] =
        static_cast<uint16_t>(source_cells<uint32_t>(warp, instruction.operands[offsets + d])[lane]);
  return tile;
}

// [dst], [map, coordinates], [mbarrier]{, offsets}{, blocks}
void load_tile(Warp& warp, const Instruction& instruction) {
  const int rank = coordinates_of(instruction.variant), offsets = offsets_of(instruction.variant);
  uint64_t destination[kLanes], map[kLanes], barrier[kLanes];
  read_addresses(warp, instruction.operands[0], destination);
  read_addresses(warp, instruction.operands[1], map);
  read_addresses(warp, instruction.operands[2 + rank], barrier);
  for_lanes(warp.active, [&](int l) {
    Transfer transfer = new_transfer(warp, l);
    transfer.tile = tile_place(warp, instruction, map[l], 1, offsets ? 3 + rank : 0, l);
    transfer.map = map[l];
    transfer.bytes = bytes_in_shared(transfer.tile);
    require_place(warp, transfer.tile, l, false);
    check_proxy(warp, transfer);
    require_multiple(warp, l, destination[l], Space::shared, 128);
    send(warp, transfer, static_cast<uint32_t>(destination[l]), barrier[l],
         multicast_mask(warp, instruction, 3 + rank + offsets, l), l, (instruction.flags & kBlockPair) != 0);
  });
}

// A prefetch changes nothing, but what it names has to be right.
void prefetch_tile(Warp& warp, const Instruction& instruction) {  // [map, coordinates]{, offsets}
  const int rank = coordinates_of(instruction.variant);
  uint64_t map[kLanes];
  read_addresses(warp, instruction.operands[0], map);
  for_lanes(warp.active, [&](int l) {
    const int offsets = instruction.variant & kIm2col ? 1 + rank : 0;
    require_place(warp, tile_place(warp, instruction, map[l], 0, offsets, l), l, false);
  });
}

// An atomic update of shared memory: others may be on their way to the same place.
void send_reduction(Warp& warp, Transfer transfer, uint32_t destination, uint64_t barrier, int lane) {
  transfer.block = &shared_block(warp, destination, lane, transfer.shared);
  const MbarrierPlace place = mbarrier_place(warp, static_cast<uint32_t>(barrier), lane, false);
  require_mbarrier(warp, place, lane);
  race_mbarrier_used(warp, *place.block, place.offset, lane, true);
  transfer.barrier_block = place.block;
  transfer.barrier = place.offset;
  check_shared_run(warp, *transfer.block, transfer.shared, transfer.bytes, Access::atomic, lane);
  transfer.issued = race_issued(warp, static_cast<uint32_t>(lane));
  warp.block->cluster->loads.push_back(transfer);
}

// variant: this, a reduction + 1, and the element type above
constexpr int kFromShared = 1, kLoadReductionShift = 1, kLoadTypeShift = 5;

void load_run(Warp& warp, const Instruction& instruction) {  // [dst], [src], size, [mbarrier]{, blocks}
  uint64_t destination[kLanes], source[kLanes], barrier[kLanes];
  read_addresses(warp, instruction.operands[0], destination);
  read_addresses(warp, instruction.operands[1], source);
  read_addresses(warp, instruction.operands[3], barrier);
  const bool from_shared = (instruction.variant & kFromShared) != 0;
  for_lanes(warp.active, [&](int l) {
    Transfer transfer = new_transfer(warp, l);
    transfer.bytes = source_cells<uint32_t>(warp, instruction.operands[2])[l];
    if (transfer.bytes % 16) warp.fault(FaultKind::bad_operand, l, 0, Space::none, transfer.bytes);
    require_multiple(warp, l, destination[l], Space::shared, 16);
    require_multiple(warp, l, source[l], from_shared ? Space::shared : Space::global, 16);
    if (from_shared) {
      transfer.source = &shared_block(warp, static_cast<uint32_t>(source[l]), l, transfer.source_offset);
      check_shared_run(warp, *transfer.source, transfer.source_offset, transfer.bytes, Access::read, l);
      proxy_reads_shared(warp, *transfer.source, transfer.source_offset, transfer.bytes, l);
    } else {
      transfer.global = source[l];
      resolve_global_run(warp, source[l], transfer.bytes, Access::read, l);
      check_proxy(warp, transfer);
    }
    transfer.reduction = (instruction.variant >> kLoadReductionShift & 15) - 1;
    transfer.element_type = instruction.variant >> kLoadTypeShift;
    if (transfer.reduction >= 0)
      return send_reduction(warp, transfer, static_cast<uint32_t>(destination[l]), barrier[l], l);
    send(warp, transfer, static_cast<uint32_t>(destination[l]), barrier[l],
         multicast_mask(warp, instruction, 4, l), l);
  });
}

// ---- issue of stores

// Where the tensor ends within a row of the tile, 16 bytes that it ends in are written whole, as on an H200;
// a reduction ends with the last element.
int64_t written_end(const Transfer& transfer, int64_t end, int64_t row_bytes) {
  if (end == row_bytes || transfer.reduction >= 0) return end;
  const auto row = static_cast<int64_t>(transfer.tile.map->sizes[0] * transfer.tile.map->strides[0]);
  return std::min(end + (16 - row % 16) % 16, row_bytes);
}

// From now on global memory may change, until the group is waited for. What is out of bounds is found when it
// is carried out.
void store_begins(Warp& warp, const Transfer& transfer) {
  if (!warp.races) return;
  const auto writes = [&](uint64_t address, uint64_t bytes) {
    const Allocation* to = find_allocation(*warp.machine->launch, address);
    if (to && bytes <= to->bytes - (address - to->address))
      race_store_issued(warp, *to, address - to->address, bytes,
                        transfer.reduction < 0 ? Access::write : Access::atomic,
                        static_cast<uint32_t>(transfer.lane));
  };
  if (!transfer.tile.map) return writes(transfer.global, transfer.bytes);
  each_row(transfer, [&](uint32_t, uint64_t address, int64_t begin, int64_t end, int64_t row_bytes) {
    if (begin < end)
      writes(address + static_cast<uint64_t>(begin),
             static_cast<uint64_t>(written_end(transfer, end, row_bytes) - begin));
  });
}

void note_store(Warp& warp, Transfer transfer, uint32_t source, uint32_t alignment, int lane) {
  require_multiple(warp, lane, source, Space::shared, alignment);
  transfer.block = &shared_block(warp, source, lane, transfer.shared);
  if (transfer.block != warp.block)
    warp.fault(FaultKind::out_of_bounds, lane, source, Space::shared, transfer.bytes);
  check_shared_run(warp, *warp.block, transfer.shared, transfer.bytes, Access::read, lane);
  proxy_reads_shared(warp, *warp.block, transfer.shared, transfer.bytes, lane);
  transfer.group = warp.bulk_group[lane];
  if (transfer.tile.map) race_map_stores(warp, transfer.map, static_cast<uint32_t>(lane));
  store_begins(warp, transfer);
  warp.block->stores.push_back(transfer);
}

// [map, coordinates], [src]. Lanes that store one tile from one place, as CuTe DSL has a warp do, store it
// once.
void store_tile(Warp& warp, const Instruction& instruction) {
  const int rank = coordinates_of(instruction.variant);
  TilePlace tiles[kLanes];
  uint64_t map[kLanes], source[kLanes];
  read_addresses(warp, instruction.operands[0], map);
  read_addresses(warp, instruction.operands[1 + rank], source);
  for_lanes(warp.active, [&](int l) {
    Transfer transfer = new_transfer(warp, l);
    transfer.tile = tile_place(warp, instruction, map[l], 0, 0, l);
    transfer.map = map[l];
    transfer.bytes = bytes_in_shared(transfer.tile);
    require_place(warp, transfer.tile, l, true);
    transfer.reduction = (instruction.variant >> kTileReductionShift) - 1;
    transfer.element_type = transfer.tile.map->element_type;
    tiles[l] = transfer.tile;
    for (int k = 0; transfer.reduction < 0 && k < l; ++k)
      if ((warp.active >> k & 1) && map[k] == map[l] && source[k] == source[l] &&
          std::equal(tiles[k].coordinates, tiles[k].coordinates + 5, tiles[l].coordinates) &&
          std::equal(tiles[k].rows, tiles[k].rows + 4, tiles[l].rows))
        return;
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

// While a transfer is carried out, faults are those of the instruction that issued it, and a load knows what
// its warp knew then.
class AsIssuer {
 public:
  explicit AsIssuer(const Transfer& transfer)
      : warp_(transfer.issuer->warps[static_cast<size_t>(transfer.warp)]),
        pc_(std::exchange(warp_.pc, transfer.pc)) {
    if (!transfer.issued) return;
    known_ = *transfer.issued;
    exchange();
    warp_.races->copier = race_copier(*transfer.barrier_block, transfer.barrier);
    warp_.races->copied = static_cast<uint32_t>(transfer.phase + 1);
  }
  ~AsIssuer() {
    warp_.pc = pc_;
    if (exchanged_) exchange();
  }
  AsIssuer(const AsIssuer&) = delete;
  const Warp& warp() const { return warp_; }

 private:
  void exchange() {
    WarpRaces& races = *warp_.races;
    std::swap(races.known.now, known_);
    std::swap(races.partly, partly_);
    races.as_issued = exchanged_ = !exchanged_;
  }

  Warp& warp_;
  int32_t pc_;
  Clock known_;
  std::vector<LaneKnowledge> partly_;
  bool exchanged_ = false;
};

// Elements outside: zero, or the NaN of the hardware, which is made of the same 16 bits in every float type.
void fill(const TensorMap& map, uint8_t* bytes, size_t length) {
  std::memset(bytes, 0, length);
  if (!map.nan_fill) return;
  for (size_t i = 0; i + 1 < length; i += 2) bytes[i] = 0xf7, bytes[i + 1] = 0x7f;
}

// A load converts elements of the types that say so: tf32 keeps 10 bits of the significand, rounded to
// nearest, and ftz makes zeros of subnormal numbers.
void convert(const TensorMap& map, uint8_t* bytes, size_t length) {
  const bool flush = map.element_type == kFloat32Ftz || map.element_type == kTfloat32Ftz;
  const bool round = map.element_type == kTfloat32 || map.element_type == kTfloat32Ftz;
  if (!flush && !round) return;
  for (size_t i = 0; i < length; i += 4) {
    uint32_t bits;
    std::memcpy(&bits, bytes + i, 4);
    if (flush && !(bits & 0x7f800000)) bits &= 0x80000000;
    if (round && (bits & 0x7f800000) == 0x7f800000)  // an infinity, or a NaN that stays one
      bits = bits & 0x7fffff ? (bits | 0x400000) & ~0x1fffu : bits;
    else if (round)
      bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    std::memcpy(bytes + i, &bits, 4);
  }
}

bool has_unwritten(const Warp& warp, uint64_t address, uint64_t bytes) {
  const Allocation* from = find_allocation(*warp.machine->launch, address);
  return !written_in(*from).all(address - from->address, bytes);
}

// The place of a piece of a tile. A swizzle may lead beyond the bytes of the tile, and of shared memory.
uint8_t* piece_at(const Warp& warp, const Transfer& transfer, uint32_t offset, size_t length) {
  RecycledVector<uint8_t>& shared = transfer.block->shared;
  if (offset > shared.size() || length > shared.size() - offset)
    warp.fault(FaultKind::out_of_bounds, transfer.lane, offset, Space::shared, static_cast<int64_t>(length));
  return shared.data() + offset;
}

// True when nothing has written a part of what was copied.
bool carry_in(const Warp& warp, const Transfer& transfer) {
  bool unwritten = false;
  uint8_t* shared = transfer.block->shared.data();
  if (transfer.source || transfer.immediate) {
    const uint8_t* from =
        transfer.immediate ? transfer.payload : transfer.source->shared.data() + transfer.source_offset;
    if (transfer.reduction < 0)
      std::memmove(shared + transfer.shared, from, transfer.bytes);
    else
      reduce_bytes(transfer.reduction, transfer.element_type, shared + transfer.shared, from, transfer.bytes);
    return transfer.source && !written_in(*transfer.source).all(transfer.source_offset, transfer.bytes);
  }
  if (!transfer.tile.map) {
    std::memcpy(shared + transfer.shared,
                resolve_global_run(warp, transfer.global, transfer.bytes, Access::read, transfer.lane),
                transfer.bytes);
    return has_unwritten(warp, transfer.global, transfer.bytes);
  }
  const TensorMap& map = *transfer.tile.map;
  each_row(transfer, [&](uint32_t at, uint64_t address, int64_t begin, int64_t end, int64_t row_bytes) {
    const auto outside = [&](uint32_t offset, int64_t, size_t length) {
      fill(map, piece_at(warp, transfer, offset, length), length);
    };
    each_piece(at, 0, begin, map.swizzle, outside);
    if (begin < end) {
      const uint8_t* global =
          resolve_global_run(warp, address + static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin),
                             Access::read, transfer.lane);
      unwritten |=
          has_unwritten(warp, address + static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin));
      each_piece(at, begin, end, map.swizzle, [&](uint32_t offset, int64_t position, size_t length) {
        uint8_t* to = piece_at(warp, transfer, offset, length);
        std::memcpy(to, global + (position - begin), length);
        convert(map, to, length);
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
  if (!transfer.tile.map)
    return copied_undefined(warp, *transfer.block, transfer.shared, transfer.bytes, transfer.global);
  each_row(transfer, [&](uint32_t at, uint64_t address, int64_t begin, int64_t end, int64_t) {
    each_piece(at, begin, end, transfer.tile.map->swizzle,
               [&](uint32_t offset, int64_t position, size_t length) {
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
    if (warp.machine->check_initialised && !written_in(*transfer.block).all(offset, length))
      undefined_stored(warp, transfer.lane, origin_in_shared(warp, *transfer.block, offset, length));
    if (transfer.reduction < 0)
      std::memcpy(global, from, length);
    else if (!reduce_bytes(transfer.reduction, transfer.element_type, global, from, length))
      warp.fault(FaultKind::unsupported, transfer.lane, transfer.global, Space::global,
                 transfer.element_type);
  };
  if (!transfer.tile.map) {
    put(resolve_global_run(warp, transfer.global, transfer.bytes, access, transfer.lane, false),
        shared + transfer.shared, transfer.bytes);
    return;
  }
  each_row(transfer, [&](uint32_t at, uint64_t address, int64_t begin, int64_t end, int64_t row_bytes) {
    if (begin >= end) return;
    end = written_end(transfer, end, row_bytes);
    uint8_t* global = resolve_global_run(warp, address + static_cast<uint64_t>(begin),
                                         static_cast<uint64_t>(end - begin), access, transfer.lane, false);
    each_piece(at, begin, end, transfer.tile.map->swizzle,
               [&](uint32_t offset, int64_t position, size_t length) {
                 put(global + (position - begin), piece_at(warp, transfer, offset, length), length);
               });
  });
}

void commit(Warp& warp, const Instruction&) {
  for_lanes(warp.active, [&](int l) { ++warp.bulk_group[l]; });
}

template <class Due>
void end_stores(std::vector<Transfer>& stores, const Due& due) {
  for (const Transfer& transfer : stores)
    if (due(transfer)) {
      const AsIssuer issuer(transfer);
      carry_out(issuer.warp(), transfer);
      race_shared_run(issuer.warp(), *transfer.block, transfer.shared, transfer.bytes, Access::read,
                      static_cast<uint32_t>(transfer.lane));  // reading lasted until now
    }
  stores.erase(std::remove_if(stores.begin(), stores.end(), due), stores.end());
}

constexpr int kOfReading = 1;

// Both forms wait for the reading and then write. What has been written, nobody knows before a wait without
// .read: until then it is a race to touch it.
void wait_group(Warp& warp, const Instruction& instruction) {
  const uint32_t left = uniform(warp, instruction.operands[0]);
  end_stores(warp.block->stores, [&](const Transfer& t) {
    return t.warp == warp.id && (warp.active >> t.lane & 1) && t.group + left < warp.bulk_group[t.lane];
  });
  if (!instruction.variant) race_stores_done(warp, warp.active, left);
}

void nothing(Warp&, const Instruction&) {}

}  // namespace

void land_transfer(Cluster& cluster, size_t index) {
  const Transfer transfer = cluster.loads[index];
  cluster.loads.erase(cluster.loads.begin() + static_cast<std::ptrdiff_t>(index));
  const AsIssuer issuer(transfer);
  const bool unwritten = carry_in(issuer.warp(), transfer);
  if (transfer.reduction < 0) landed(*transfer.block, transfer.shared, transfer.bytes);
  if (unwritten && issuer.warp().machine->check_initialised) carry_undefined(issuer.warp(), transfer);
  const MbarrierPlace told{transfer.barrier_block, transfer.barrier};
  race_mbarrier_landed(issuer.warp(), *told.block, told.offset,
                       require_mbarrier(issuer.warp(), told, transfer.lane).phase);
  mbarrier_update(issuer.warp(), told, transfer.lane, 0,
                  -static_cast<int64_t>(transfer.tile.map ? tile_bytes(transfer.tile) : transfer.bytes));
}

Transfer new_remote_write(Warp& warp, int lane, uint32_t bytes) {
  Transfer transfer = new_transfer(warp, lane);
  transfer.immediate = true;
  transfer.bytes = bytes;
  return transfer;
}

void send_remote_write(Warp& warp, const Transfer& transfer, uint32_t destination, uint64_t barrier,
                       int32_t multicast) {
  if (transfer.reduction < 0)
    send(warp, transfer, destination, barrier, multicast, transfer.lane);
  else
    send_reduction(warp, transfer, destination, barrier, transfer.lane);
}

void check_finished(Warp& warp, uint32_t exiting) {
  if (!warp.machine->check_in_flight) return;
  const int lane = __builtin_ctz(exiting);
  Block& block = *warp.block;
  if (!warp.products.empty())
    warp.finding(FaultKind::exited_with_work, lane, 0, Space::none, 0, 0, warp.products.front().pc);
  const auto left = [&](const Transfer& store) {
    return store.warp == warp.id && (exiting >> store.lane & 1);
  };
  for (const Transfer& store : block.stores)
    if (left(store))
      warp.finding(FaultKind::stores_pending, store.lane, store.shared, Space::shared, store.bytes, 0,
                   store.pc);
  end_stores(block.stores, left);  // as devices do
  if (block.alive != static_cast<uint32_t>(__builtin_popcount(exiting))) return;
  for (const Transfer& load : block.cluster->loads)  // the last thread of the block: its shared memory goes
    if (load.block == &block || load.source == &block)
      warp.finding(load.issuer == &block ? FaultKind::loads_pending : FaultKind::exited_with_work, lane,
                   load.shared, Space::shared, load.bytes, 0, load.pc);
}

namespace {

// Which reductions PTX has for elements of a type.
bool is_reduction(const std::string& name, const std::string& type) {
  if (name == ".inc" || name == ".dec") return type == ".u32";
  if (name == ".and" || name == ".or" || name == ".xor") return type == ".b32" || type == ".b64";
  const bool is_single_or_double = type == ".f32" || type == ".f64";
  if (type == ".b32" || type == ".b64") return false;
  return name == ".add" ? type != ".s64" : !is_single_or_double;
}

}  // namespace

namespace {

// The modes of a Blackwell GPU: four rows of a matrix, and pixels along one dimension.
void add_row_modes(Table& table, const std::string& end, const std::string& multicast) {
  constexpr int kRows = 2 | static_cast<int>(TileMode::four_rows) << kModeShift;
  const std::string load = "cp.async.bulk.tensor.", store = ".global.shared",
                    mode = ".tile::scatter4.bulk_group";
  for (const char* to : {".shared::cluster", ".shared"}) {
    table.add(load + "2d" + to + ".global.tile::gather4" + end, "aaw5a", load_tile, kRows);
    if (std::strlen(to) > 7)
      table.add(load + "2d" + to + ".global.tile::gather4" + end + multicast, "aaw5aw", load_tile, kRows);
  }
  table.add("cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4", "aw5", prefetch_tile, kRows);
  table.add(load + "2d" + store + mode, "aw5a", store_tile, kRows);
  for (int r = 0; r < kReductions; ++r)
    table.add("cp.reduce.async.bulk.tensor.2d" + store + reduction_names()[r] + mode, "aw5a", store_tile,
              kRows | (r + 1) << kTileReductionShift);
  for (int rank = 3; rank <= 5; ++rank)
    for (const auto& [name, form] :
         {std::pair(".im2col::w", TileMode::along_w), std::pair(".im2col::w::128", TileMode::along_w_128)}) {
      const std::string n = std::to_string(rank), begin = load + n + "d", place = "w" + n;
      const int variant = rank | kIm2col | static_cast<int>(form) << kModeShift;
      table.add("cp.async.bulk.prefetch.tensor." + n + "d.L2.global" + name, "a" + place + "w2",
                prefetch_tile, variant);
      table.add(begin + ".shared.global" + name + end, "aa" + place + "aw2", load_tile, variant);
      table.add(begin + ".shared::cluster.global" + name + end, "aa" + place + "aw2", load_tile, variant);
      table.add(begin + ".shared::cluster.global" + name + end + multicast, "aa" + place + "aw3", load_tile,
                variant);
    }
}

}  // namespace

void add_bulk_operations(Table& table) {
  table.add("fence.proxy.tensormap.acquire", "a", acquire_map);
  const std::string end = ".mbarrier::complete_tx::bytes", multicast = ".multicast::cluster";
  for (const char* to : {".shared::cluster", ".shared"}) {
    const std::string run = "cp.async.bulk" + std::string(to);
    const bool to_cluster = run.back() == 'r';  // only there several blocks can be reached, or another one
    table.add(run + ".global" + end, "aawa", load_run);
    if (to_cluster) table.add(run + ".global" + end + multicast, "aawaw", load_run);
    if (to_cluster) table.add(run + ".shared" + end, "aawa", load_run, kFromShared);
    for (int rank = 1; rank <= 5; ++rank) {
      const std::string n = std::to_string(rank), tensor = "cp.async.bulk.tensor." + n + "d" + to + ".global";
      for (const char* mode : {".tile", ""}) {
        table.add(tensor + mode + end, "aaw" + n + "a", load_tile, rank);
        if (to_cluster) table.add(tensor + mode + end + multicast, "aaw" + n + "aw", load_tile, rank);
      }
      if (rank < 3) continue;
      const std::string operands = "aaw" + n + "aw" + std::to_string(rank - 2);
      table.add(tensor + ".im2col" + end, operands, load_tile, rank | kIm2col);
      if (to_cluster)
        table.add(tensor + ".im2col" + end + multicast, operands + "w", load_tile, rank | kIm2col);
    }
  }
  add_row_modes(table, end, multicast);
  table.add("cp.async.bulk.global.shared.bulk_group", "aaw", store_run);
  for (int rank = 1; rank <= 5; ++rank) {
    const std::string n = std::to_string(rank);
    const std::string prefetch = "cp.async.bulk.prefetch.tensor." + n + "d.L2.global";
    for (const char* mode : {".tile", ""}) table.add(prefetch + mode, "aw" + n, prefetch_tile, rank);
    if (rank >= 3)
      table.add(prefetch + ".im2col", "aw" + n + "w" + std::to_string(rank - 2), prefetch_tile,
                rank | kIm2col);
    for (const char* mode : {".tile", "", ".im2col_no_offs"}) {
      const int form = rank | (mode == std::string(".im2col_no_offs") ? kIm2col : 0);
      if (form & kIm2col && rank < 3) continue;
      table.add("cp.async.bulk.tensor." + n + "d.global.shared" + mode + ".bulk_group", "aw" + n + "a",
                store_tile, form);
      for (int r = 0; r < kReductions; ++r)
        table.add("cp.reduce.async.bulk.tensor." + n + "d.global.shared" + reduction_names()[r] + mode +
                      ".bulk_group",
                  "aw" + n + "a", store_tile, form | (r + 1) << kTileReductionShift);
    }
  }
  for (const auto& [type, element_type] : reducible_types())
    for (int r = 0; r < kReductions; ++r) {
      const std::string name = reduction_names()[r];
      if (!is_reduction(name, type)) continue;
      const char* form = name == ".add" && (type == ".f16" || type == ".bf16") ? ".noftz" : "";
      table.add("cp.reduce.async.bulk.global.shared.bulk_group" + name + form + type, "aaw", store_run,
                (r + 1) | element_type << kReductionShift);
    }
  for (const char* to : {".shared::cluster", ".shared"})
    for (const auto& [type, element_type] : reducible_types())
      for (int r = 0; r < kReductions; ++r)
        if (is_reduction(reduction_names()[r], type))
          table.add("cp.reduce.async.bulk" + std::string(to) + ".shared" + end + reduction_names()[r] + type,
                    "aawa", load_run,
                    kFromShared | (r + 1) << kLoadReductionShift | element_type << kLoadTypeShift);
  table.add("cp.async.bulk.prefetch.L2.global", "aw", nothing);
  table.add("cp.async.bulk.commit_group", "", commit);
  table.add("cp.async.bulk.wait_group", "w", wait_group);
  table.add("cp.async.bulk.wait_group.read", "w", wait_group, kOfReading);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
