// Modules, kernels, variables and launches, of which the emulator knows what they are.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "streams.hpp"

namespace workbench::capture {

using Dimensions = std::array<uint32_t, 3>;

struct Kernel {
  uint64_t id;
  std::string name;   // in the PTX
  std::string shown;  // as in the source
  bool with_host;     // may work on memory together with the host: it has operations of the system's scope
  std::vector<std::pair<uint64_t, uint64_t>> parameters;  // offset and bytes of each
  uint64_t parameter_bytes;
  int registers, static_shared, local_bytes, max_threads, version, architecture;
  Dimensions cluster;  // that it is compiled for, or zeros
  int max_dynamic_shared;
  bool non_portable = false;  // clusters of more than 8 blocks are allowed
};

struct Variable {
  uint64_t address = 0, bytes = 0;
};

struct Module {
  uint64_t id = 0;
  int error = 0;  // why it could not be loaded
  std::map<std::string, Kernel*> kernels;
};

// The module of fat binaries, cubins or PTX. Its error says why there is none.
Module* load(const std::vector<const void*>& images);
// Null where the module has no such kernel, or one that the emulator cannot execute: that has been said then.
Kernel* kernel_of(Module& module, const std::string& name, int* error);
Variable variable_of(Module& module, const std::string& name, bool managed);

struct Launch {
  Kernel* kernel;
  Dimensions grid, block, cluster;
  uint64_t shared;
  bool cooperative;
  std::vector<uint8_t> arguments;
  std::string site = {};
  bool programmatic = false;  // may begin before the launch in front of it has ended
  std::vector<EarlyEvent> events = {};
};

std::vector<uint8_t> packed(const Kernel& kernel, void** arguments);
// As packed arguments with a size, as cuLaunchKernel takes them in `extra`; null: there are none.
std::vector<uint8_t> packed_extra(void** extra);
// An error of the launch itself; what goes wrong in the kernel is `device_error` afterwards.
int launch(Stream& stream, Launch launch);
// Why the thread's last launch was refused.
const std::string& launch_refusal();
int occupancy(const Kernel& kernel, int threads, uint64_t shared);

// The device's error, which stays until the process ends.
int device_error();

}  // namespace workbench::capture
