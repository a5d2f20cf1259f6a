// From addresses to host pointers, with every check on the way.
#pragma once

#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

enum class Access : uint8_t { read, write, atomic };

// How the 32 addresses of an access relate, when all lanes are active.
enum class Pattern : uint8_t { scattered, contiguous, uniform };

// Fill `pointer` for the active lanes, or fault. `bytes` is a power of two, and the alignment required. A
// read of what nothing has written sets `Warp::read_unwritten`, anything else that reads it faults.
Pattern resolve_global(Warp& warp, const uint64_t* address, uint32_t bytes, Access access, uint8_t** pointer);
Pattern resolve_shared(Warp& warp, const uint64_t* address, uint32_t bytes, Access access, uint8_t** pointer);
Pattern resolve_generic(Warp& warp, const uint64_t* address, uint32_t bytes, Access access,
                        uint8_t** pointer);
Pattern resolve(Warp& warp, Space space, const uint64_t* address, uint32_t bytes, Access access,
                uint8_t** pointer);

// Whether an address means global memory, where spaces are told apart by it.
inline bool in_global(Space space, uint64_t address) {
  return space == Space::global || (space == Space::none && address >> 32 != kSharedWindow >> 32);
}

// Whose local memory a generic address names: the thread in its block, and the block among three.
inline uint32_t local_owner(const Warp& warp, int lane) {
  constexpr int kBlockShift = 10;
  return static_cast<uint32_t>(warp.block->id % 3 + 1) << kBlockShift |
         static_cast<uint32_t>(warp.id * kLanes + lane);
}

// What has been written of shared memory, and of an allocation: none where all of it has.
inline WrittenBytes written_in(Block& block) { return WrittenBytes(block.shared_written.view()); }
inline WrittenBytes written_in(const Allocation& allocation) {
  return {allocation.initialised, allocation.bytes};
}

const Allocation* find_allocation(const Launch& launch, uint64_t address);

// A run of bytes of any length in one allocation, on behalf of one lane.
uint8_t* resolve_global_run(const Warp& warp, uint64_t address, uint64_t bytes, Access access, int lane,
                            bool races = true);

// How the blocks of a cluster name a place in the shared memory of one of them.
inline uint32_t cluster_address(const Block& block, uint32_t offset) {
  return (block.rank + 1) << kRankShift | offset;
}

// The block whose shared memory an address means, and the offset in it.
Block& shared_block(const Warp& warp, uint32_t address, int lane, uint32_t& offset);

// Checks a run of bytes of shared memory, on behalf of one lane or (lane < 0) of the whole warp. True when it
// is read and nothing has written a part of it.
bool check_shared_run(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, Access access,
                      int lane);
// The same for all that one warp's share of a matrix product reads.
struct SharedRun {
  uint32_t offset, bytes;  // multiples of 16
};
bool check_shared_reads(const Warp& warp, const std::vector<SharedRun>& runs);
void check_shared_async(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, Access access,
                        int lane);

// The destination of an asynchronous copy, from its issue until it lands.
void mark_in_flight(const Warp& warp, Block& block, uint32_t offset, uint32_t bytes, int lane);
void landed(Block& block, uint32_t offset, uint32_t bytes);

}  // namespace workbench::emulator::WORKBENCH_ISA
