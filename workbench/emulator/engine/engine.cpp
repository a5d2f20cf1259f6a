// The part of the engine that exists once: names, validation, and the choice of the instruction set.
#include "engine.hpp"

#include <algorithm>
#include <stdexcept>
#include <unordered_set>

namespace workbench::emulator {

// Each instruction set's build of the engine; see isa.hpp. At least one of them is there. What is the same in
// all of them comes from `any_isa`, which every processor can execute where the baseline was built.
#define WORKBENCH_DECLARE(isa)                                           \
  namespace isa {                                                        \
  void run_launches(const std::vector<Work>&, std::shared_ptr<Series>&); \
  void list_operations(std::vector<OperationInfo>&);                     \
  std::string expand_signature(const std::string&, std::string*);        \
  }
#ifdef WORKBENCH_HAS_V3
WORKBENCH_DECLARE(v3_isa)
#endif
#ifdef WORKBENCH_HAS_BASELINE
WORKBENCH_DECLARE(baseline_isa)
namespace any_isa = baseline_isa;
#else
namespace any_isa = v3_isa;
#endif
#undef WORKBENCH_DECLARE

const std::vector<OperationInfo>& operations() {
  static const std::vector<OperationInfo> list = [] {
    std::vector<OperationInfo> all;
    best_isa();  // throws where this processor cannot execute what follows
    any_isa::list_operations(all);
    std::unordered_set<std::string> names;
    for (const OperationInfo& operation : all)
      if (!names.insert(operation.name).second)
        throw std::logic_error("two operations are called " + operation.name);
    return all;
  }();
  return list;
}

const std::vector<std::string>& special_names() {
  static const std::vector<std::string> names = {"tid.x",           "tid.y",           "tid.z",
                                                 "laneid",          "warpid",          "ctaid.x",
                                                 "ctaid.y",         "ctaid.z",         "smid",
                                                 "clusterid.x",     "clusterid.y",     "clusterid.z",
                                                 "cluster_ctaid.x", "cluster_ctaid.y", "cluster_ctaid.z",
                                                 "cluster_ctarank", "lanemask_eq",     "lanemask_le",
                                                 "lanemask_lt",     "lanemask_ge",     "lanemask_gt"};
  return names;
}

const std::vector<std::string>& counter_names() {
  static const std::vector<std::string> names = {
      "active_lanes",    "lanes",          "divergent",       "blocked",
      "global_requests", "global_sectors", "global_bytes",    "local_requests",
      "local_sectors",   "local_bytes",    "shared_requests", "shared_wavefronts",
      "shared_ideal",    "shared_bytes",   "remote_requests", "remote_bytes",
      "bulk_requests",   "bulk_sectors",   "bulk_bytes",      "tensor_operations",
      "tensor_requests", "tensor_bytes"};
  return names;
}

const std::vector<std::string>& fault_names() {
  static const std::vector<std::string> names = {"none",
                                                 "out_of_bounds",
                                                 "misaligned",
                                                 "uninitialised",
                                                 "read_only",
                                                 "in_flight",
                                                 "accumulator_in_flight",
                                                 "deadlock",
                                                 "budget",
                                                 "mbarrier_invalid",
                                                 "mbarrier_overflow",
                                                 "mbarrier_transactions",
                                                 "mbarrier_count",
                                                 "barrier_count",
                                                 "barrier_mismatch",
                                                 "barrier_diverged",
                                                 "not_member",
                                                 "exited_member",
                                                 "inactive_source",
                                                 "trap",
                                                 "assertion",
                                                 "descriptor",
                                                 "bad_operand",
                                                 "resources",
                                                 "exited_with_work",
                                                 "unsupported",
                                                 "race",
                                                 "proxy_fence",
                                                 "mbarrier_not_visible",
                                                 "mbarrier_bytes",
                                                 "swizzle_mismatch",
                                                 "wgmma_fence",
                                                 "warpgroup_diverged",
                                                 "warpgroup_apart",
                                                 "register_misuse",
                                                 "mbarrier_in_use",
                                                 "mbarrier_overwritten",
                                                 "not_resident",
                                                 "mbarrier_init_fence",
                                                 "race_same_value",
                                                 "stores_pending",
                                                 "loads_pending",
                                                 "registers_unlimited",
                                                 "incoherent_load",
                                                 "read_only_changed",
                                                 "sparse_metadata",
                                                 "race_volatile",
                                                 "race_of_replicas",
                                                 "race_lockstep",
                                                 "race_relaxed",
                                                 "exited_relaxed",
                                                 "tensor_allocation",
                                                 "tensor_bounds",
                                                 "tensor_lanes",
                                                 "tensor_free",
                                                 "tensor_not_freed",
                                                 "tensor_unwritten",
                                                 "tensor_load_pending",
                                                 "tensor_load_unwaited",
                                                 "tensor_store_pending",
                                                 "tensor_not_committed",
                                                 "tensor_race",
                                                 "tensor_unordered",
                                                 "tensor_fence",
                                                 "tensor_group",
                                                 "tensor_pair",
                                                 "tensor_overlap",
                                                 "tensor_collector",
                                                 "tensor_descriptor",
                                                 "heap_access",
                                                 "heap_free",
                                                 "heap_leak",
                                                 "launch_control",
                                                 "index_overflow",
                                                 "race_optimised_away",
                                                 "barrier_optimised_away",
                                                 "product_proxy_fence"};
  return names;
}

namespace {

[[noreturn]] void reject(size_t row, const std::string& why) {
  throw std::invalid_argument("row " + std::to_string(row) + ": " + why);
}

}  // namespace

void validate(const Program& program) {
  const auto& table = operations();
  const auto in_file = [&](int64_t slot, int64_t bytes) {
    return slot % 128 == 0 && slot + kLanes * bytes <= program.register_bytes;
  };
  const int64_t special_bytes = static_cast<int64_t>(Special::count) * kLanes * 4;
  if (program.register_bytes % 128 || program.special_offset % 128 || program.special_offset < 0 ||
      program.special_offset + special_bytes > program.register_bytes)
    throw std::invalid_argument("the special registers do not fit into the register file");
  if (program.rows.empty()) throw std::invalid_argument("the program has no rows");
  for (const Operand& operand : program.unset)
    if ((operand.bytes != 4 && operand.bytes != 8) || operand.slot < 0 ||
        !in_file(operand.slot, operand.bytes))
      throw std::invalid_argument("a register that is not set has slot " + std::to_string(operand.slot));
  for (size_t k = 0; k < program.rows.size(); ++k) {
    const Row& row = program.rows[k];
    if (row.operation < 0 || static_cast<size_t>(row.operation) >= table.size())
      reject(k, "no such operation");
    const OperationInfo& operation = table[static_cast<size_t>(row.operation)];
    std::string optional;
    const std::string letters = any_isa::expand_signature(operation.signature, &optional);
    if (row.operand_count < 0 || static_cast<size_t>(row.operand_count) != letters.size())
      reject(k, operation.name + " takes " + std::to_string(letters.size()) + " operands, not " +
                    std::to_string(row.operand_count));
    if (row.first_operand < 0 ||
        static_cast<size_t>(row.first_operand) + letters.size() > program.operands.size())
      reject(k, "operands out of range");
    if (row.guard != kNoGuard && (row.guard < 0 || !in_file(row.guard, 4))) reject(k, "bad guard");
    if (operation.signature == "l" &&
        (row.target < 0 || static_cast<size_t>(row.target) >= program.rows.size()))
      reject(k, "branch target out of range");
    for (size_t o = 0; o < letters.size(); ++o) {
      const Operand& operand = program.operands[static_cast<size_t>(row.first_operand) + o];
      const char letter = letters[o];
      const bool written = letter == 'W' || letter == 'D' || letter == 'P' || letter == 'U';
      if (operand.slot == kAbsent) {
        if (!written && optional[o] != '?')
          reject(k, "operand " + std::to_string(o) + " of " + operation.name + " is missing");
        continue;
      }
      const int64_t bytes = letter == 'a'                                     ? operand.bytes
                            : letter == 'd' || letter == 'D' || letter == 'e' ? 8
                                                                              : 4;
      if (bytes != 4 && bytes != 8) reject(k, "an address of " + std::to_string(bytes) + " bytes");
      if (operand.slot >= 0 ? !in_file(operand.slot, bytes) : written || ~operand.slot % 128 != 0)
        reject(k, "operand " + std::to_string(o) + " of " + operation.name + " has slot " +
                      std::to_string(operand.slot));
    }
  }
  const Row& last = program.rows.back();
  const std::string& end = table[static_cast<size_t>(last.operation)].name;
  if (last.guard != kNoGuard ||
      (end != "exit" && end != "ret" && end != "trap" && end != "bra" && end != "bra.uni"))
    reject(program.rows.size() - 1, "a program ends with exit, ret, trap or bra, unguarded");
}

Isa best_isa() {
#ifdef WORKBENCH_HAS_V3
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    return Isa::v3;
#endif
#ifdef WORKBENCH_HAS_BASELINE
  return Isa::baseline;
#else
  throw std::runtime_error(
      "an editable install needs the instruction set of the processor that built it: install it again here");
#endif
}

namespace {

void check(const Program& program, const Launch& launch) {
  const uint64_t block_threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  const uint64_t cluster = uint64_t{launch.cluster[0]} * launch.cluster[1] * launch.cluster[2];
  if (block_threads == 0 || block_threads > 1024)
    throw std::invalid_argument("a block has 1 to 1024 threads");
  if (cluster == 0 || cluster > 16) throw std::invalid_argument("a cluster has 1 to 16 blocks");
  for (int d = 0; d < 3; ++d)
    if (launch.grid[d] == 0 || launch.cluster[d] == 0 || launch.grid[d] % launch.cluster[d])
      throw std::invalid_argument("the grid is not a whole number of clusters");
  if (launch.reserved_bytes > launch.shared_bytes) throw std::invalid_argument("too much is reserved");
  if (launch.shared_bytes >= 1u << kRankShift) throw std::invalid_argument("too much shared memory");
  for (size_t k = 0; k < launch.allocations.size(); ++k) {
    const Allocation& a = launch.allocations[k];
    if (a.address < kFirstGlobal ||
        (k && a.address < launch.allocations[k - 1].address + launch.allocations[k - 1].bytes))
      throw std::invalid_argument("allocations must be sorted, disjoint and above the address windows");
  }
  int64_t pool = 0;
  for (const Operand& operand : program.operands)
    if (operand.slot < 0 && operand.slot != kAbsent) pool = std::max<int64_t>(pool, ~operand.slot + 128);
  if (static_cast<uint64_t>(pool) > launch.constant_bytes ||
      reinterpret_cast<uintptr_t>(launch.constants) % 128)
    throw std::invalid_argument("the constant pool is too small or not aligned to 128 bytes");
}

}  // namespace

void run(const std::vector<Work>& works, Isa isa, std::shared_ptr<Series>& series) {
  for (const Work& work : works) check(*work.program, *work.launch);
#ifdef WORKBENCH_HAS_V3
  if (isa == Isa::v3) return v3_isa::run_launches(works, series);
#endif
#ifdef WORKBENCH_HAS_BASELINE
  if (isa == Isa::baseline) return baseline_isa::run_launches(works, series);
#endif
  throw std::invalid_argument("the engine was not built for this instruction set");
}

}  // namespace workbench::emulator
