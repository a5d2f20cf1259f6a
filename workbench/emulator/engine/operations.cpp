// The table of everything the engine can do.
#include <stdexcept>

#include "machine.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

void Table::add(std::string name, std::string signature, Function function, int variant) {
  Operation operation;
  operation.name = std::move(name);
  operation.signature = std::move(signature);
  operation.function = function;
  operation.variant = variant;
  const auto starts = [&](const char* prefix) { return operation.name.rfind(prefix, 0) == 0; };
  operation.is_product = starts("wgmma.mma_async");
  if (operation.is_product || starts("cp.async.bulk.") || starts("cp.reduce.async.bulk.") ||
      starts("clusterlaunchcontrol.try_cancel"))
    operation.proxy = Proxy::async;
  else if (starts("cp.async."))
    operation.proxy = Proxy::copy;
  operations_.push_back(std::move(operation));
}

void Table::add(std::initializer_list<const char*> name, const char* signature, Function function,
                int variant) {
  std::string whole;
  for (const char* part : name) whole += part;
  add(std::move(whole), signature, function, variant);
}

void Table::add_member(std::string name, std::string signature, Function function, int member_operand,
                       int variant) {
  add(std::move(name), std::move(signature), function, variant);
  operations_.back().kind = Kind::member;
  operations_.back().member_operand = member_operand;
}

void Table::add_aligned(std::string name, std::string signature, Function function, int variant) {
  add(std::move(name), std::move(signature), function, variant);
  operations_.back().kind = Kind::aligned;
}

void Table::add_control(std::string name, std::string signature, Control control, int variant) {
  add(std::move(name), std::move(signature), nullptr, variant);
  operations_.back().kind = Kind::control;
  operations_.back().control = control;
}

void Table::add_branch(std::string name) {
  add(std::move(name), "l", nullptr);
  operations_.back().kind = Kind::branch;
}

const std::vector<Operation>& operation_table() {
  static const std::vector<Operation> operations = [] {
    Table table;
    add_integer_operations(table);
    add_bit_operations(table);
    add_float_operations(table);
    add_half_operations(table);
    add_directed_rounding_operations(table);
    add_compare_operations(table);
    add_move_operations(table);
    add_convert_operations(table);
    add_memory_operations(table);
    add_atomic_operations(table);
    add_warp_operations(table);
    add_matrix_operations(table);
    add_wgmma_operations(table);
    add_tcgen05_operations(table);
    add_wmma_operations(table);
    add_mbarrier_operations(table);
    add_copy_operations(table);
    add_bulk_operations(table);
    add_remote_operations(table);
    add_launch_control_operations(table);
    add_narrow_operations(table);
    add_block_scaled_operations(table);
    add_control_operations(table);
    add_warpgroup_operations(table);
    add_print_operations(table);
    add_texture_operations(table);
    add_heap_operations(table);
    return table.operations();
  }();
  return operations;
}

void list_operations(std::vector<OperationInfo>& all) {
  for (const Operation& operation : operation_table()) all.push_back({operation.name, operation.signature});
}

std::string expand_signature(const std::string& signature, std::string* optional) {
  std::string letters;
  for (size_t k = 0; k < signature.size();) {
    const char letter = signature[k++];
    size_t repeat = 0;
    while (k < signature.size() && signature[k] >= '0' && signature[k] <= '9')
      repeat = repeat * 10 + static_cast<size_t>(signature[k++] - '0');
    const bool may_be_absent = k < signature.size() && signature[k] == '?';
    k += may_be_absent;
    if (letter == 'l') continue;
    letters.append(repeat ? repeat : 1, letter);
    if (optional) optional->append(repeat ? repeat : 1, may_be_absent ? '?' : ' ');
  }
  return letters;
}

}  // namespace workbench::emulator::WORKBENCH_ISA
