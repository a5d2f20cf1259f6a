// Units that execute work which a warp hands over and does not wait for.
//
// A unit is one file behind this interface. The scheduler knows no more of it: that something is on its way,
// and that it may end. What the work reads and writes, what has to come before, and which wait ends it are
// the unit's own, which tells race.hpp and the mbarriers.
#pragma once

#include <memory>

#include "engine.hpp"
#include "isa.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

struct Cluster;
struct Instruction;
struct Warp;

class AsyncUnit {
 public:
  AsyncUnit() = default;
  AsyncUnit(const AsyncUnit&) = delete;
  AsyncUnit& operator=(const AsyncUnit&) = delete;
  virtual ~AsyncUnit() = default;

  // Forgets the cluster before: another one starts in its place.
  virtual void start() = 0;
  // How many pieces of work could end now, in any order; and ends one of them.
  virtual size_t in_flight() const = 0;
  virtual void complete(size_t index) = 0;
  // The warp is about to execute an instruction while `Warp::locked` marks registers that the unit writes.
  virtual void touch(Warp& warp, const Instruction& instruction, uint32_t lanes) = 0;
  // The last lanes of a warp exit.
  virtual void warp_exits(Warp& warp, uint32_t lanes) = 0;
  // Nothing can move: true, and what is wrong, where a lane waits for the unit (`Wait::unit`).
  virtual bool explain_standstill(Fault& fault) const = 0;
};

using MakeUnit = std::unique_ptr<AsyncUnit> (*)(Cluster&);

}  // namespace workbench::emulator::WORKBENCH_ISA
