#include "counters.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "tensor_memory.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

constexpr uint32_t kSectorBits = 5, kBanks = 32, kWordBits = 2;
constexpr uint32_t kQuarterWarp = 8, kHalfWarp = 16;  // lanes

// ---- what the name of an operation says

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  std::istringstream stream(name);
  for (std::string part; std::getline(stream, part, '.');) parts.push_back(part);
  return parts;
}

uint32_t number_at(const std::string& text, size_t at) {
  uint32_t number = 0;
  for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])); ++at)
    number = number * 10 + static_cast<uint32_t>(text[at] - '0');
  return number;
}

// Bytes of a type such as b32, bf16 or f16x2; 0 for any other part of a name.
uint32_t type_bytes(const std::string& part) {
  const size_t digits = part.find_first_of("0123456789");
  if (digits == std::string::npos) return 0;
  const std::string letters = part.substr(0, digits);
  if (letters != "b" && letters != "u" && letters != "s" && letters != "f" && letters != "bf") return 0;
  const size_t pair = part.find('x', digits);
  return number_at(part, digits) / 8 * (pair == std::string::npos ? 1 : number_at(part, pair + 1));
}

Space space_of(const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (part == "global") return Space::global;
    if (part == "shared" || part == "shared::cluster") return Space::shared;
    if (part == "local") return Space::local;
    if (part == "param" || part == "const") return Space::param;
  }
  return Space::none;
}

int address_operand(const Instruction& instruction, int from = 0) {
  for (int k = from; k < instruction.count; ++k)
    if (instruction.access[k] == 'a') return k;
  return -1;
}

Footprint access_footprint(const std::vector<std::string>& parts, const Instruction& instruction) {
  Footprint found;
  found.space = space_of(parts);
  if (found.space == Space::param) return found;
  found.form = Footprint::Form::access;
  found.atomic = parts[0] == "atom" || parts[0] == "red";
  found.address = address_operand(instruction);
  uint32_t length = 1;
  for (const std::string& part : parts) {
    if (part.size() > 1 && part[0] == 'v' && number_at(part, 1)) length = number_at(part, 1);
    if (const uint32_t bytes = type_bytes(part)) found.bytes = bytes;
  }
  found.bytes *= length;
  return found;
}

Footprint tiles_footprint(const std::vector<std::string>& parts, const Instruction& instruction) {
  Footprint found;
  found.form = Footprint::Form::tiles;
  found.address = address_operand(instruction);
  found.space = space_of(parts);
  for (const std::string& part : parts)
    if (part.size() == 2 && part[0] == 'x') found.bytes = kQuarterWarp * number_at(part, 1);  // here: rows
  return found;
}

Footprint bulk_footprint(const std::string& name, const Instruction& instruction) {
  Footprint found;
  if (name.find("prefetch") != std::string::npos || name.find("global") == std::string::npos) return found;
  found.form = Footprint::Form::bulk;
  const bool load = name.find(".shared") < name.find(".global");
  const size_t tensor = name.find(".tensor.");
  found.rank = tensor == std::string::npos ? 0 : static_cast<int>(number_at(name, tensor + 8));
  const int first = address_operand(instruction), second = address_operand(instruction, first + 1);
  found.address = load ? first : second;
  found.other = load ? second : first;
  if (name.find("er4") != std::string::npos) found.mode = TileMode::four_rows;
  if (name.find("im2col::w") != std::string::npos)
    found.mode = name.find("::128") == std::string::npos ? TileMode::along_w : TileMode::along_w_128;
  if (load && found.rank && name.find(".im2col") != std::string::npos)
    found.offsets = found.other + found.rank + 2;  // behind the coordinates and the mbarrier
  return found;
}

Footprint product_footprint(const std::vector<std::string>& parts, bool warpgroup) {
  Footprint found;
  for (const std::string& part : parts) {
    const size_t n = part.find('n'), k = part.find('k');
    if (part[0] != 'm' || n == std::string::npos || k == std::string::npos || !number_at(part, 1)) continue;
    found.form = Footprint::Form::product;
    found.operations = uint64_t{2} * number_at(part, 1) * number_at(part, n + 1) * number_at(part, k + 1);
    if (warpgroup) found.operations /= 4;  // a product of four warps
  }
  return found;
}

// Of tcgen05.mma, whose shape is in its descriptor, and of what moves tensor memory.
Footprint tensor_footprint(const std::string& name, const Instruction& instruction) {
  Footprint found;
  const int kind = instruction.flags >> kTensorKindShift & kTensorKindMask;
  if (name.compare(0, 11, "tcgen05.mma") == 0) {
    constexpr uint64_t kDepths[] = {16, 8, 32, 32, 32, 64, 64};
    found.form = Footprint::Form::tensor_product;
    found.operations = 2 * kDepths[kind] * (name.find(".sp") == std::string::npos ? 1 : 2);
    while (instruction.access[found.address] != 'w') ++found.address;
  } else if (name.compare(0, 11, "tcgen05.ld.") == 0 || name.compare(0, 11, "tcgen05.st.") == 0) {
    found.form = Footprint::Form::tensor_move;
    found.bytes = static_cast<uint32_t>(instruction.variant & 255) * 4 * kLanes;
  } else if (name == "tcgen05.cp") {
    constexpr uint32_t kBytes[] = {4096, 128, 2048, 1024, 1024, 512};
    found.form = Footprint::Form::tensor_move;
    found.bytes = kBytes[kind] * (instruction.flags & kTensorPair ? 2 : 1);
  }
  return found;
}

Footprint footprint_of(const std::string& name, const Instruction& instruction) {
  const std::vector<std::string> parts = parts_of(name);
  const std::string& base = parts[0];
  if (name.compare(0, 7, "st.bulk") == 0) return Footprint{};
  if (base == "ld" || base == "ldu" || base == "st" || base == "atom" || base == "red")
    return access_footprint(parts, instruction);
  if (base == "tcgen05") return tensor_footprint(name, instruction);
  if (base == "ldmatrix" || base == "stmatrix") return tiles_footprint(parts, instruction);
  if (base == "mma" || base == "wgmma" || name.compare(0, 8, "wmma.mma") == 0)
    return product_footprint(parts, base == "wgmma");
  if (name.compare(0, 13, "cp.async.bulk") == 0 || name.compare(0, 20, "cp.reduce.async.bulk") == 0) {
    if (address_operand(instruction) >= 0) return bulk_footprint(name, instruction);
  } else if (name.compare(0, 11, "cp.async.ca") == 0 || name.compare(0, 11, "cp.async.cg") == 0) {
    Footprint found;
    found.form = Footprint::Form::copy;
    found.ignore_source = parts.back() == "ignore";
    return found;
  }
  return Footprint{};
}

// ---- counting

struct Tally {
  RowCounters& row;
  void add(Counter which, uint64_t value) { row[static_cast<size_t>(which)] += value; }
};

Tally tally_of(const Warp& warp) {
  return {warp.block->cluster->counters->rows[static_cast<size_t>(warp.pc)]};
}

// How many different values there are; the list is sorted.
template <class T>
uint64_t distinct(T* begin, T* end) {
  std::sort(begin, end);
  return static_cast<uint64_t>(std::unique(begin, end) - begin);
}

void count_global(Tally tally, uint32_t lanes, const uint64_t* address, uint64_t bytes) {
  uint64_t sectors[2 * kLanes];
  size_t n = 0;
  for_lanes(lanes, [&](int l) {
    const uint64_t first = address[l] >> kSectorBits, last = (address[l] + bytes - 1) >> kSectorBits;
    if (n == 0 || sectors[n - 1] != first) sectors[n++] = first;
    if (last != first) sectors[n++] = last;
  });
  tally.add(Counter::global_requests, 1);
  tally.add(Counter::global_sectors, distinct(sectors, sectors + n));
  tally.add(Counter::global_bytes, bytes * static_cast<uint64_t>(__builtin_popcount(lanes)));
}

// Local memory is laid out so that the same word of the 32 lanes lies side by side.
void count_local(Tally tally, uint32_t lanes, const uint64_t* offset, uint32_t bytes) {
  std::vector<uint64_t> sectors;
  for_lanes(lanes, [&](int l) {
    const uint64_t at = offset[l] & kLocalOffset;
    const uint64_t first = at >> kWordBits, last = (at + bytes - 1) >> kWordBits;
    for (uint64_t word = first; word <= last; ++word)
      sectors.push_back((word * kLanes + static_cast<uint64_t>(l)) << kWordBits >> kSectorBits);
  });
  tally.add(Counter::local_requests, 1);
  tally.add(Counter::local_sectors, distinct(sectors.data(), sectors.data() + sectors.size()));
  tally.add(Counter::local_bytes, uint64_t{bytes} * static_cast<uint64_t>(__builtin_popcount(lanes)));
}

void count_shared(const Warp& warp, Tally tally, uint32_t lanes, const uint64_t* address, uint32_t bytes,
                  bool atomic) {
  uint32_t offset[kLanes] = {}, here = 0;
  for_lanes(lanes, [&](int l) {
    const uint32_t narrow = static_cast<uint32_t>(address[l]), rank = narrow >> kRankShift;
    offset[l] = narrow & ((1u << kRankShift) - 1);
    if (rank == 0 || rank == warp.block->rank + 1) here |= 1u << l;
  });
  if (here) {
    const Wavefronts passes = shared_wavefronts(here, offset, bytes, atomic);
    tally.add(Counter::shared_requests, 1);
    tally.add(Counter::shared_wavefronts, passes.needed);
    tally.add(Counter::shared_ideal, passes.ideal);
    tally.add(Counter::shared_bytes, uint64_t{bytes} * static_cast<uint64_t>(__builtin_popcount(here)));
  }
  if (const uint32_t remote = lanes & ~here) {
    tally.add(Counter::remote_requests, 1);
    tally.add(Counter::remote_bytes, uint64_t{bytes} * static_cast<uint64_t>(__builtin_popcount(remote)));
  }
}

// The lanes whose generic address lies in a window; kFirstGlobal stands for all that lies above.
uint32_t lanes_in(uint32_t lanes, const uint64_t* address, uint64_t window) {
  uint32_t here = 0;
  for_lanes(lanes, [&](int l) {
    const uint64_t own = std::min(address[l] >> 32, kFirstGlobal >> 32);
    here |= (own == window >> 32 ? 1u : 0u) << l;
  });
  return here;
}

void count_access(const Warp& warp, Tally tally, const Footprint& footprint, const Operand& operand,
                  uint32_t lanes) {
  uint64_t address[kLanes];
  read_addresses(warp, operand, address);
  const bool generic = footprint.space == Space::none;
  const auto part = [&](Space space, uint64_t window) {
    return generic ? lanes_in(lanes, address, window) : footprint.space == space ? lanes : 0;
  };
  if (const uint32_t here = part(Space::global, kFirstGlobal))
    count_global(tally, here, address, footprint.bytes);
  if (const uint32_t here = part(Space::shared, kSharedWindow))
    count_shared(warp, tally, here, address, footprint.bytes, footprint.atomic);
  if (const uint32_t here = part(Space::local, kLocalWindow))
    count_local(tally, here, address, footprint.bytes);
}

// ldmatrix and stmatrix: a pass for each tile of eight rows of 16 bytes.
void count_tiles(const Warp& warp, Tally tally, const Footprint& footprint, const Operand& operand) {
  uint64_t address[kLanes];
  read_addresses(warp, operand, address);
  uint32_t offset[kLanes];
  for (int l = 0; l < kLanes; ++l) offset[l] = static_cast<uint32_t>(address[l]) & ((1u << kRankShift) - 1);
  tally.add(Counter::shared_requests, 1);
  for (uint32_t row = 0; row < footprint.bytes; row += kQuarterWarp) {
    const Wavefronts passes = shared_wavefronts(0xffu << row, offset, 16, false);
    tally.add(Counter::shared_wavefronts, passes.needed);
    tally.add(Counter::shared_ideal, passes.ideal);
  }
  tally.add(Counter::shared_bytes, uint64_t{16} * footprint.bytes);
}

void count_copy(const Warp& warp, Tally tally, const Footprint& footprint, const Instruction& instruction,
                uint32_t lanes) {
  uint64_t destination[kLanes], source[kLanes];
  read_addresses(warp, instruction.operands[0], destination);
  read_addresses(warp, instruction.operands[1], source);
  const uint32_t size = source_cells<uint32_t>(warp, instruction.operands[2])[__builtin_ctz(lanes)];
  if (size != 4 && size != 8 && size != 16) return;  // it faults
  const Operand& last = instruction.operands[3];
  uint32_t reading = lanes;
  if (last.slot != kAbsent)
    for_lanes(lanes, [&](int l) {
      const bool nothing =
          footprint.ignore_source ? Source<bool>(warp, last)[l] : source_cells<uint32_t>(warp, last)[l] == 0;
      if (nothing) reading &= ~(1u << l);
    });
  if (reading) count_global(tally, reading, source, size);
  count_shared(warp, tally, lanes, destination, size, false);
}

// The sectors of global memory that a tile touches: those of every row of the box, as far as it lies inside.
uint64_t tile_sectors(const TilePlace& tile) {
  uint64_t sectors = 0;
  each_row(tile, [&](uint32_t, uint64_t address, int64_t begin, int64_t end, int64_t) {
    if (begin >= end) return;
    const uint64_t first = address + static_cast<uint64_t>(begin),
                   last = address + static_cast<uint64_t>(end) - 1;
    sectors += (last >> kSectorBits) - (first >> kSectorBits) + 1;
  });
  return sectors;
}

void count_bulk(const Warp& warp, Tally tally, const Footprint& footprint, const Instruction& instruction,
                uint32_t lanes) {
  uint64_t global[kLanes];
  read_addresses(warp, instruction.operands[footprint.other], global);
  for_lanes(lanes, [&](int l) {
    uint64_t bytes = 0, sectors = 0;
    if (footprint.rank) {
      const uint64_t address = global[l] < kSharedWindow ? global[l] + kParamWindow : global[l];
      TilePlace tile{};
      for (int d = 0; d < footprint.rank; ++d)
        tile.coordinates[d] = source_cells<int32_t>(warp, instruction.operands[footprint.other + 1 + d])[l];
      tile.mode = footprint.mode;
      for (int k = 0; tile.mode == TileMode::four_rows && k < 4; ++k)
        tile.rows[k] = source_cells<int32_t>(warp, instruction.operands[footprint.other + 2 + k])[l];
      const int offsets = tile.mode == TileMode::box ? footprint.rank - 2 : 2;
      for (int d = 0; footprint.offsets && d < offsets; ++d)
        tile.offsets[d] = static_cast<uint16_t>(
            source_cells<uint32_t>(warp, instruction.operands[footprint.offsets + d])[l]);
      for (const TensorMap& map : warp.machine->launch->tensor_maps)
        if (map.descriptor == address && map.rank == footprint.rank) {
          tile.map = &map;
          bytes = tile_bytes(tile);
          sectors = tile_sectors(tile);
        }
    } else {
      const int size = std::max(footprint.address, footprint.other) + 1;
      bytes = source_cells<uint32_t>(warp, instruction.operands[size])[l];
      if (bytes) sectors = ((global[l] + bytes - 1) >> kSectorBits) - (global[l] >> kSectorBits) + 1;
    }
    tally.add(Counter::bulk_requests, 1);
    tally.add(Counter::bulk_sectors, sectors);
    tally.add(Counter::bulk_bytes, bytes);
  });
}

// ---- shared memory

// The most that any bank has to deliver of the lanes' accesses: different words, or for atomics, accesses.
uint32_t bank_passes(uint32_t lanes, const uint32_t* offset, uint32_t bytes, bool atomic) {
  uint32_t words[kLanes * 4];
  size_t n = 0;
  for_lanes(lanes, [&](int l) {
    for (uint32_t word = offset[l] >> kWordBits; word <= (offset[l] + bytes - 1) >> kWordBits; ++word)
      words[n++] = word;
  });
  if (!atomic) n = distinct(words, words + n);
  uint32_t load[kBanks] = {};
  for (size_t k = 0; k < n; ++k) ++load[words[k] % kBanks];
  return *std::max_element(load, load + kBanks);
}

// Whether neighbours ask for the same: each lane and the one `distance` away, as far as both are active.
bool paired(uint32_t lanes, const uint32_t* offset, int distance) {
  bool same = true;
  for_lanes(lanes, [&](int l) {
    const int other = l ^ distance;
    if (lanes >> other & 1) same &= offset[l] == offset[other];
  });
  return same;
}

}  // namespace

// 32 lanes of up to 4 bytes share a pass as long as no bank holds two different words. Of 8 bytes a half warp
// does, of 16 a quarter; twice as many lanes, where neighbours ask for the same.
Wavefronts shared_wavefronts(uint32_t lanes, const uint32_t* offset, uint32_t bytes, bool atomic) {
  const uint32_t step = bytes <= 4 ? kLanes : bytes == 8 ? kHalfWarp : kQuarterWarp;
  Wavefronts total{0, 0};
  const auto visit = [&](uint32_t part, uint32_t width) {
    for (uint32_t first = 0; first < kLanes; first += width) {
      const uint32_t here = part & (width == kLanes ? ~0u : ((1u << width) - 1) << first);
      if (!here) continue;
      total.needed += bank_passes(here, offset, bytes, atomic);
      ++total.ideal;
    }
  };
  if (step == kLanes) {
    visit(lanes, step);
    return total;
  }
  const uint32_t merged = 2 * step;  // lanes that may share a pass
  for (uint32_t first = 0; first < kLanes; first += merged) {
    const uint32_t here = lanes & (merged == kLanes ? ~0u : ((1u << merged) - 1) << first);
    const bool same = paired(here, offset, 1) || paired(here, offset, 2);
    visit(here, same ? merged : step);
  }
  return total;
}

// ---- for the scheduler and the launch

void count_instruction(Warp& warp, const Instruction& instruction, uint32_t active, uint32_t lanes) {
  const Footprint& footprint = warp.machine->counters->footprints[static_cast<size_t>(warp.pc)];
  Tally tally = tally_of(warp);
  tally.add(Counter::active_lanes, static_cast<uint64_t>(__builtin_popcount(active)));
  tally.add(Counter::lanes, static_cast<uint64_t>(__builtin_popcount(lanes)));
  if (!lanes) return;
  switch (footprint.form) {
    case Footprint::Form::none:
      break;
    case Footprint::Form::access:
      count_access(warp, tally, footprint, instruction.operands[footprint.address], lanes);
      break;
    case Footprint::Form::tiles:
      count_tiles(warp, tally, footprint, instruction.operands[footprint.address]);
      break;
    case Footprint::Form::copy:
      count_copy(warp, tally, footprint, instruction, lanes);
      break;
    case Footprint::Form::bulk:
      count_bulk(warp, tally, footprint, instruction, lanes);
      break;
    case Footprint::Form::product:
      tally.add(Counter::tensor_operations, footprint.operations);
      break;
    case Footprint::Form::tensor_product:
      for_lanes(lanes, [&](int l) {
        const uint64_t bits = source_cells<uint32_t>(warp, instruction.operands[footprint.address])[l];
        tally.add(Counter::tensor_operations,
                  footprint.operations * (bits >> 17 & 63) * 8 * (bits >> 24 & 31) * 16);
      });
      break;
    case Footprint::Form::tensor_move:
      tally.add(Counter::tensor_requests, 1);
      tally.add(Counter::tensor_bytes, footprint.bytes);
      break;
  }
}

void count_divergence(const Warp& warp) { tally_of(warp).add(Counter::divergent, 1); }

void count_blocked(const Warp& warp) {
  for (const Group& group : warp.groups)
    if (group.wait != Wait::none && group.pc == warp.pc) return tally_of(warp).add(Counter::blocked, 1);
}

void start_counters(Machine& machine) {
  if (!machine.launch->count) return;
  machine.counters = std::make_shared<MachineCounters>();
  const auto& table = operation_table();
  for (size_t k = 0; k < machine.prepared->instructions.size(); ++k)
    machine.counters->footprints.push_back(
        footprint_of(table[static_cast<size_t>(machine.program->rows[k].operation)].name, machine.code[k]));
}

void start_counters(Cluster& cluster) {
  if (!cluster.machine->counters) return;
  cluster.counters = std::make_shared<ClusterCounters>();
  cluster.counters->rows.assign(cluster.machine->prepared->instructions.size(), RowCounters{});
}

void add_counters(const Cluster& cluster, Result& result) {
  if (!cluster.counters) return;
  size_t at = 0;
  result.counters.resize(cluster.counters->rows.size() * kCounters);
  for (const RowCounters& row : cluster.counters->rows)
    for (const uint64_t value : row) result.counters[at++] += value;
}

}  // namespace workbench::emulator::WORKBENCH_ISA
