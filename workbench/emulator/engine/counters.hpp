// Counters: what each instruction asked of memory, tensor cores and barriers, by the rules of Hopper.
//
// They are counted before an instruction runs, from its operands, so that the operations themselves know
// nothing of them. Where nothing is counted the scheduler runs a build of its loop without these calls.
#pragma once

#include <array>

#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// How the operands of an instruction are to be read.
struct Footprint {
  enum class Form : uint8_t { none, access, tiles, copy, bulk, product, tensor_product, tensor_move };
  Form form = Form::none;
  Space space = Space::none;
  bool atomic = false;
  bool ignore_source = false;  // of a copy: the last operand is a predicate
  int address = 0;             // the operand; of a bulk copy, the shared one; of tcgen05.mma its descriptor
  int other = -1;              // the global address or tensor map of a bulk copy; -1: there is none
  int rank = 0;                // of a bulk copy: dimensions of the tile, 0: a run of bytes
  TileMode mode = TileMode::box;
  int offsets = 0;          // the first offset of an im2col tile; 0: there is none
  uint32_t bytes = 0;       // a lane
  uint64_t operations = 0;  // of a product, a warp's share; of tcgen05.mma for each element of D
};

struct MachineCounters {
  std::vector<Footprint> footprints;  // of each row
};

using RowCounters = std::array<uint64_t, kCounters>;
struct ClusterCounters {
  std::vector<RowCounters> rows;
};

void start_counters(Machine& machine);
void start_counters(Cluster& cluster);
void add_counters(const Cluster& cluster, Result& result);

// An instruction is about to run: `active` lanes are here, `lanes` of them have a true guard.
void count_instruction(Warp& warp, const Instruction& instruction, uint32_t active, uint32_t lanes);
// A branch or a wait has been dealt with.
void count_divergence(const Warp& warp);
void count_blocked(const Warp& warp);

// Passes that the data stage of shared memory needs for the lanes' accesses of `bytes` each, and without bank
// conflicts.
struct Wavefronts {
  uint32_t needed, ideal;
};
Wavefronts shared_wavefronts(uint32_t lanes, const uint32_t* offset, uint32_t bytes, bool atomic);

}  // namespace workbench::emulator::WORKBENCH_ISA
