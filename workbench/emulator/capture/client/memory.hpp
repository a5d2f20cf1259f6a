// The device's memory as the host sees it: one file, mapped where the device sees it and once more beside.
//
// Memory of cudaMalloc has no pages at the device's address: host code that follows such a pointer faults,
// and is told so. Managed and pinned memory has. While the device may still write or read it, its pages are
// guarded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace workbench::capture {

enum class Space : uint64_t { device, managed, pinned, registered, variable, header };

struct Allocation {
  uint64_t address, bytes;
  Space space;
  std::string site;  // where the host allocated it
  bool on_host() const { return space == Space::managed || space == Space::pinned; }
};

// A moment of a stream: everything up to its operation of that number.
using Clock = std::map<uint64_t, uint64_t>;  // by stream
struct Moment;

// Attributes of the device by their number in CUDA, its name and memory, as the emulator says; connects to
// it.
struct DeviceFacts {
  std::string name;
  uint64_t total_memory = 0;
  std::map<int, int> attributes;
};
const DeviceFacts& device();

// 0 where there is no memory left.
uint64_t allocate(uint64_t bytes, Space space, const std::string& site);
// Whether there was such an allocation.
bool release(uint64_t address);
// The allocation that an address lies in, or null; one byte behind its end counts where `end` is true.
const Allocation* find(uint64_t address, bool end = false);
// A variable of a module, which the emulator has placed.
void adopt(uint64_t address, uint64_t bytes, bool on_host);
std::vector<Allocation> allocations();
bool is_device_address(uint64_t address);
// Where our own code reads and writes what the device has at an address.
uint8_t* alias(uint64_t address);
// A part of memory: so many rows, which begin `pitch` bytes apart.
struct Box {
  uint64_t address, pitch, width, rows;
};
// An operation of a stream, and where the host asked for it.
struct Operated {
  const char* function;
  const std::string& site;
  const Moment& moment;
};
// Tells the emulator that the host has stored these bytes, or that the device has copied them from others.
void stored(const Box& to, const Operated& by);
void copied(const Box& to, const Box& from, const Operated& by);
// Of these bytes, which are copied to the host, how many nothing has ever stored.
uint64_t unwritten(const Box& from, const Operated& by);

// The host may not touch (or, of what is only read, not write) these bytes before it has waited for the
// moment.
void guard(uint64_t address, uint64_t bytes, bool only_read, const std::string& what, uint64_t stream,
           uint64_t moment);
// The host has waited until this.
void waited(const Clock& known);
// The process ends: what was allocated and never freed is told.
void say_leaks();

}  // namespace workbench::capture
