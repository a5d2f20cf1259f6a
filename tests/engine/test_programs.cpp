// Small programs: control flow, barriers, memory and asynchronous copies, and the faults that they end with.
#include "assembler.hpp"

using emu::FaultKind;
using emu::Special;

namespace {

// Stores a 4-byte cell at kMemory + 4 * thread.
void store_by_thread(Assembler& a, emu::Operand value) {
  const emu::Operand address = a.cell(8);
  a.row("mad.wide.u32", {address, Assembler::special(Special::tid_x), a.constant(4u), a.constant(kMemory)});
  a.row("st.global.b32", {address, value});
}

emu::Operand shared_address(Assembler& a, uint32_t scale) {
  const emu::Operand address = a.cell();
  a.row("mul.lo.u32", {address, Assembler::special(Special::tid_x), a.constant(scale)});
  return address;
}

emu::Operand at(emu::Operand operand, int64_t offset) {
  operand.offset = offset;
  return operand;
}

}  // namespace

TEST(lanes_loop_as_often_as_each_wants) {
  Assembler a;
  const emu::Operand n = a.cell(), sum = a.cell(), more = a.cell();
  a.row("mov.b32", {n, Assembler::special(Special::tid_x)});
  a.row("mov.b32", {sum, a.constant(0u)});
  const int loop = a.here();
  a.row("setp.ne.u32", {more, Assembler::absent(), n, a.constant(0u)});
  const int out = a.branch(0, at(more, 1));
  a.row("add.u32", {sum, sum, n});
  a.row("sub.u32", {n, n, a.constant(1u)});
  a.branch(loop);
  a.land(out);
  store_by_thread(a, sum);
  a.row("exit");
  for (const uint32_t slice : {1u, 7u, 2000u}) {
    Device device;
    device.launch.block[0] = 100;
    device.launch.time_slice = slice;
    const emu::Result result = device.run(a);
    CHECK(result.fault.kind == FaultKind::none);
    for (uint32_t t = 0; t < 100; ++t) CHECK(device.read<uint32_t>(t) == t * (t + 1) / 2);
  }
}

TEST(barriers_order_shared_memory) {
  Assembler a;
  const emu::Operand address = shared_address(a, 4), mirror = a.cell(), value = a.cell();
  a.row("st.shared.b32", {address, Assembler::special(Special::tid_x)});
  a.row("bar.sync", {a.constant(0u), Assembler::absent()});
  a.row("sub.u32", {mirror, a.constant(4u * 255), address});
  a.row("ld.shared.b32", {value, mirror});
  store_by_thread(a, value);
  a.row("exit");
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Device device;
    device.launch.block[0] = 256;
    device.launch.shared_bytes = 1024;
    device.launch.seed = seed;
    CHECK(device.run(a).fault.kind == FaultKind::none);
    for (uint32_t t = 0; t < 256; ++t) CHECK(device.read<uint32_t>(t) == 255 - t);
  }
}

TEST(a_missing_barrier_is_an_uninitialised_read) {
  Assembler a;
  const emu::Operand address = shared_address(a, 4), mirror = a.cell(), value = a.cell();
  a.row("st.shared.b32", {address, Assembler::special(Special::tid_x)});
  a.row("sub.u32", {mirror, a.constant(4u * 255), address});
  const int load = a.row("ld.shared.b32", {value, mirror});
  const int store = a.row("st.global.b32", {a.constant(kMemory), value});
  a.row("exit");
  Device device;
  device.launch.block[0] = 256;
  device.launch.shared_bytes = 1024;
  device.launch.checks &= ~static_cast<uint32_t>(emu::kCheckRaces);  // which say what is behind it
  const emu::Result result = device.run(a);
  CHECK(result.fault.kind == FaultKind::uninitialised && result.fault.pc == store &&
        result.fault.other_pc == load && result.fault.space == emu::Space::shared);
}

TEST(two_warps_that_store_to_one_word_race) {
  for (const auto& [kind, barrier] : {std::pair(FaultKind::race, false), std::pair(FaultKind::race, true),
                                      std::pair(FaultKind::race_same_value, false)}) {
    Assembler a;
    const emu::Operand address = a.constant(16u), value = a.cell();
    a.row("shr.b32",
          {value, Assembler::special(Special::tid_x), a.constant(kind == FaultKind::race ? 5u : 6u)});
    const int first = a.row("st.shared.b32", {address, value});
    if (barrier) a.row("bar.sync", {a.constant(0u), Assembler::absent()});
    a.row("exit");
    for (const uint64_t seed : {0u, 1u, 2u}) {
      Device device;
      device.launch.block[0] = 64;
      device.launch.shared_bytes = 1024;
      device.launch.seed = seed;
      const emu::Fault fault = device.run(a).fault;  // a barrier afterwards changes nothing
      CHECK(fault.kind == kind && fault.pc == first && fault.other_pc == first);
      CHECK(fault.space == emu::Space::shared && fault.address == 16 && fault.other_block == 0);
      CHECK(fault.warp + fault.other_warp == 1 && fault.info == (emu::kWrites | emu::kOtherWrites));
      device.launch.checks &= ~emu::kCheckRaces;
      CHECK(device.run(a).fault.kind == FaultKind::none);
    }
  }
}

TEST(accesses_out_of_bounds_and_misaligned) {
  for (const int64_t offset : {int64_t{4096 - 31 * 4}, int64_t{2}, int64_t{-4}}) {
    Assembler a;
    const emu::Operand address = a.cell(8), value = a.cell();
    a.row("mad.wide.u32", {address, Assembler::special(Special::tid_x), a.constant(4u), a.constant(kMemory)});
    a.row("st.global.b32", {at(address, offset), value});
    a.row("exit");
    Device device;
    device.launch.block[0] = 32;
    const emu::Fault fault = device.run(a).fault;
    CHECK(fault.kind == (offset == 2 ? FaultKind::misaligned : FaultKind::out_of_bounds));
    CHECK(fault.lane == (offset > 2 ? 31 : 0) &&
          fault.address == kMemory + static_cast<uint64_t>(offset) + 4u * static_cast<uint64_t>(fault.lane));
  }
}

TEST(half_a_warp_waits_for_a_barrier_that_the_rest_never_reaches) {
  Assembler a;
  const emu::Operand low = a.cell();
  a.row("setp.lt.u32", {low, Assembler::absent(), Assembler::special(Special::tid_x), a.constant(16u)});
  const int skip = a.branch(0, at(low, 1));
  const int barrier = a.row("bar.sync", {a.constant(1u), a.constant(64u)});
  a.land(skip);
  a.row("bar.sync", {a.constant(0u), Assembler::absent()});
  a.row("exit");
  Device device;
  device.launch.block[0] = 64;
  const emu::Result result = device.run(a);
  CHECK(result.fault.kind == FaultKind::barrier_diverged && result.waiting.size() == 3);
  CHECK(result.waiting[0].reason == emu::WaitReason::barrier);
  (void)barrier;
}

TEST(a_spinning_kernel_runs_out_of_budget) {
  Assembler a;
  a.branch(0);
  Device device;
  device.launch.budget = 10000;
  CHECK(device.run(a).fault.kind == FaultKind::budget);
}

TEST(lanes_of_a_warp_may_wait_for_each_other) {
  // lane 0 spins on a flag that lane 1 sets, and the loop has the lower program counter
  Assembler a;
  const emu::Operand first = a.cell(), flag = a.cell(), unset = a.cell(), address = a.constant(kMemory);
  a.row("setp.eq.u32", {first, Assembler::absent(), Assembler::special(Special::tid_x), a.constant(0u)});
  const int others = a.branch(0, at(first, 1));
  const int spin = a.row("ld.global.b32", {flag, address});
  a.row("setp.eq.u32", {unset, Assembler::absent(), flag, a.constant(0u)});
  a.branch(spin, unset);
  a.row("exit");
  a.land(others);
  a.row("st.global.b32", {address, a.constant(1u)});
  a.row("exit");
  Device device;
  device.written.assign(device.written.size(), 1);
  device.launch.block[0] = 32;
  device.launch.time_slice = 50;
  device.launch.budget = 100000;
  device.launch.checks &= ~emu::kCheckRaces;  // the flag is a plain word
  CHECK(device.run(a).fault.kind == FaultKind::none);
}

TEST(blocks_may_wait_for_each_other_when_both_are_resident) {
  Assembler a;
  const emu::Operand first = a.cell(), flag = a.cell(), unset = a.cell(), address = a.constant(kMemory);
  a.row("setp.eq.u32", {first, Assembler::absent(), Assembler::special(Special::ctaid_x), a.constant(0u)});
  const int others = a.branch(0, at(first, 1));
  const int spin = a.row("ld.global.b32", {flag, address});
  a.row("setp.eq.u32", {unset, Assembler::absent(), flag, a.constant(0u)});
  a.branch(spin, unset);
  a.row("exit");
  a.land(others);
  a.row("st.global.b32", {address, a.constant(1u)});
  a.row("exit");
  for (const uint32_t resident : {1u, 2u})
    for (const uint32_t threads : {1u, 2u}) {
      Device device;
      device.written.assign(device.written.size(), 1);
      device.launch.grid[0] = 2;
      device.launch.resident_blocks = resident;
      device.launch.threads = threads;
      device.launch.budget = 1000000;
      device.launch.checks &= ~emu::kCheckRaces;  // the flag is a plain word
      const FaultKind kind = device.run(a).fault.kind;
      CHECK(kind == (resident == 2 ? FaultKind::none : FaultKind::not_resident));
    }
}

TEST(atomics_from_many_blocks_and_host_threads_all_count) {
  Assembler a;
  a.row("red.global.add.u32", {a.constant(kMemory), a.constant(1u)});
  a.row("exit");
  Device device;
  device.written.assign(device.written.size(), 1);
  device.launch.grid[0] = 50;
  device.launch.block[0] = 96;
  device.launch.resident_blocks = 8;
  device.launch.threads = 2;
  const emu::Result result = device.run(a);
  CHECK(device.read<uint32_t>(0) == 50 * 96 && result.instructions == 50 * 3 * 2 && result.counts[0] == 150);
}

TEST(an_asynchronous_copy_lands_when_it_is_waited_for) {
  for (const bool wait : {true, false}) {
    Assembler a;
    const emu::Operand to = shared_address(a, 16), from = a.cell(8), value = a.cell();
    a.row("mad.wide.u32",
          {from, Assembler::special(Special::tid_x), a.constant(16u), a.constant(kMemory + 1024)});
    const int copy = a.row("cp.async.cg.shared.global", {to, from, a.constant(16u), Assembler::absent()});
    a.row("cp.async.commit_group");
    if (wait) a.row("cp.async.wait_group", {a.constant(0u)});
    a.row("ld.shared.b32", {value, at(to, 8)});
    store_by_thread(a, value);
    a.row("exit");
    Device device;
    for (size_t k = 0; k < device.memory.size(); ++k) device.memory[k] = static_cast<uint8_t>(k / 16);
    device.written.assign(device.written.size(), 1);
    device.launch.block[0] = 32;
    device.launch.shared_bytes = 512;
    const emu::Fault fault = device.run(a).fault;
    if (wait) {
      CHECK(fault.kind == FaultKind::none && device.read<uint32_t>(5) == 0x45454545);
    } else {
      CHECK(fault.kind == FaultKind::in_flight && fault.other_pc == copy);
    }
  }
}

TEST(an_mbarrier_counts_arrivals_and_bytes) {
  // one thread announces 64 bytes and copies them; all wait for the phase
  for (const uint32_t announced : {64u, 80u}) {
    Assembler a;
    const emu::Operand first = a.cell(), over = a.cell(), value = a.cell(), barrier = a.constant(0u),
                       tile = a.constant(128u);
    a.row("setp.eq.u32", {first, Assembler::absent(), Assembler::special(Special::tid_x), a.constant(0u)});
    a.row("mbarrier.init.shared.b64", {barrier, a.constant(1u)}, first);
    a.row("fence.mbarrier_init", {});
    a.row("bar.sync", {a.constant(0u), Assembler::absent()});
    a.row("mbarrier.arrive.expect_tx.shared.b64", {Assembler::absent(), barrier, a.constant(announced)},
          first);
    a.row("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
          {tile, a.constant(kMemory), a.constant(64u), barrier}, first);
    const int wait =
        a.row("mbarrier.try_wait.parity.shared.b64", {over, barrier, a.constant(0u), Assembler::absent()});
    a.branch(wait, at(over, 1));
    a.row("ld.shared.b32", {value, at(tile, 60)});
    store_by_thread(a, value);
    a.row("exit");
    Device device;
    for (size_t k = 0; k < device.memory.size(); ++k) device.memory[k] = static_cast<uint8_t>(k);
    device.written.assign(device.written.size(), 1);
    device.launch.block[0] = 64;
    device.launch.shared_bytes = 256;
    const emu::Result result = device.run(a);
    if (announced == 64) {
      CHECK(result.fault.kind == FaultKind::none && device.read<uint32_t>(63) == 0x3f3e3d3c);
    } else {
      CHECK(result.fault.kind == FaultKind::deadlock && result.waiting[0].transactions == 16 &&
            result.waiting[0].pending == 0);
    }
  }
}

TEST(an_mbarrier_may_not_be_used_uninitialised_or_too_often) {
  for (const bool initialised : {false, true}) {
    Assembler a;
    const emu::Operand barrier = a.constant(8u);
    if (initialised) {
      const emu::Operand first = a.cell();
      a.row("setp.eq.u32", {first, Assembler::absent(), Assembler::special(Special::tid_x), a.constant(0u)});
      a.row("mbarrier.init.shared.b64", {barrier, a.constant(40u)}, first);
      a.row("bar.warp.sync", {a.constant(~0u)});
    }
    // 32 arrivals of 2 against an expected count of 40: the 20th ends the phase, the next 12 leave 16 pending
    a.row("mbarrier.arrive.shared.b64", {Assembler::absent(), barrier, a.constant(initialised ? 3u : 1u)});
    a.row("exit");
    Device device;
    device.launch.block[0] = 32;
    device.launch.shared_bytes = 64;
    CHECK(device.run(a).fault.kind ==
          (initialised ? FaultKind::mbarrier_overflow : FaultKind::mbarrier_invalid));
  }
}

TEST(a_store_over_an_mbarrier_is_blamed_once_it_is_used) {
  for (const uint32_t checks : {0u, uint32_t{emu::kCheckRaces}})
    for (const uint32_t offset : {4u, 8u, 15u, 16u}) {
      Assembler a;
      const emu::Operand barrier = a.constant(8u);
      const int first = a.row("mbarrier.init.shared.b64", {barrier, a.constant(2u)});
      const int store = a.row("st.shared.b8", {a.constant(offset), a.constant(1u)});
      const int use =
          a.row("mbarrier.arrive.shared.b64", {Assembler::absent(), barrier, Assembler::absent()});
      a.row("mbarrier.inval.shared.b64", {barrier});
      a.row("st.shared.b64", {barrier, a.constant(uint64_t{1})});
      a.row("exit");
      Device device;
      device.launch.block[0] = 1;
      device.launch.shared_bytes = 64;
      device.launch.checks = checks;
      const emu::Fault fault = device.run(a).fault;
      const bool over = offset / 8 == 1;
      CHECK(fault.kind == (over ? FaultKind::mbarrier_overwritten : FaultKind::none));
      if (!over) continue;
      CHECK(fault.pc == (checks ? store : use) && fault.other_pc == (checks ? use : -1));
      CHECK(fault.info == first && fault.address == 8);
    }
}

TEST(collectives_wait_for_the_lanes_they_name) {
  Assembler a;
  const emu::Operand odd = a.cell(), votes = a.cell(), bit = a.cell();
  a.row("and.b32", {bit, Assembler::special(Special::tid_x), a.constant(1u)});
  a.row("setp.ne.u32", {odd, Assembler::absent(), bit, a.constant(0u)});
  const int skip = a.branch(0, odd);
  a.row("nop");  // the even lanes take a detour
  a.land(skip);
  a.row("vote.sync.ballot.b32", {votes, odd, a.constant(~0u)});
  store_by_thread(a, votes);
  a.row("exit");
  Device device;
  device.launch.block[0] = 32;
  CHECK(device.run(a).fault.kind == FaultKind::none && device.read<uint32_t>(3) == 0xaaaaaaaa);

  Assembler b;
  b.row("vote.sync.ballot.b32",
        {b.cell(), b.constant(~0u), b.constant(1u)});  // lane 1 is not in its own mask
  b.row("exit");
  Device other;
  other.launch.block[0] = 32;
  CHECK(other.run(b).fault.kind == FaultKind::not_member && other.run(b).fault.lane == 1);
}

TEST(the_same_seed_is_the_same_run) {
  Assembler a;
  const emu::Operand old = a.cell();
  a.row("atom.global.add.u32", {old, a.constant(kMemory), a.constant(1u)});
  const emu::Operand address = a.cell(8);
  a.row("mad.wide.u32",
        {address, Assembler::special(Special::tid_x), a.constant(4u), a.constant(kMemory + 4)});
  a.row("st.global.b32", {address, old});
  a.row("exit");
  const auto run = [&](uint64_t seed) {
    Device device;
    device.written.assign(device.written.size(), 1);
    device.launch.block[0] = 512;
    device.launch.seed = seed;
    device.run(a);
    return device.memory;
  };
  CHECK(run(1) == run(1) && run(2) == run(2) && run(1) != run(2));
}

TEST(rows_are_validated) {
  const auto rejected = [](auto build) {
    Assembler a;
    build(a);
    try {
      a.program();
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  CHECK(rejected([](Assembler& a) { a.row("add.u32", {a.cell(), a.cell()}), a.row("exit"); }));
  CHECK(rejected(
      [](Assembler& a) { a.row("add.u32", {a.cell(), a.cell(), Assembler::absent()}), a.row("exit"); }));
  CHECK(
      rejected([](Assembler& a) { a.row("add.u32", {a.constant(1u), a.cell(), a.cell()}), a.row("exit"); }));
  CHECK(
      rejected([](Assembler& a) { a.row("add.u32", {{1 << 20, 4, 0}, a.cell(), a.cell()}), a.row("exit"); }));
  CHECK(rejected([](Assembler& a) { a.branch(7); }));
  CHECK(rejected([](Assembler& a) { a.row("nop"); }));
  CHECK(!rejected([](Assembler& a) { a.row("exit"); }));
}
