// Operations among the lanes of a warp. The scheduler has already gathered the members: they are the active
// lanes.
#include <tuple>

#include "float_functors.hpp"
#include "integer_functors.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

enum ShuffleMode { kUp, kDown, kButterfly, kIndex };

// shfl.sync d|p, a, b, c, members: lanes read each other's a within segments that c describes.
void shuffle(Warp& warp, const Instruction& instruction) {
  const Operand* o = instruction.operands;
  const Source<uint32_t> a(warp, o[2]), b(warp, o[3]), c(warp, o[4]);
  uint32_t values[kLanes];
  int32_t valid[kLanes];
  for_lanes(warp.active, [&](int l) {
    const int clamp = static_cast<int>(c[l] & 31), segment = static_cast<int>(c[l] >> 8 & 31);
    const int by = static_cast<int>(b[l] & 31);
    const int highest = (l & segment) | (clamp & ~segment), lowest = l & segment;
    int from = l;
    bool inside = false;
    switch (instruction.variant) {
      case kUp:
        from = l - by, inside = from >= highest;
        break;
      case kDown:
        from = l + by, inside = from <= highest;
        break;
      case kButterfly:
        from = l ^ by, inside = from <= highest;
        break;
      default:
        from = lowest | (by & ~segment), inside = from <= highest;
        break;
    }
    if (!inside) from = l;
    if (!(warp.active >> from & 1)) warp.finding(FaultKind::inactive_source, l, 0, Space::none, from);
    values[l] = a[from];
    valid[l] = to_cell<bool>(inside);
  });
  write_cells(warp, o[0], values);
  write_cells(warp, o[1], valid);
}

uint32_t ballot(const Warp& warp, const Operand& operand) {
  const Source<bool> predicate(warp, operand);
  uint32_t mask = 0;
  for (int l = 0; l < kLanes; ++l) mask |= (predicate[l] ? 1u : 0u) << l;
  return mask & warp.active;
}

void vote_ballot(Warp& warp, const Instruction& instruction) {
  const uint32_t votes = ballot(warp, instruction.operands[1]);
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int) { return votes; });
}

enum VoteMode { kAll, kAny, kUniform };

void vote(Warp& warp, const Instruction& instruction) {
  const uint32_t votes = ballot(warp, instruction.operands[1]);
  const bool all = votes == warp.active, none = votes == 0;
  const bool result = instruction.variant == kAll ? all : instruction.variant == kAny ? !none : all || none;
  write_lanes<bool>(warp, instruction.operands[0], [&](int) { return result; });
}

// After lanes have taken different ways, nothing promises which of these are together again: any may be.
Flow active_mask(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  constexpr uint32_t kTogetherOdds = 4;
  uint32_t here = lanes;
  Random& random = warp.block->cluster->random;
  if (warp.apart && (lanes & (lanes - 1)) && random.below(kTogetherOdds)) {
    const uint64_t drawn = random.next();
    for_lanes(lanes, [&](int lane) {
      if (!(drawn >> warp.way[static_cast<size_t>(lane)] % 64 & 1)) here &= ~(1u << lane);
    });
  }
  if (!here) here = lanes;
  warp.set_active(here);
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int) { return here; });
  if (here != lanes) warp.groups.push_back({lanes & ~here, warp.pc});
  return {here};
}

template <class T>
uint32_t equal_lanes(const Warp& warp, const Source<T>& a, int lane) {
  uint32_t mask = 0;
  for (int l = 0; l < kLanes; ++l) mask |= (a[l] == a[lane] ? 1u : 0u) << l;
  return mask & warp.active;
}

template <class T>
void match_any(Warp& warp, const Instruction& instruction) {
  const Source<T> a(warp, instruction.operands[1]);
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) { return equal_lanes<T>(warp, a, l); });
}

template <class T>
void match_all(Warp& warp, const Instruction& instruction) {
  const Source<T> a(warp, instruction.operands[2]);
  const uint32_t active = warp.active;
  const bool same = equal_lanes<T>(warp, a, __builtin_ctz(active)) == active;
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int) { return same ? active : 0u; });
  write_lanes<bool>(warp, instruction.operands[1], [&](int) { return same; });
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
};

template <class T, class Op>
void reduce(Warp& warp, const Instruction& instruction) {
  const Source<T> a(warp, instruction.operands[1]);
  const int first = __builtin_ctz(warp.active);
  T result = a[first];
  for_lanes(warp.active & (warp.active - 1), [&](int l) { result = Op()(result, a[l]); });
  write_lanes<T>(warp, instruction.operands[0], [&](int) { return result; });
}

template <class T, class Op>
void add_reduce(Table& table, const std::string& name) {
  table.add_member("redux.sync" + name, "Www", reduce<T, Op>, 2);
}

template <class Op>
struct OfMagnitudes {
  float operator()(float a, float b) const { return Op()(std::fabs(a), std::fabs(b)); }
};

// min or max of floats, with itself as well: of NaN alone the result is the canonical one.
template <class Op>
void reduce_floats(Warp& warp, const Instruction& instruction) {
  const Source<float> a(warp, instruction.operands[1]);
  const int first = __builtin_ctz(warp.active);
  float result = Op()(a[first], a[first]);
  for_lanes(warp.active & (warp.active - 1), [&](int l) { result = Op()(result, a[l]); });
  write_lanes<float>(warp, instruction.operands[0], [&](int) { return result; });
}

template <bool Max>
void add_float_reductions(Table& table) {
  const std::string name = std::string("redux.sync") + (Max ? ".max" : ".min");
  using Number = FloatExtreme<Max, false>;
  using Nan = FloatExtreme<Max, true>;
  table.add_member(name + ".f32", "Wfw", reduce_floats<Number>, 2);
  table.add_member(name + ".NaN.f32", "Wfw", reduce_floats<Nan>, 2);
  table.add_member(name + ".abs.f32", "Wfw", reduce_floats<OfMagnitudes<Number>>, 2);
  table.add_member(name + ".abs.NaN.f32", "Wfw", reduce_floats<OfMagnitudes<Nan>>, 2);
}

void elect(Warp& warp, const Instruction& instruction) {  // the lowest member
  const int leader = __builtin_ctz(warp.active);
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int) { return static_cast<uint32_t>(leader); });
  write_lanes<bool>(warp, instruction.operands[1], [&](int l) { return l == leader; });
}

}  // namespace

void add_warp_operations(Table& table) {
  const std::pair<const char*, int> modes[] = {
      {"up", kUp}, {"down", kDown}, {"bfly", kButterfly}, {"idx", kIndex}};
  for (const auto& [mode, variant] : modes)
    table.add_member("shfl.sync." + std::string(mode) + ".b32", "WP?wwww", shuffle, 5, variant);
  table.add_member("vote.sync.ballot.b32", "Wpw", vote_ballot, 2);
  table.add_member("vote.sync.all.pred", "Ppw", vote, 2, kAll);
  table.add_member("vote.sync.any.pred", "Ppw", vote, 2, kAny);
  table.add_member("vote.sync.uni.pred", "Ppw", vote, 2, kUniform);
  table.add_control("activemask.b32", "W", active_mask);
  table.add_member("match.any.sync.b32", "Www", match_any<uint32_t>, 2);
  table.add_member("match.any.sync.b64", "Wdw", match_any<uint64_t>, 2);
  table.add_member("match.all.sync.b32", "WP?ww", match_all<uint32_t>, 3);
  table.add_member("match.all.sync.b64", "WP?dw", match_all<uint64_t>, 3);
  add_reduce<uint32_t, Add>(table, ".add.u32");
  add_reduce<int32_t, Add>(table, ".add.s32");
  add_reduce<uint32_t, Minimum>(table, ".min.u32");
  add_reduce<int32_t, Minimum>(table, ".min.s32");
  add_reduce<uint32_t, Maximum>(table, ".max.u32");
  add_reduce<int32_t, Maximum>(table, ".max.s32");
  add_reduce<uint32_t, And>(table, ".and.b32");
  add_reduce<uint32_t, Or>(table, ".or.b32");
  add_reduce<uint32_t, Xor>(table, ".xor.b32");
  add_float_reductions<false>(table);
  add_float_reductions<true>(table);
  table.add_member("elect.sync", "W?Pw", elect, 2);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
