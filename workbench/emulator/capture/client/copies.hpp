// Copies and fills, between the host and the device.
#pragma once

#include <cstdint>
#include <string>

#include "memory.hpp"
#include "streams.hpp"

namespace workbench::capture {

enum class Direction : int {
  host_to_host = 0,
  host_to_device = 1,
  device_to_host = 2,
  device_to_device = 3,
  by_address = 4
};

struct Copy {
  Box to, from;
  Direction direction = Direction::by_address;
  const char* function;  // of CUDA, for messages
  bool waits = true;     // the host waits for it
};

// A cudaError_t: of what is refused nothing is copied, and it is told.
int copy(Stream& stream, const Copy& copy);
// Elements of 1, 2 or 4 bytes.
int fill(Stream& stream, const Box& to, uint32_t value, unsigned element_bytes, const char* function);

}  // namespace workbench::capture
