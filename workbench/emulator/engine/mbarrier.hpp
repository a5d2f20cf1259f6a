// mbarrier objects, for the copies that complete on them.
#pragma once

#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

struct MbarrierPlace {
  Block* block;
  uint32_t offset;
};

// The place that a shared address (or a generic one) of a lane means.
MbarrierPlace mbarrier_place(const Warp& warp, uint64_t address, int lane, bool generic);
// The object there; faults unless it has been initialised, and not been overwritten since.
Mbarrier& require_mbarrier(const Warp& warp, MbarrierPlace place, int lane);
// Arrivals take away from what is pending, transactions add to the bytes that are awaited (negative: they
// came). Ends the phase when neither is left.
void mbarrier_update(const Warp& warp, MbarrierPlace place, int lane, int32_t arrivals, int64_t transactions);

// A try_wait whose result nobody reads, or that is not tried again soon, waits for nothing.
void find_single_tries(Code& code);

}  // namespace workbench::emulator::WORKBENCH_ISA
