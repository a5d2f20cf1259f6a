// The heap of the device: malloc, free, new and delete in kernels.
//
// It is a variable of the program, kHeap bytes that program.py places, and all that is known of it lies in
// it: it outlives a launch as other memory does. Blocks follow one another and no address is given out twice,
// so that the use of a freed block is always found.
#pragma once

#include "memory.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// Whether these bytes lie in one block that has not been freed; else a finding, or with `ends` the end of the
// launch.
bool heap_access(const Warp& warp, const Allocation& heap, uint64_t address, uint64_t bytes, int lane,
                 bool ends);

void start_heap(Machine& machine);
// Notes the blocks that the launch has taken and nobody has freed.
void end_heap(Machine& machine);

}  // namespace workbench::emulator::WORKBENCH_ISA
