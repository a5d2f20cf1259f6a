// cvt to and from floats of 4, 6 and 8 bits, powers of two of 8 bits (ue8m0), and with random bits (.rs).
//
// What NaN, infinities and numbers out of range become follows cuda_fp4.hpp, cuda_fp6.hpp and cuda_fp8.hpp.
#include <algorithm>

#include "float_functors.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

// No code is a NaN or an infinity: both become the largest number.
constexpr Format kE2m1{1, 2, 1, false, 7, 7};
constexpr Format kE2m3{3, 2, 1, false, 31, 31};
constexpr Format kE3m2{2, 3, 3, false, 31, 31};

enum class From { singles, halves, bfloats };

struct Packing {
  const Format* format;
  int bits, count;  // of a code in the result, and how many
  From from;
  bool saturate, relu;
  int random;  // bits for an element; 0: to nearest
};
std::vector<Packing>& packings() {
  static std::vector<Packing> list;
  return list;
}

// Up where the random bits, as a fraction of the last place, and what would be cut off make up one.
uint32_t encode_randomly(double x, const Format& format, uint32_t random, int bits, bool saturate) {
  if (x != x || std::isinf(x) || x == 0) return encode(x, format, Rounding::zero, saturate);
  const int smallest = 1 - format.bias, exponent = std::max(std::ilogb(x), smallest);
  const double steps = std::ldexp(std::fabs(x), format.mantissa_bits - exponent);
  const double up = std::floor(steps + std::ldexp(static_cast<double>(random), -bits));
  return encode(std::copysign(std::ldexp(up, exponent - format.mantissa_bits), x), format, Rounding::nearest,
                saturate);
}

uint32_t pack(double value, const Packing& form, uint32_t random) {
  if (form.relu && !(value > 0) && value == value) value = 0;
  return form.random ? encode_randomly(value, *form.format, random, form.random, form.saturate)
                     : encode(value, *form.format, Rounding::nearest, form.saturate);
}

template <class Pair>
double half_of(uint32_t cell, int k) {
  const Pair pair = bit_cast<Pair>(cell);
  return static_cast<double>(static_cast<float>(k ? pair.high : pair.low));
}

// Element k of the result, the lowest one first: sources are named from the highest on.
double element(const Warp& warp, const Instruction& instruction, const Packing& form, int k, int lane) {
  if (form.from == From::singles)
    return static_cast<double>(Source<float>(warp, instruction.operands[form.count - k])[lane]);
  const uint32_t cell = source_cells<uint32_t>(warp, instruction.operands[1])[lane];
  return form.from == From::halves ? half_of<f16x2>(cell, k) : half_of<bf16x2>(cell, k);
}

void pack_all(Warp& warp, const Instruction& instruction) {
  const Packing& form = packings()[static_cast<size_t>(instruction.variant)];
  const uint32_t* random =
      form.random ? source_cells<uint32_t>(warp, instruction.operands[form.count + 1]) : nullptr;
  const uint32_t mask = (1u << form.random) - 1;
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    uint32_t result = 0;
    for (int k = 0; k < form.count; ++k) {
      const uint32_t drawn = random ? random[l] >> 32 / form.count * k & mask : 0;
      result |= pack(element(warp, instruction, form, k, l), form, drawn) << form.bits * k;
    }
    return result;
  });
}

struct Unpacking {
  const Format* format;
  int bits;
  bool to_bfloats, relu, scaled;
};
std::vector<Unpacking>& unpackings() {
  static std::vector<Unpacking> list;
  return list;
}

double power_of(uint32_t code) {
  return code == 255 ? std::numeric_limits<double>::quiet_NaN()
                     : std::ldexp(1.0, static_cast<int>(code) - 127);
}

void unpack_both(Warp& warp, const Instruction& instruction) {  // result, codes{, factors}
  const Unpacking& form = unpackings()[static_cast<size_t>(instruction.variant)];
  const Source<uint32_t> codes(warp, instruction.operands[1]);
  const uint32_t* factors = form.scaled ? source_cells<uint32_t>(warp, instruction.operands[2]) : nullptr;
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    uint32_t result = 0;
    for (int k = 0; k < 2; ++k) {
      double value =
          static_cast<double>(decode(codes[l] >> form.bits * k & ((1u << form.bits) - 1), *form.format));
      if (factors) value *= power_of(factors[l] >> 8 * k & 255);
      if (form.relu && value <= 0) value = 0;
      result |= encode(value, form.to_bfloats ? kBfloat : kHalf, Rounding::nearest, false) << 16 * k;
    }
    return result;
  });
}

// The exponent of a magnitude: the sign is not looked at, and what is below 2^-127 becomes that.
uint32_t exponent_code(uint32_t single, bool up, bool saturate) {
  const uint32_t magnitude = single & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 255;
  uint32_t code = magnitude >> 23;
  if (up && (magnitude & 0x7fffffu) && magnitude > 0x400000u) ++code;
  return saturate ? std::min(code, 254u) : code;
}

constexpr int kUp = 1, kFinite = 2, kBfloats = 4;  // variant

void exponents(Warp& warp, const Instruction& instruction) {
  const bool up = instruction.variant & kUp, finite = instruction.variant & kFinite;
  const uint32_t* first = source_cells<uint32_t>(warp, instruction.operands[1]);
  const uint32_t* second =
      instruction.variant & kBfloats ? nullptr : source_cells<uint32_t>(warp, instruction.operands[2]);
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    const uint32_t high = second ? first[l] : first[l] & 0xffff0000u,
                   low = second ? second[l] : first[l] << 16;
    return exponent_code(high, up, finite) << 8 | exponent_code(low, up, finite);
  });
}

void powers(Warp& warp, const Instruction& instruction) {
  const Source<uint32_t> codes(warp, instruction.operands[1]);
  write_lanes<bf16x2>(warp, instruction.operands[0], [&](int l) {
    const auto power = [&](uint32_t code) { return bf16(static_cast<float>(power_of(code & 255))); };
    return bf16x2{power(codes[l]), power(codes[l] >> 8)};
  });
}

// ---- table

void add_packing(Table& table, const std::string& name, const std::string& signature, const Packing& form) {
  packings().push_back(form);
  table.add(name, signature, pack_all, static_cast<int>(packings().size()) - 1);
}

struct Type {
  const char* name;
  const Format* format;
  int bits;
};
constexpr Type kTypes[] = {
    {"e2m1", &kE2m1, 4}, {"e2m3", &kE2m3, 8}, {"e3m2", &kE3m2, 8}, {"e4m3", &kE4m3, 8}, {"e5m2", &kE5m2, 8}};

void add_type(Table& table, const Type& type, const std::string& relu) {
  const std::string pair = std::string(".") + type.name + "x2", four = std::string(".") + type.name + "x4";
  const bool is_new = type.format->largest <= 31, positive = !relu.empty();
  const auto add = [&](const char* source, const char* signature, From from) {
    add_packing(table, "cvt.rn.satfinite" + relu + pair + source, signature,
                {type.format, type.bits, 2, from, true, positive, 0});
  };
  if (is_new) add(".f32", "Wff", From::singles), add(".f16x2", "Ww", From::halves);
  add(".bf16x2", "Ww", From::bfloats);
  add_packing(table, "cvt.rs.satfinite" + relu + four + ".f32", "Wf4w",
              {type.format, type.bits, 4, From::singles, true, positive, 8});
  for (const bool bfloats : {false, true})
    for (const bool scaled : {false, true}) {
      if (bfloats ? false : scaled || !is_new) continue;
      unpackings().push_back({type.format, type.bits, bfloats, positive, scaled});
      for (const char* finite : {"", ".satfinite"}) {
        if (*finite && !bfloats) continue;
        table.add("cvt.rn" + std::string(finite) + relu + (scaled ? ".scaled::n2::ue8m0" : "") +
                      (bfloats ? ".bf16x2" : ".f16x2") + pair,
                  scaled ? "Www" : "Ww", unpack_both, static_cast<int>(unpackings().size()) - 1);
      }
    }
}

}  // namespace

void add_narrow_operations(Table& table) {
  packings().clear();
  unpackings().clear();
  for (const char* relu : {"", ".relu"}) {
    for (const Type& type : kTypes) add_type(table, type, relu);
    for (const char* finite : {"", ".satfinite"})
      for (const bool bfloats : {false, true})
        add_packing(
            table, "cvt.rs" + std::string(relu) + finite + (bfloats ? ".bf16x2" : ".f16x2") + ".f32", "Wffw",
            {bfloats ? &kBfloat : &kHalf, 16, 2, From::singles, *finite != 0, *relu != 0, bfloats ? 16 : 13});
  }
  for (const char* finite : {"", ".satfinite"})
    for (const bool up : {false, true}) {
      const std::string name = std::string(up ? "cvt.rp" : "cvt.rz") + finite + ".ue8m0x2";
      const int variant = (up ? kUp : 0) | (*finite ? kFinite : 0);
      table.add(name + ".f32", "Wff", exponents, variant);
      table.add(name + ".bf16x2", "Ww", exponents, variant | kBfloats);
    }
  table.add("cvt.rn.bf16x2.ue8m0x2", "Ww", powers);
}

}  // namespace workbench::emulator::WORKBENCH_ISA
