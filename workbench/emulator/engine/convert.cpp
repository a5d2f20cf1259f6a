// cvt, in all its forms, and cvta.
#include <limits>
#include <tuple>

#include "float_functors.hpp"
#include "memory.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
namespace {

template <class To>
struct Truncate {
  template <class From>
  To operator()(From a) const {
    return static_cast<To>(a);
  }
};

// Integer to integer, .sat: by way of 64 bits, so that there is one loop for each type, not for each pair.
template <class From>
using Widest = std::conditional_t<std::is_signed_v<From>, int64_t, uint64_t>;

template <class From>
[[gnu::noinline]] void widen(const Warp& warp, const Operand& operand, Widest<From>* wide) {
  const Source<From> a(warp, operand);
  for (int l = 0; l < kLanes; ++l) wide[l] = a[l];
}

template <class To, class Wide>
To clamp(Wide a) {
  if constexpr (std::is_signed_v<Wide>) {
    const int64_t low = std::is_signed_v<To> ? static_cast<int64_t>(std::numeric_limits<To>::min()) : 0;
    if (a < low) return static_cast<To>(low);
    if (a > 0 && static_cast<uint64_t>(a) > static_cast<uint64_t>(std::numeric_limits<To>::max()))
      return std::numeric_limits<To>::max();
  } else if (a > static_cast<std::make_unsigned_t<To>>(std::numeric_limits<To>::max())) {
    return std::numeric_limits<To>::max();
  }
  return static_cast<To>(a);
}

template <class To, class Wide>
[[gnu::noinline]] void write_clamped(const Warp& warp, const Operand& operand, const Wide* wide) {
  write_lanes<To>(warp, operand, [&](int l) { return clamp<To>(wide[l]); });
}

template <class To, class From>
void clamp_lanes(Warp& warp, const Instruction& instruction) {
  Widest<From> wide[kLanes];
  widen<From>(warp, instruction.operands[1], wide);
  write_clamped<To>(warp, instruction.operands[0], wide);
}

// ---- float to integer: rounds, then clamps; the variant is the rounding

template <class To, class From>
To to_integer(From rounded) {
  constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
  // max + 1 is a power of two, so it is exact in every format
  constexpr From beyond = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * From(2);
  constexpr bool wide = std::is_same_v<From, double> || sizeof(To) == 8;
  constexpr To for_nan = wide ? static_cast<To>(std::make_unsigned_t<To>(1) << (8 * sizeof(To) - 1)) : To(0);
  const bool inside = rounded >= low && rounded < beyond;
  const To converted = static_cast<To>(inside ? rounded : From(0));
  const To clamped = rounded < low ? std::numeric_limits<To>::min() : std::numeric_limits<To>::max();
  return inside ? converted : rounded != rounded ? for_nan : clamped;
}

template <class T>
T round_to_integral(T a, Rounding mode) {
  switch (mode) {
    case Rounding::zero:
      return std::trunc(a);
    case Rounding::down:
      return std::floor(a);
    case Rounding::up:
      return std::ceil(a);
    default:
      return std::nearbyint(a);
  }
}

// Halves are widened first, which is exact.
template <class From>
using Computed = std::conditional_t<std::is_same_v<From, double>, double, float>;

constexpr int kFlush = 16;  // variant of a conversion to an integer: the rounding, and .ftz

// One loop that rounds for each type and rounding, and one that clamps for each pair of types.
template <class From, Rounding Mode>
[[gnu::noinline]] void round_lanes(const Source<From>& a, Computed<From>* rounded) {
  for (int l = 0; l < kLanes; ++l) rounded[l] = round_to_integral(static_cast<Computed<From>>(a[l]), Mode);
}

template <class From>
void round_lanes(const Warp& warp, const Instruction& instruction, Computed<From>* rounded) {
  const Source<From> a(warp, instruction.operands[1]);
  switch (static_cast<Rounding>(instruction.variant & ~kFlush)) {
    case Rounding::zero:
      return round_lanes<From, Rounding::zero>(a, rounded);
    case Rounding::down:
      return round_lanes<From, Rounding::down>(a, rounded);
    case Rounding::up:
      return round_lanes<From, Rounding::up>(a, rounded);
    default:
      return round_lanes<From, Rounding::nearest>(a, rounded);
  }
}

[[gnu::noinline]] void round_flushed(const Warp& warp, const Instruction& instruction, float* rounded) {
  const Source<float> a(warp, instruction.operands[1]);
  const auto mode = static_cast<Rounding>(instruction.variant & ~kFlush);
  for (int l = 0; l < kLanes; ++l) rounded[l] = round_to_integral(flush(a[l]), mode);
}

template <class To, class Rounded>
[[gnu::noinline]] void write_integers(const Warp& warp, const Operand& operand, const Rounded* rounded) {
  write_lanes<To>(warp, operand, [&](int l) { return to_integer<To>(rounded[l]); });
}

template <class To, class From>
void convert_to_integer(Warp& warp, const Instruction& instruction) {
  alignas(64) Computed<From> rounded[kLanes];
  if constexpr (std::is_same_v<From, float>) {
    if (instruction.variant & kFlush)
      round_flushed(warp, instruction, rounded);
    else
      round_lanes<From>(warp, instruction, rounded);
  } else {
    round_lanes<From>(warp, instruction, rounded);
  }
  write_integers<To>(warp, instruction.operands[0], rounded);
}

const std::pair<const char*, Rounding> kIntegralRoundings[] = {
    {".rni", Rounding::nearest}, {".rzi", Rounding::zero}, {".rmi", Rounding::down}, {".rpi", Rounding::up}};

// ---- float to float

template <Rounding Mode>
struct Integral {
  template <class T>
  T operator()(T a) const {
    return T(round_to_integral(static_cast<Computed<T>>(a), Mode));
  }
};

struct Same {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};

struct ToFloat {
  template <class T>
  float operator()(T a) const {
    return static_cast<float>(a);
  }
};
// A double that rounds to anything much narrower as the integer would: of a large one, the last bits become
// one.
template <class I>
double integer_to_double(I a) {
  if constexpr (sizeof(I) < 8) {
    return static_cast<double>(a);
  } else {
    bool large = a > I(1) << 53;
    if constexpr (std::is_signed_v<I>) large |= a < -(I(1) << 53);
    const I sticky = static_cast<I>((a & ~I(0xfff)) | ((a & I(0xfff)) ? I(0x800) : I(0)));
    return static_cast<double>(large ? sticky : a);
  }
}

struct ToDouble {
  template <class T>
  double operator()(T a) const {
    if constexpr (std::is_integral_v<T>)
      return integer_to_double(a);
    else
      return static_cast<double>(static_cast<Computed<T>>(a));
  }
};

template <class H>
struct ToHalf {
  H operator()(float a) const { return H(a); }
  H operator()(double a) const { return H(round_to_odd(a)); }
  H operator()(f16 a) const { return H(static_cast<float>(a)); }
  H operator()(bf16 a) const { return H(static_cast<float>(a)); }
  template <class I>
  H operator()(I a) const {
    return H(round_to_odd(integer_to_double(a)));
  }
};
template <class H>
struct ToPair {  // the first source becomes the high half
  Pair<H> operator()(float high, float low) const { return {H(low), H(high)}; }
};

// ---- into any small format with any rounding; the variant holds all of it

struct Encoding {
  const Format* format;
  Rounding rounding;
  bool saturate, relu;
};
std::vector<Encoding>& encodings() {
  static std::vector<Encoding> list;
  return list;
}
int encoding_variant(const Encoding& encoding) {
  encodings().push_back(encoding);
  return static_cast<int>(encodings().size()) - 1;
}

uint32_t encode_as(double value, const Encoding& e) {
  if (e.relu && !(value > 0) && value == value) value = 0;
  return encode(value, *e.format, e.rounding, e.saturate);
}

template <class From>
void encode_one(Warp& warp, const Instruction& instruction) {
  const Encoding& e = encodings()[static_cast<size_t>(instruction.variant)];
  const Source<From> a(warp, instruction.operands[1]);
  const int shift = e.format == &kTf32 ? 13 : 0;  // tf32 sits in the high bits of a float
  write_lanes<uint32_t>(warp, instruction.operands[0],
                        [&](int l) { return encode_as(ToDouble()(a[l]), e) << shift; });
}

void encode_two(Warp& warp, const Instruction& instruction) {  // two floats, the first one high
  const Encoding& e = encodings()[static_cast<size_t>(instruction.variant)];
  const int bits = 1 + e.format->mantissa_bits + e.format->exponent_bits;
  const Source<float> a(warp, instruction.operands[1]), b(warp, instruction.operands[2]);
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    return encode_as(static_cast<double>(a[l]), e) << bits | encode_as(static_cast<double>(b[l]), e);
  });
}

void encode_pair(Warp& warp, const Instruction& instruction) {  // both halves of an f16x2
  const Encoding& e = encodings()[static_cast<size_t>(instruction.variant)];
  const Source<f16x2> a(warp, instruction.operands[1]);
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    const f16x2 pair = a[l];
    return encode_as(static_cast<double>(static_cast<float>(pair.high)), e) << 8 |
           encode_as(static_cast<double>(static_cast<float>(pair.low)), e);
  });
}

void decode_pair(Warp& warp,
                 const Instruction& instruction) {  // fp8x2 to f16x2, exact; variant bit 0: e5m2, bit 1: relu
  const Format& format = instruction.variant & 1 ? kE5m2 : kE4m3;
  const Source<uint32_t> a(warp, instruction.operands[1]);
  write_lanes<f16x2>(warp, instruction.operands[0], [&](int l) {
    const auto half = [&](uint32_t code) {
      const float value = decode(code & 255, format);
      return f16(instruction.variant & 2 && value <= 0 ? 0.0f : value);  // -0 as well
    };
    const uint32_t both = a[l];
    return f16x2{half(both), half(both >> 8)};
  });
}

// ---- cvt.pack: two integers clamped into one register, over the other half of c

template <class To>
void pack_clamped(Warp& warp, const Instruction& instruction) {
  constexpr int bits = 8 * sizeof(To);
  const Source<int32_t> a(warp, instruction.operands[1]), b(warp, instruction.operands[2]);
  using U = std::make_unsigned_t<To>;
  write_lanes<uint32_t>(warp, instruction.operands[0], [&](int l) {
    const uint32_t both = static_cast<uint32_t>(static_cast<U>(clamp<To>(int64_t(a[l])))) << bits |
                          static_cast<U>(clamp<To>(int64_t(b[l])));
    if constexpr (bits == 16)
      return both;
    else
      return both | Source<uint32_t>(warp, instruction.operands[3])[l] << 16;
  });
}

// ---- table

template <class F>
void each_integer(F f) {
  f(uint8_t(), ".u8"), f(int8_t(), ".s8"), f(uint16_t(), ".u16"), f(int16_t(), ".s16");
  f(uint32_t(), ".u32"), f(int32_t(), ".s32"), f(uint64_t(), ".u64"), f(int64_t(), ".s64");
}

template <class To>
void add_to_integer(Table& table, const char* to) {
  each_integer([&](auto from, const char* name) {
    using From = decltype(from);
    add_lanewise<Truncate<To>, To, From>(table, {"cvt", to, name});
    table.add({"cvt.sat", to, name}, kSignature<To, From>, clamp_lanes<To, From>);
  });
  const auto from_float = [&](auto from, const char* name, bool ftz) {
    using From = decltype(from);
    for (const auto& [rounding, mode] : kIntegralRoundings)
      for (const char* f : {"", ".ftz"})
        for (const char* sat : {"", ".sat"})
          if (ftz || !*f)
            table.add({"cvt", rounding, f, sat, to, name}, kSignature<To, From>, convert_to_integer<To, From>,
                      static_cast<int>(mode) | (*f ? kFlush : 0));
  };
  from_float(float(), ".f32", true);
  from_float(double(), ".f64", false);
  from_float(f16(), ".f16", false);
  from_float(bf16(), ".bf16", false);
}

const std::pair<const char*, Rounding> kDirectedRoundings[] = {
    {".rz", Rounding::zero}, {".rm", Rounding::down}, {".rp", Rounding::up}};

template <class H>
void add_to_half(Table& table, const char* type, const Format& format) {
  const auto from = [&](auto source, const char* name) {
    using From = decltype(source);
    add_lanewise<ToHalf<H>, H, From>(table, {"cvt.rn", type, name});
    add_lanewise<Sat<ToHalf<H>>, H, From>(table, {"cvt.rn.sat", type, name});
    if constexpr (!is_half<From>)
      add_lanewise<ReluOf<ToHalf<H>>, H, From>(table, {"cvt.rn.relu", type, name});
    if constexpr (std::is_same_v<From, float>)
      for (const char* relu : {"", ".relu"})
        for (const auto& [rounding, mode] :
             {std::pair(".rn", Rounding::nearest), std::pair(".rz", Rounding::zero)})
          table.add({"cvt", rounding, relu, ".satfinite", type, name}, kSignature<H, From>, encode_one<From>,
                    encoding_variant({&format, mode, true, *relu != 0}));
    for (const auto& [rounding, mode] : kDirectedRoundings) {
      const char* signature = kSignature<H, From>;
      table.add({"cvt", rounding, type, name}, signature, encode_one<From>,
                encoding_variant({&format, mode, false, false}));
      table.add({"cvt", rounding, ".relu", type, name}, signature, encode_one<From>,
                encoding_variant({&format, mode, false, true}));
    }
  };
  from(float(), ".f32");
  from(double(), ".f64");
  from(f16(), ".f16");
  from(bf16(), ".bf16");
  each_integer([&](auto source, const char* name) {
    using From = decltype(source);
    add_lanewise<ToHalf<H>, H, From>(table, {"cvt.rn", type, name});
    for (const auto& [rounding, mode] : kDirectedRoundings)
      table.add({"cvt", rounding, type, name}, sizeof(From) == 8 ? "Wd" : "Ww", encode_one<From>,
                encoding_variant({&format, mode, false, false}));
  });
  add_lanewise<ToFloat, float, H>(table, {"cvt.f32", type});
  add_lanewise<Ftz<ToFloat>, float, H>(table, {"cvt.ftz.f32", type});
  add_lanewise<Sat<ToFloat>, float, H>(table, {"cvt.sat.f32", type});
  add_lanewise<ToDouble, double, H>(table, {"cvt.f64", type});

  // two floats into a pair
  add_lanewise<ToPair<H>, Pair<H>, float, float>(table, {"cvt.rn", type, "x2.f32"});
  for (const char* rounding : {".rn", ".rz"})
    for (const char* relu : {"", ".relu"})
      for (const char* satfinite : {"", ".satfinite"})
        if (*relu || *satfinite || rounding[2] == 'z')
          table.add({"cvt", rounding, relu, satfinite, type, "x2.f32"}, "Wff", encode_two,
                    encoding_variant({&format, rounding[2] == 'z' ? Rounding::zero : Rounding::nearest,
                                      *satfinite != 0, *relu != 0}));
}

void add_tiny(Table& table, const char* type, const Format& format, int which) {
  for (const char* relu : {"", ".relu"}) {
    const Encoding encoding{&format, Rounding::nearest, true, *relu != 0};
    table.add({"cvt.rn.satfinite", relu, type, ".f32"}, "Wff", encode_two, encoding_variant(encoding));
    table.add({"cvt.rn.satfinite", relu, type, ".f16x2"}, "Ww", encode_pair, encoding_variant(encoding));
    table.add({"cvt.rn", relu, ".f16x2", type}, "Ww", decode_pair, which | (*relu ? 2 : 0));
  }
}

template <Rounding Mode>
void add_integral(Table& table, const char* rounding) {
  add_lanewise<Integral<Mode>, float, float>(table, {"cvt", rounding, ".f32.f32"});
  add_lanewise<Ftz<Integral<Mode>>, float, float>(table, {"cvt", rounding, ".ftz.f32.f32"});
  add_lanewise<Sat<Integral<Mode>>, float, float>(table, {"cvt", rounding, ".sat.f32.f32"});
  add_lanewise<Integral<Mode>, double, double>(table, {"cvt", rounding, ".f64.f64"});
  add_lanewise<Integral<Mode>, f16, f16>(table, {"cvt", rounding, ".f16.f16"});
  add_lanewise<Integral<Mode>, bf16, bf16>(table, {"cvt", rounding, ".bf16.bf16"});
}

void add_float_to_float(Table& table) {
  add_integral<Rounding::nearest>(table, ".rni");
  add_integral<Rounding::zero>(table, ".rzi");
  add_integral<Rounding::down>(table, ".rmi");
  add_integral<Rounding::up>(table, ".rpi");
  add_lanewise<Same, float, float>(table, "cvt.f32.f32");
  add_lanewise<Ftz<Same>, float, float>(table, "cvt.ftz.f32.f32");
  add_lanewise<Sat<Same>, float, float>(table, "cvt.sat.f32.f32");
  add_lanewise<Sat<Ftz<Same>>, float, float>(table, "cvt.ftz.sat.f32.f32");
  add_lanewise<Same, double, double>(table, "cvt.f64.f64");
  add_lanewise<Sat<Same>, double, double>(table, "cvt.sat.f64.f64");
  add_lanewise<ToDouble, double, float>(table, "cvt.f64.f32");
  add_lanewise<ToFloat, float, double>(table, "cvt.rn.f32.f64");
  add_lanewise<Ftz<Narrow>, float, double>(table, "cvt.rn.ftz.f32.f64");
  for (const char* rounding : {".rna", ".rn", ".rz"})
    for (const char* relu : {"", ".relu"})
      for (const char* satfinite : {"", ".satfinite"}) {
        const Rounding mode = rounding[2] == 'z'   ? Rounding::zero
                              : rounding[3] == 'a' ? Rounding::away
                                                   : Rounding::nearest;
        table.add({"cvt", rounding, relu, satfinite, ".tf32.f32"}, "Wf", encode_one<float>,
                  encoding_variant({&kTf32, mode, *satfinite != 0, *relu != 0}));
      }
}

// Generic addresses are windows, so a conversion is an addition.
template <uint64_t Window, bool ToGeneric>
struct MoveWindow {
  uint64_t operator()(uint64_t a) const { return ToGeneric ? a + Window : a - Window; }
  uint32_t operator()(uint32_t a) const { return a; }
};

// That of local memory says whose it is. An address that is another thread's stays as it is.
template <bool ToGeneric>
void convert_local(Warp& warp, const Instruction& instruction) {
  const Source<uint64_t> address(warp, instruction.operands[1]);
  write_lanes<uint64_t>(warp, instruction.operands[0], [&](int l) {
    const uint64_t own = kLocalWindow | uint64_t{local_owner(warp, l)} << kOwnerShift;
    return ToGeneric ? address[l] + own : address[l] - own;
  });
}

template <uint64_t Window>
void add_cvta(Table& table, const char* space) {
  for (const char* type : {".u64", ".s64", ".b64"}) {
    add_lanewise<MoveWindow<Window, true>, uint64_t, uint64_t>(table, {"cvta", space, type});
    add_lanewise<MoveWindow<Window, false>, uint64_t, uint64_t>(table, {"cvta.to", space, type});
  }
}

template <uint64_t Window>
struct InWindow {
  bool operator()(uint64_t a) const {  // parameters of kernels count as global
    return Window ? a >> 32 == Window >> 32 : a >= kFirstGlobal || a >> 32 == kParamWindow >> 32;
  }
};

// Constant variables lie among the arrays in global memory, and are none of them.
template <bool Constant>
void in_array(Warp& warp, const Instruction& instruction) {
  const Source<uint64_t> address(warp, instruction.operands[1]);
  write_lanes<bool>(warp, instruction.operands[0], [&](int l) {
    const Allocation* found = find_allocation(*warp.machine->launch, address[l]);
    const bool constant = found && found->is_constant;
    return Constant ? constant : !constant && InWindow<0>()(address[l]);
  });
}

}  // namespace

void add_convert_operations(Table& table) {
  encodings().clear();
  each_integer([&](auto to, const char* name) {
    using To = decltype(to);
    add_to_integer<To>(table, name);
    add_lanewise<Truncate<float>, float, To>(table, {"cvt.rn.f32", name});
    add_lanewise<Truncate<double>, double, To>(table, {"cvt.rn.f64", name});
  });
  add_to_half<f16>(table, ".f16", kHalf);
  add_to_half<bf16>(table, ".bf16", kBfloat);
  // rounds to nearest where no rounding is named, as ptxas has it
  add_lanewise<ToHalf<bf16>, bf16, f16>(table, "cvt.bf16.f16");
  add_lanewise<ToHalf<f16>, f16, bf16>(table, "cvt.f16.bf16");
  add_float_to_float(table);
  add_tiny(table, ".e4m3x2", kE4m3, 0);
  add_tiny(table, ".e5m2x2", kE5m2, 1);
  table.add("cvt.pack.sat.u16.s32", "Www", pack_clamped<uint16_t>);
  table.add("cvt.pack.sat.s16.s32", "Www", pack_clamped<int16_t>);
  table.add("cvt.pack.sat.u8.s32.b32", "Wwww", pack_clamped<uint8_t>);
  table.add("cvt.pack.sat.s8.s32.b32", "Wwww", pack_clamped<int8_t>);

  add_cvta<0>(table, ".global");
  add_cvta<0>(table, ".const");
  add_cvta<kSharedWindow>(table, ".shared");
  add_cvta<kSharedWindow>(table, ".shared::cluster");
  for (const char* type : {".u64", ".s64", ".b64"}) {
    table.add({"cvta.local", type}, "Dd", convert_local<true>);
    table.add({"cvta.to.local", type}, "Dd", convert_local<false>);
  }
  add_cvta<kParamWindow>(table, ".param");
  table.add("isspacep.global", "Pd", in_array<false>);
  table.add("isspacep.const", "Pd", in_array<true>);
  add_lanewise<InWindow<kSharedWindow>, bool, uint64_t>(table, "isspacep.shared");
  add_lanewise<InWindow<kSharedWindow>, bool, uint64_t>(table, "isspacep.shared::cluster");
  add_lanewise<InWindow<kLocalWindow>, bool, uint64_t>(table, "isspacep.local");
  add_lanewise<InWindow<kParamWindow>, bool, uint64_t>(table, "isspacep.param");
}

}  // namespace workbench::emulator::WORKBENCH_ISA
