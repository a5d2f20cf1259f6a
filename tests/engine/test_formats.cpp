// Conversions between floating-point formats, against each other and against their definition.
#include <cfloat>
#include <cmath>
#include <random>

#include "check.hpp"
#include "float_functors.hpp"

using namespace workbench::emulator::baseline_isa;

namespace {

bool same(float a, float b) { return bit_cast<uint32_t>(a) == bit_cast<uint32_t>(b) || (a != a && b != b); }

// Floats of all exponents, with every kind of tail.
template <class F>
void many_floats(F f) {
  std::mt19937_64 random(1);
  for (int k = 0; k < 400000; ++k) {
    uint32_t bits = static_cast<uint32_t>(random());
    if (k % 4 == 1) bits &= 0xffffe000u;
    if (k % 4 == 2) bits = (bits & 0xffffe000u) | 0x1000u;
    if (k % 4 == 3) bits = (bits & 0x8007ffffu) | static_cast<uint32_t>(100 + k % 50) << 23;
    f(bit_cast<float>(bits));
  }
  for (const float x : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 65504.0f, 65519.996f, 65520.0f, 65536.0f,
                        FLT_MAX, FLT_MIN, 1e-45f})
    f(x);
}

}  // namespace

TEST(every_half_decodes) {
  for (uint32_t h = 0; h < 65536; ++h) {
    CHECK(same(half_to_float(h), decode(h, kHalf)));
    CHECK(same(bfloat_to_float(h), decode(h, kBfloat)));
  }
}

TEST(every_half_survives_a_round_trip) {
  for (uint32_t h = 0; h < 65536; ++h) {
    if ((h & 0x7fff) <= 0x7c00) CHECK(float_to_half(half_to_float(h)) == h);
    if ((h & 0x7fff) <= 0x7f80) CHECK(float_to_bfloat(bfloat_to_float(h)) == h);
  }
}

TEST(rounding_to_half_is_to_nearest_even) {
  many_floats([](float x) {
    CHECK(float_to_half(x) == encode(static_cast<double>(x), kHalf, Rounding::nearest, false));
    CHECK(float_to_bfloat(x) == encode(static_cast<double>(x), kBfloat, Rounding::nearest, false));
  });
  for (uint32_t h = 0; h < 0x7bff;
       ++h) {  // between neighbours: the midpoint goes to the even one, its neighbours do not
    const float low = half_to_float(h), high = half_to_float(h + 1), middle = (low + high) / 2;
    CHECK(float_to_half(middle) == (h & 1 ? h + 1 : h));
    CHECK(float_to_half(std::nextafter(middle, INFINITY)) == h + 1);
    CHECK(float_to_half(std::nextafter(middle, 0.0f)) == h);
  }
}

TEST(directed_roundings_bracket_the_value) {
  many_floats([](float x) {
    if (!(std::fabs(x) < 60000.0f)) return;
    const float down = decode(encode(static_cast<double>(x), kHalf, Rounding::down, false), kHalf);
    const float up = decode(encode(static_cast<double>(x), kHalf, Rounding::up, false), kHalf);
    const float zero = decode(encode(static_cast<double>(x), kHalf, Rounding::zero, false), kHalf);
    CHECK(down <= x && x <= up && zero == (x < 0 ? up : down));
    CHECK(down == up ? down == x : float_to_half(down) != float_to_half(up));
  });
}

TEST(eight_bit_floats) {
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7f) < 0x7f)
      CHECK(encode(static_cast<double>(decode(code, kE4m3)), kE4m3, Rounding::nearest, true) == code);
    if ((code & 0x7f) < 0x7c)
      CHECK(encode(static_cast<double>(decode(code, kE5m2)), kE5m2, Rounding::nearest, true) == code);
  }
  CHECK(decode(0x7e, kE4m3) == 448.0f && decode(0x7b, kE5m2) == 57344.0f && std::isinf(decode(0x7c, kE5m2)));
  CHECK(encode(1e9, kE4m3, Rounding::nearest, true) == 0x7e &&
        encode(-1e9, kE5m2, Rounding::nearest, true) == 0xfb);
}

TEST(round_to_odd_loses_nothing_for_narrower_formats) {
  std::mt19937_64 random(2);
  for (int k = 0; k < 400000; ++k) {
    uint64_t bits = random();
    bits = (bits & 0x800fffffffffffffu) | (1023 - 160 + random() % 320) << 52;
    if (k % 3 == 0) bits &= ~0xffffffffffull;            // a midpoint of something, exactly
    if (k % 3 == 1) bits = (bits & ~0xffffffffull) | 1;  // or just off it
    const double x = bit_cast<double>(bits);
    CHECK(f16(round_to_odd(x)).bits == encode(x, kHalf, Rounding::nearest, false));
    CHECK(bf16(round_to_odd(x)).bits == encode(x, kBfloat, Rounding::nearest, false));
  }
}

TEST(fma_rounds_once) {
  std::mt19937_64 random(3);
  for (int k = 0; k < 1000000; ++k) {
    const auto draw = [&] {
      uint32_t bits = static_cast<uint32_t>(random());
      if (k & 1) bits = (bits & 0x807fffffu) | static_cast<uint32_t>(110 + random() % 34) << 23;
      if (k & 2) bits &= 0xfffff000u;
      return bit_cast<float>(bits);
    };
    const float a = draw(), b = draw(), c = draw();
    CHECK(same(fused(a, b, c), std::fma(a, b, c)));
  }
}

TEST(fma_of_bfloats_rounds_once) {
  // the product is exactly between two bfloats; c, far below the last bit of a double, decides
  const bf16 a(1.0f + 0x1p-7f), b(1.0f + 0x1p-1f + 0x1p-7f), tiny(0x1p-80f), negative(-0x1p-80f);
  const double product =
      static_cast<double>(static_cast<float>(a)) * static_cast<double>(static_cast<float>(b));
  const float up = decode(encode(product, kBfloat, Rounding::up, false), kBfloat);
  const float down = decode(encode(product, kBfloat, Rounding::down, false), kBfloat);
  const double middle = (static_cast<double>(up) + static_cast<double>(down)) / 2;
  if (product == middle) {
    CHECK(static_cast<float>(fused(a, b, tiny)) == up);
    CHECK(static_cast<float>(fused(a, b, negative)) == down);
  }
  // the same with numbers chosen to be a midpoint: 129 * 129 = 16641 = 16640 + 1, halves apart by 128
  const bf16 one(1.0f), middle_low(1.0f);
  CHECK(static_cast<float>(fused(one, middle_low, bf16(0x1p-8f))) == 1.0f);  // a tie goes to even
  CHECK(static_cast<float>(fused(one, bf16(1.0f + 0x1p-7f), bf16(0x1p-8f))) == 1.0f + 0x1p-6f);
  std::mt19937_64 random(4);
  for (int k = 0; k < 400000; ++k) {  // where a double holds everything there is nothing to get wrong
    const auto draw = [&] {
      return bf16(
          std::ldexp(1.0f + static_cast<float>(random() % 128) / 128, static_cast<int>(random() % 12) - 6));
    };
    const bf16 x = draw(), y = draw(), z = draw();
    const double exact =
        static_cast<double>(static_cast<float>(x)) * static_cast<double>(static_cast<float>(y)) +
        static_cast<double>(static_cast<float>(z));
    CHECK(fused(x, y, z).bits == encode(exact, kBfloat, Rounding::nearest, false));
    const f16 p(static_cast<float>(x)), q(static_cast<float>(y)), r(static_cast<float>(z));
    CHECK(fused(p, q, r).bits == encode(exact, kHalf, Rounding::nearest, false));
  }
}

TEST(extremes_of_nan_and_zero) {
  const FloatExtreme<false, false> minimum;
  const FloatExtreme<true, false> maximum;
  const FloatExtreme<false, true> minimum_nan;
  CHECK(minimum(NAN, 1.0f) == 1.0f && minimum(1.0f, NAN) == 1.0f && maximum(NAN, -1.0f) == -1.0f);
  CHECK(bit_cast<uint32_t>(minimum(NAN, NAN)) == 0x7fffffff &&
        bit_cast<uint32_t>(minimum_nan(1.0f, NAN)) == 0x7fffffff);
  CHECK(std::signbit(minimum(0.0f, -0.0f)) && std::signbit(minimum(-0.0f, 0.0f)));
  CHECK(!std::signbit(maximum(0.0f, -0.0f)) && !std::signbit(maximum(-0.0f, 0.0f)));
}
