// What the four warps of a warpgroup must do alike.
#pragma once

#include <algorithm>

#include "lanes.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

// The warp executes an instruction of its warpgroup: faults where the other warps execute another one.
void warpgroup_step(Warp& warp, uint32_t registers = 0);
void warpgroup_exit(Warp& warp);
// Whether no warp of the warpgroup is behind this one.
bool warpgroup_together(const Warp& warp);
// What a warp waited for that others were behind of, in wgmma.cpp.
void warpgroup_waited(Warp& warp, uint32_t limit);

// Prepares the code so that writes to registers which a wgmma uses are noted.
void track_registers(const Program& program, Code& code);
// Faults unless a wgmma.fence came after the last write to these registers.
void require_fenced(const Warp& warp, const Operand* registers, int count);

}  // namespace workbench::emulator::WORKBENCH_ISA
