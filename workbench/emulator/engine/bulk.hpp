// Bulk copies, for other asynchronous writes to shared memory that complete on an mbarrier.
#pragma once

#include "machine.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// A write of at most 16 bytes from registers: its payload, and for a reduction what that is, are to be filled
// in.
Transfer new_remote_write(Warp& warp, int lane, uint32_t bytes);
// To one block, or to the same place in those of which `multicast` has a bit.
constexpr int32_t kNoMulticast = -1;
void send_remote_write(Warp& warp, const Transfer& transfer, uint32_t destination, uint64_t barrier,
                       int32_t multicast = kNoMulticast);

}  // namespace workbench::emulator::WORKBENCH_ISA
