// Every operation that has an address or a matrix descriptor, with addresses in and around the ends of every
// state space and values that nothing has set. Launches go on behind their findings, so whatever an operation
// keeps books of is written for places that do not exist, too: the sanitizers must find nothing, and a plain
// access outside must be a finding.
#include <random>

#include "assembler.hpp"

namespace {

using Random = std::mt19937_64;

bool starts(const std::string& name, const char* prefix) { return name.rfind(prefix, 0) == 0; }

std::string letters_of(const std::string& signature) {
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

template <class T, size_t N>
T one_of(Random& random, const T (&values)[N]) {
  return values[random() % N];
}

struct Sizes {
  uint32_t shared, local;
  size_t global;
  uint64_t end_of(uint64_t window) const {
    return window == emu::kLocalWindow ? local : window == kMemory ? global : shared;
  }
};

constexpr size_t kParameterBytes = 24;

// Addresses near an end of one of the spaces, in it or generic.
class Near {
 public:
  Near(Random& random, const Sizes& sizes) : random_(random), sizes_(sizes) {
    static const uint64_t windows[] = {
        0,       0,      0, emu::kSharedWindow, emu::kLocalWindow, emu::kParamWindow, emu::kFirstGlobal,
        kMemory, kMemory};
    static const uint64_t steps[] = {4, 16, 128};
    window = one_of(random_, windows);
    step = one_of(random_, steps);
    if (random_() % 4 == 0) rank = (random_() % 4) << emu::kRankShift;
    if (window == emu::kLocalWindow) rank = (1025 + random_() % 40) << emu::kOwnerShift;
  }
  uint64_t draw() {
    static const int64_t around[] = {0, 0, 0, 4, 8, 16, -16, -8, -4, -2, -1, 1, 2, 32, -32, 100000};
    uint64_t at =
        (random_() % 3 ? sizes_.end_of(window) : 0) + static_cast<uint64_t>(one_of(random_, around));
    if (random_() % 4) at = at / step * step;
    if (random_() % 100 == 0) at = random_() >> random_() % 64;
    return window + (at | rank);
  }
  uint64_t window, step, rank = 0;

 private:
  Random& random_;
  const Sizes& sizes_;
};

class Fuzz {
 public:
  Fuzz(const emu::OperationInfo& operation, const Sizes& sizes, Random& random)
      : name_(operation.name), letters_(letters_of(operation.signature)), sizes_(sizes), random_(random) {}

  // A program that executes the operation twice, after something on its way to shared memory.
  Assembler program() {
    barrier_ = sizes_.shared >= 16 ? sizes_.shared / 2 / 8 * 8 : 0;
    if (sizes_.shared >= 16) {
      assembler_.row("mbarrier.init.shared.b64", {address(barrier_), assembler_.constant(64u)});
      if (random_() % 2)
        assembler_.row("cp.async.ca.shared.global",
                       {address(0), address(kMemory), assembler_.constant(4u), Assembler::absent()});
    }
    if (random_() % 2) assembler_.row("st.shared.b32", {address(barrier_), undefined(4, 7)});
    if (starts(name_, "wgmma")) assembler_.row("wgmma.fence.sync.aligned");
    for (int time = 0; time < 2; ++time) assembler_.row(name_, operands());
    assembler_.row("cp.async.wait_all");
    assembler_.row("cp.async.bulk.commit_group");
    assembler_.row("cp.async.bulk.wait_group", {assembler_.constant(0u)});
    if (starts(name_, "wgmma")) {
      assembler_.row("wgmma.commit_group.sync.aligned");
      assembler_.row("wgmma.wait_group.sync.aligned", {assembler_.constant(0u)});
    }
    assembler_.row("barrier.cluster.arrive.aligned");
    assembler_.row("barrier.cluster.wait.aligned");
    assembler_.row("exit");
    return assembler_;
  }

 private:
  emu::Operand address(uint64_t value) { return assembler_.constant(value); }

  // A value all of whose bits are undefined.
  emu::Operand undefined(int bytes, uint64_t value) {
    const emu::Operand unset = assembler_.cell(bytes), sum = assembler_.cell(bytes);
    assembler_.unset(unset);
    if (bytes == 8)
      assembler_.row("add.u64", {sum, unset, assembler_.constant(value)});
    else
      assembler_.row("add.u32", {sum, unset, assembler_.constant(static_cast<uint32_t>(value))});
    return sum;
  }

  // Most that take a second address, or a third, want a tensor map or an mbarrier.
  emu::Operand addresses(size_t index) {
    const bool tensor = name_.find(".tensor.") != std::string::npos;
    const bool load = name_.find(".mbarrier") != std::string::npos;
    if (tensor && index == (load ? 1 : 0) && random_() % 8) return address(emu::kParamWindow);
    if (index && random_() % 2) return address(barrier_);
    Lanes<uint64_t> values;
    Near near(random_, sizes_);
    if (orderly_) near.step = 128;
    const uint64_t first = near.draw();
    const auto kind = orderly_ ? random_() % 2 : random_() % 4;
    for (size_t l = 0; l < values.size(); ++l)
      values[l] = kind == 0   ? first
                  : kind == 1 ? first + l * near.step
                  : kind == 2 ? near.draw()
                              : Near(random_, sizes_).draw();
    return assembler_.constant(values);
  }

  emu::Operand descriptor() {
    const auto in = [&](uint64_t bytes) { return bytes >> 4 & 0x3fff; };
    return assembler_.constant(in(random_() % (sizes_.shared + 64)) |
                               in(random_() % 2 ? 128 : random_()) << 16 |
                               in(random_() % 2 ? 256 : random_()) << 32 | (random_() % 4) << 62);
  }

  std::vector<emu::Operand> operands() {
    static const uint32_t any[] = {0, 1, 4, 8, 16, 16, 32, 128, 0x10000, ~0u}, orderly[] = {0, 16, 32};
    const auto number = [&] { return orderly_ ? one_of(random_, orderly) : one_of(random_, any); };
    std::vector<emu::Operand> all;
    size_t index = 0;
    for (const char letter : letters_) {
      const bool wide = letter == 'D' || letter == 'd' || letter == 'e';
      if (letter == 'a')
        all.push_back(addresses(index++));
      else if (letter == 'W' || letter == 'D' || letter == 'P' || letter == 'U')
        all.push_back(assembler_.cell(wide ? 8 : 4));
      else if (starts(name_, "wgmma") && wide)
        all.push_back(descriptor());
      else if (letter == 'p')
        all.push_back(assembler_.constant(random_() % 2 ? ~0u : 0u));
      else if (random_() % 2)
        all.push_back(undefined(wide ? 8 : 4, number()));
      else if (wide)
        all.push_back(assembler_.constant(uint64_t{number()}));
      else
        all.push_back(assembler_.constant(number()));
    }
    return all;
  }

  const std::string& name_;
  std::string letters_;
  const Sizes sizes_;
  Random& random_;
  Assembler assembler_;
  uint64_t barrier_ = 0;
  const bool orderly_ = random_() % 2;  // aligned, as most copies must be
};

bool has_place(const emu::OperationInfo& operation) {
  return operation.signature.find('a') != std::string::npos || starts(operation.name, "wgmma.mma");
}

// Small, of floats, with all that a copy of this name needs of it.
emu::TensorMap map_for(const std::string& name, Random& random) {
  emu::TensorMap map{};
  map.descriptor = emu::kParamWindow;
  map.address = kMemory;
  map.element_type = 7;
  map.rank = name[name.find(".tensor.") + 8] - '0';
  map.im2col = name.find("im2col") != std::string::npos;
  map.pixels = map.im2col ? 3 : 0;
  static const int swizzles[] = {0, 32, 64, 128};
  map.swizzle = one_of(random, swizzles);
  uint64_t bytes = 4;
  for (int d = 0; d < map.rank; ++d) {
    map.strides[d] = d ? bytes : 4;
    map.sizes[d] = d ? 3 : 8;
    map.box[d] = d == 0 ? 8 : static_cast<uint32_t>(random() % 3 + 1);
    map.element_strides[d] = 1;
    bytes *= map.sizes[d];
  }
  return map;
}

Device device_of(const Sizes& sizes, std::vector<uint8_t>& parameters) {
  Device device(sizes.global);
  emu::Launch& launch = device.launch;
  launch.shared_bytes = sizes.shared;
  launch.local_bytes = sizes.local;
  launch.parameters = parameters.data();
  launch.parameter_bytes = parameters.size();
  launch.most_findings = ~0u;
  launch.budget = 10'000;
  return device;
}

}  // namespace

TEST(no_operation_keeps_books_of_places_that_do_not_exist) {
  static const Sizes sizes[] = {{1040, 40, 260}, {256, 8, 64}, {100, 16, 5},
                                {8, 0, 1},       {0, 24, 33},  {40000, 8, 4096}};
  std::vector<uint8_t> parameters(kParameterBytes);
  Random random(1);
  int tested = 0, ended = 0;
  for (const emu::OperationInfo& operation : emu::operations()) {
    if (!has_place(operation)) continue;
    const bool product = starts(operation.name, "wgmma");
    if (product && tested % 8) {  // they differ in the elements alone
      ++tested;
      continue;
    }
    for (const Sizes& size : sizes) {
      Assembler assembler = Fuzz(operation, size, random).program();
      Device device = device_of(size, parameters);
      device.launch.seed = random();
      device.launch.block[0] = product ? 128 : 32;
      device.launch.grid[0] = device.launch.cluster[0] = 2;
      device.launch.count = tested % 2;
      device.launch.trace_events = tested % 3 ? 0 : 100;
      device.launch.trace_lines.resize(assembler.program().rows.size());
      if (operation.name.find(".tensor.") != std::string::npos)
        device.launch.tensor_maps.push_back(map_for(operation.name, random));
      const emu::Result result = device.run(assembler);
      ended += result.fault.kind == emu::FaultKind::none;
    }
    ++tested;
  }
  CHECK(tested > 3000);
  CHECK(ended > 1000);  // behind all of their findings
}

TEST(an_undefined_value_stored_outside_is_a_finding) {
  const Sizes sizes{64, 16, 64};
  const std::pair<const char*, uint64_t> spaces[] = {
      {".shared", sizes.shared},
      {".shared::cluster", sizes.shared},
      {".local", sizes.local},
      {".global", kMemory + sizes.global},
      {"", emu::kSharedWindow + sizes.shared},
      {"", emu::kLocalWindow + sizes.local},
      {"", emu::kLocalWindow + (uint64_t{9} << emu::kOwnerShift)},
      {"", emu::kParamWindow + kParameterBytes},
      {"", emu::kParamWindow}};
  std::vector<uint8_t> parameters(kParameterBytes);
  for (const auto& [space, end] : spaces)
    for (const char* operation : {"st", "ld", "red", "atom"})
      for (const uint64_t beyond : {0, 4, 64, 4096}) {
        if (space == std::string(".local") && (operation[0] == 'r' || operation[0] == 'a')) continue;
        if (end == emu::kParamWindow && operation[0] == 'l') continue;
        Assembler assembler;
        const emu::Operand unset = assembler.cell(), result = assembler.cell();
        assembler.unset(unset);
        const emu::Operand place = assembler.constant(end + beyond);
        const bool update = operation[0] == 'r' || operation[0] == 'a';
        const std::string name = std::string(operation) + space + (update ? ".add.u32" : ".b32");
        if (operation[0] == 'l')
          assembler.row(name, {result, place});
        else if (operation[0] == 'a')
          assembler.row(name, {result, place, unset});
        else
          assembler.row(name, {place, unset});
        assembler.row("exit");
        Device device = device_of(sizes, parameters);
        device.launch.block[0] = 32;
        const emu::Result found = device.run(assembler);
        const auto outside = [](const emu::Fault& fault) {
          return fault.kind == emu::FaultKind::out_of_bounds || fault.kind == emu::FaultKind::read_only;
        };
        bool any = outside(found.fault);
        for (const emu::Finding& finding : found.findings) any |= outside(finding.fault);
        CHECK_MESSAGE(any, name + " beyond by " + std::to_string(beyond) + " is no finding");
      }
}
