// Every operation that only computes on registers: alone, in place, under a guard, and on every instruction
// set. What the results should be is tested elsewhere; here they must not depend on how they are computed,
// and the sanitizers must find nothing, whatever the operands hold.
#include <cmath>
#include <random>

#include "assembler.hpp"

namespace {

bool only_registers(const emu::OperationInfo& operation) {
  for (const char* other : {"wgmma", "bar",        "mbarrier",  "cp.",  "exit", "ret",   "trap",
                            "brkpt", "assertfail", "nanosleep", "shfl", "vote", "match", "redux",
                            "elect", "cluster",    "read.",     "lop3", "addc", "subc",  "madc"})
    if (operation.name.compare(0, std::string(other).size(), other) == 0) return false;
  return operation.signature.find_first_of("alU") == std::string::npos && operation.signature.size() > 1;
}

std::string expand(const std::string& signature) {
  std::string letters;
  for (size_t k = 0; k < signature.size();) {
    const char letter = signature[k++];
    size_t n = 0;
    while (k < signature.size() && std::isdigit(static_cast<unsigned char>(signature[k])))
      n = n * 10 + static_cast<size_t>(signature[k++] - '0');
    if (k < signature.size() && signature[k] == '?') ++k;
    letters.append(n ? n : 1, letter);
  }
  return letters;
}

template <class T>
T interesting(std::mt19937_64& random) {
  static const uint64_t specials[] = {0,
                                      1,
                                      ~0ull,
                                      0x7f800000,
                                      0xff800000,
                                      0x7fc00000,
                                      0x80000000,
                                      0x7fffffff,
                                      0x3f800000,
                                      0x00000001,
                                      0x8000000000000000u,
                                      0x7ff0000000000000u,
                                      0x7ff8000000000000u,
                                      0x7fffffffffffffffu,
                                      31,
                                      32,
                                      33,
                                      63,
                                      64,
                                      255,
                                      0x7c007c00,
                                      0x7e00fc00,
                                      0x80000001,
                                      0x4f000000,
                                      0xcf000000,
                                      0x5f000000,
                                      0x43e0000000000000u};
  const uint64_t bits =
      random() % 3 == 0 ? specials[random() % std::size(specials)] : random() >> (random() % 3 * 16);
  return static_cast<T>(bits);
}

bool is_wide(char letter) { return letter == 'D' || letter == 'd' || letter == 'e'; }
bool is_destination(char letter) { return letter == 'W' || letter == 'D' || letter == 'P'; }

emu::Operand random_constant(Assembler& assembler, char letter, std::mt19937_64& random) {
  if (is_wide(letter)) {
    Lanes<uint64_t> values;
    for (uint64_t& value : values) value = interesting<uint64_t>(random);
    return assembler.constant(values);
  }
  Lanes<uint32_t> values;
  for (uint32_t& value : values)
    value = letter == 'p' ? (random() & 1 ? ~0u : 0u) : interesting<uint32_t>(random);
  return assembler.constant(values);
}

// Metadata that says something for every type: the first two places of a chunk, or the last two.
emu::Operand random_metadata(Assembler& assembler, std::mt19937_64& random) {
  Lanes<uint32_t> values;
  for (uint32_t& value : values) {
    value = 0;
    for (int chunk = 0; chunk < 8; ++chunk) value = value << 4 | (random() & 1 ? 0b0100 : 0b1110);
  }
  return assembler.constant(values);
}

// Stores a cell to memory, at output number `index`.
void store(Assembler& assembler, emu::Operand cell, bool wide, int index) {
  Lanes<uint64_t> address;
  for (size_t l = 0; l < address.size(); ++l)
    address[l] = kMemory + static_cast<uint64_t>(index) * 256 + l * 8;
  assembler.row(wide ? "st.global.b64" : "st.global.b32", {assembler.constant(address), cell});
}

// NaNs may differ in sign and payload from one instruction set to another.
bool agree(uint64_t a, uint64_t b) {
  if (a == b) return true;
  const auto nan64 = [](uint64_t x) { return (x & 0x7fffffffffffffffu) > 0x7ff0000000000000u; };
  const auto nan32 = [](uint64_t x) { return (x & 0x7fffffffu) > 0x7f800000u; };
  return (nan64(a) && nan64(b)) || (nan32(a) && nan32(b) && a >> 32 == b >> 32);
}

}  // namespace

TEST(every_operation_alone_in_place_and_guarded) {
  std::mt19937_64 random(5);
  int tested = 0;
  for (const emu::OperationInfo& operation : emu::operations()) {
    if (!only_registers(operation)) continue;
    const std::string letters = expand(operation.signature);
    size_t results = 0;
    while (results < letters.size() && is_destination(letters[results])) ++results;
    if (results == 0 || results == letters.size()) continue;
    ++tested;

    Assembler assembler;
    std::vector<emu::Operand> alone, in_place, guarded;
    for (size_t k = 0; k < letters.size(); ++k) {
      if (k < results) {
        alone.push_back(assembler.cell(is_wide(letters[k]) ? 8 : 4));
        guarded.push_back(assembler.cell(is_wide(letters[k]) ? 8 : 4));
      } else {
        const bool sparse = operation.name.compare(0, 6, "mma.sp") == 0;
        // behind each word of factors, which byte of it and which thread's
        const size_t left = letters.size() - k;
        const bool selects =
            operation.name.find(".block_scale") != std::string::npos && left < 6 && left != 3;
        const emu::Operand source = selects                             ? assembler.constant(0u)
                                    : sparse && k + 2 == letters.size() ? random_metadata(assembler, random)
                                    : sparse && k + 1 == letters.size()
                                        ? assembler.constant(0u)
                                        : random_constant(assembler, letters[k], random);
        alone.push_back(source);
        guarded.push_back(source);
      }
    }
    // in place: the first result lies on the first source, whatever their widths, and the second on the
    // second
    in_place = alone;
    std::vector<emu::Operand> shared;
    for (size_t k = 0; k < results; ++k) shared.push_back(assembler.cell(8));
    for (size_t k = 0; k < results; ++k) in_place[k].slot = shared[k].slot;
    for (size_t k = 0; k < results && results + k < letters.size(); ++k) {
      const bool wide = is_wide(letters[results + k]);
      assembler.row(wide ? "mov.b64" : "mov.b32", {{shared[k].slot, wide ? 8 : 4, 0}, alone[results + k]});
      in_place[results + k] = {shared[k].slot, wide ? 8 : 4, 0};
    }
    const emu::Operand odd = assembler.cell();
    Lanes<uint32_t> odd_lanes;
    for (size_t l = 0; l < odd_lanes.size(); ++l) odd_lanes[l] = l & 1 ? ~0u : 0u;
    assembler.row("mov.b32", {odd, assembler.constant(odd_lanes)});
    const bool whole_warp = operation.name.find("mma") != std::string::npos ||
                            operation.name.find("movmatrix") != std::string::npos;

    assembler.row(operation.name, alone);
    assembler.row(operation.name, in_place);
    if (!whole_warp) assembler.row(operation.name, guarded, odd);
    for (size_t k = 0; k < results; ++k) {
      const int base = static_cast<int>(3 * k);
      store(assembler, alone[k], is_wide(letters[k]), base);
      store(assembler, in_place[k], is_wide(letters[k]), base + 1);
      store(assembler, guarded[k], is_wide(letters[k]), base + 2);
    }
    assembler.row("exit");

    std::vector<uint64_t> first;
    Device device(64 * 256);
    for (const emu::Isa isa : device.isas()) {
      device.launch.block[0] = 32;
      const emu::Result result = device.run(assembler, isa);
      CHECK_MESSAGE(result.fault.kind == emu::FaultKind::none, operation.name + " faults");
      for (size_t k = 0; k < results; ++k)
        for (size_t l = 0; l < 32; ++l) {
          const uint64_t value = device.read<uint64_t>(3 * k * 32 + l);
          const std::string where = operation.name + ", lane " + std::to_string(l);
          CHECK_MESSAGE(value == device.read<uint64_t>((3 * k + 1) * 32 + l), where + " differs in place");
          if (!whole_warp)
            CHECK_MESSAGE(device.read<uint64_t>((3 * k + 2) * 32 + l) == (l & 1 ? value : 0),
                          where + " differs under a guard");
          if (isa == emu::Isa::baseline)
            first.push_back(value);
          else
            CHECK_MESSAGE(agree(first[k * 32 + l], value), where + " differs between instruction sets");
        }
    }
  }
  CHECK(tested > 1500);
}
