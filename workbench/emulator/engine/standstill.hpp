// Blocks that go round in loops and wait for what no block on the device can bring about.
#pragma once

#include "machine.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

enum class Motion : uint8_t {
  goes_on,  // or nothing is known of it
  circles,  // every warp comes back to a state in which it has been, and changes no memory of the cluster
  ended,
};

// Runs the cluster a little further and says how it moves. `loads_at`: where a loop of it reads memory, or
// -1.
Motion watch_motion(Cluster& cluster, int32_t& loads_at);

// What global memory holds, as a number that is hardly ever the same for other contents; never 0.
uint64_t digest_of_global_memory(const Launch& launch);

}  // namespace workbench::emulator::WORKBENCH_ISA
