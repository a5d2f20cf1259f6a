// Counters and timelines: what is counted and recorded, and that a launch does the same when watched.
#include <algorithm>

#include "assembler.hpp"

using emu::Counter;
using emu::Special;
using emu::TraceKind;

namespace {

void watch(emu::Launch& launch, Assembler& a) {
  launch.count = true;
  launch.trace_events = 10000;
  launch.trace_blocks = {0, 1};
  for (size_t row = 0; row < a.program().rows.size(); ++row)
    launch.trace_lines.push_back(static_cast<int32_t>(row));
}

uint64_t counted(const emu::Result& result, Counter which) {
  uint64_t sum = 0;
  for (size_t k = static_cast<size_t>(which); k < result.counters.size(); k += emu::kCounters)
    sum += result.counters[k];
  return sum;
}

uint64_t time_of(const emu::Result& result, TraceKind kind) {
  uint64_t sum = 0;
  for (const emu::TraceEvent& event : result.trace)
    if (event.kind == kind) sum += event.end - event.begin;
  return sum;
}

// Two warps: global to shared memory by cp.async, a barrier, and each other's words back.
void copy_and_meet(Assembler& a) {
  const emu::Operand to = a.cell(), from = a.cell(8), mirror = a.cell(), value = a.cell(), out = a.cell(8);
  a.row("mul.lo.u32", {to, Assembler::special(Special::tid_x), a.constant(4u)});
  a.row("mad.wide.u32", {from, Assembler::special(Special::tid_x), a.constant(4u), a.constant(kMemory)});
  a.row("cp.async.ca.shared.global", {to, from, a.constant(4u), Assembler::absent()});
  a.row("cp.async.commit_group");
  a.row("cp.async.wait_group", {a.constant(0u)});
  a.row("bar.sync", {a.constant(0u), Assembler::absent()});
  a.row("sub.u32", {mirror, a.constant(4u * 63), to});
  a.row("ld.shared.b32", {value, mirror});
  a.row("mad.wide.u32",
        {out, Assembler::special(Special::tid_x), a.constant(4u), a.constant(kMemory + 4 * 64)});
  a.row("st.global.b32", {out, value});
  a.row("exit");
}

}  // namespace

TEST(a_watched_launch_does_the_same_and_is_counted) {
  Assembler a;
  copy_and_meet(a);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Device device;
    device.launch.block[0] = 64;
    device.launch.shared_bytes = 256;
    device.launch.seed = seed;
    watch(device.launch, a);
    std::fill(device.written.begin(), device.written.end(), uint8_t{1});
    for (size_t k = 0; k < 256; ++k) device.memory[k] = static_cast<uint8_t>(k);
    const emu::Result result = device.run(a);
    CHECK(result.fault.kind == emu::FaultKind::none);
    for (size_t t = 0; t < 64; ++t) CHECK(device.read<uint32_t>(64 + t) == device.read<uint32_t>(63 - t));
    CHECK(counted(result, Counter::lanes) == 64 * 11);
    CHECK(counted(result, Counter::global_requests) == 2 * 2);
    CHECK(counted(result, Counter::global_sectors) == 2 * 2 * 4);
    CHECK(counted(result, Counter::shared_wavefronts) == 2 * 2);
    CHECK(counted(result, Counter::blocked) == 1);
    CHECK(time_of(result, TraceKind::run) == result.instructions);
    CHECK(time_of(result, TraceKind::copies) > 0);
    CHECK(!result.trace_cut);
  }
}

TEST(a_timeline_ends_where_it_was_told_to) {
  Assembler a;
  copy_and_meet(a);
  Device device;
  device.launch.block[0] = 64;
  device.launch.shared_bytes = 256;
  watch(device.launch, a);
  device.launch.trace_events = 5;
  std::fill(device.written.begin(), device.written.end(), uint8_t{1});
  const emu::Result result = device.run(a);
  CHECK(result.trace.size() == 5);
  CHECK(result.trace_cut);
}

TEST(nothing_is_counted_or_recorded_unless_wanted) {
  Assembler a;
  copy_and_meet(a);
  Device device;
  device.launch.block[0] = 64;
  device.launch.shared_bytes = 256;
  std::fill(device.written.begin(), device.written.end(), uint8_t{1});
  const emu::Result result = device.run(a);
  CHECK(result.fault.kind == emu::FaultKind::none);
  CHECK(result.counters.empty());
  CHECK(result.trace.empty());
}

TEST(outcomes_of_predicates_are_noted_for_the_lanes_that_take_part) {
  Assembler a;
  const emu::Operand p = a.cell(), q = a.cell(), both = a.cell(), none = Assembler::absent();
  const emu::Operand tid = Assembler::special(Special::tid_x);
  const int some = a.row("setp.lt.u32", {p, none, tid, a.constant(5u)});
  const int never = a.row("setp.gt.u32", {q, none, tid, a.constant(99u)});
  const int guarded = a.row("setp.lt.u32", {q, none, tid, a.constant(7u)}, p);  // where it is true
  const int joined = a.row("and.pred", {both, p, q});
  const int pair = a.row("setp.eq.f16x2", {p, q, tid, a.constant(0x3c00u << 16)});  // 0 or a subnormal, and 0
  const int all = a.row("vote.sync.all.pred", {both, p, a.constant(~0u)});
  a.row("exit");
  Device device;
  device.launch.block[0] = 64;
  const emu::Result result = device.run(a);
  CHECK(result.fault.kind == emu::FaultKind::none);
  const auto of = [&](int row) { return int{result.outcomes[static_cast<size_t>(row)]}; };
  CHECK(of(some) == (emu::kTrue | emu::kFalse) && of(never) == emu::kFalse && of(guarded) == emu::kTrue);
  CHECK(of(joined) == (emu::kTrue | emu::kFalse));
  CHECK(of(pair) == (emu::kTrue | emu::kFalse | emu::kOtherFalse) && of(all) == emu::kFalse);
  CHECK(of(some + 6) == 0);
}
