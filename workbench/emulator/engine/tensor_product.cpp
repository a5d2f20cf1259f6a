#include "tensor_product.hpp"

#include <cmath>

#include "matrix.hpp"

namespace workbench::emulator::WORKBENCH_ISA {
float small_float(uint32_t code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
  const auto exponent = static_cast<int>(code >> mantissa_bits & ((1u << exponent_bits) - 1));
  const float value = exponent ? std::ldexp(static_cast<float>(mantissa + (1u << mantissa_bits)),
                                            exponent - bias - mantissa_bits)
                               : std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  return code >> (exponent_bits + mantissa_bits) & 1 ? -value : value;
}

namespace {

template <int Exponent, int Mantissa>
const float* small_floats() {
  static const auto values = [] {
    std::array<float, 64> all{};
    for (uint32_t k = 0; k < all.size(); ++k)
      all[k] = small_float(k & ((2u << (Exponent + Mantissa)) - 1), Exponent, Mantissa);
    return all;
  }();
  return values.data();
}

uint32_t bits_at(const uint8_t* bytes, uint32_t bit, uint32_t count) {
  uint32_t word = 0;
  for (uint32_t k = 0; k < 2 && bit / 8 + k < 16; ++k) word |= uint32_t{bytes[bit / 8 + k]} << 8 * k;
  return word >> bit % 8 & ((1u << count) - 1);
}

}  // namespace

uint32_t decode_tensor_chunk(TensorElement element, const uint8_t* bytes, float* values) {
  switch (element) {
    case TensorElement::f16:
    case TensorElement::bf16: {
      uint16_t bits[8];
      std::memcpy(bits, bytes, sizeof bits);
      for (int i = 0; i < 8; ++i)
        values[i] = element == TensorElement::f16 ? half_to_float(bits[i]) : bfloat_to_float(bits[i]);
      return 8;
    }
    case TensorElement::tf32: {
      uint32_t bits[4];
      std::memcpy(bits, bytes, sizeof bits);
      for (int i = 0; i < 4; ++i) values[i] = Tf32Element::unpack(bits[i], 0);
      return 4;
    }
    case TensorElement::packed_e2m1:
      for (int i = 0; i < 32; ++i) values[i] = small_floats<2, 1>()[bytes[i / 2] >> i % 2 * 4 & 15];
      return 32;
    case TensorElement::e2m1:  // 16 elements in 8 bytes, and 8 bytes of padding
      for (int i = 0; i < 16; ++i) values[i] = small_floats<2, 1>()[bytes[i / 2] >> i % 2 * 4 & 15];
      return 16;
    case TensorElement::e2m3:  // 16 elements in 12 bytes, and 4 bytes of padding
      for (uint32_t i = 0; i < 16; ++i) values[i] = small_floats<2, 3>()[bits_at(bytes, 6 * i, 6)];
      return 16;
    case TensorElement::e3m2:
      for (uint32_t i = 0; i < 16; ++i) values[i] = small_floats<3, 2>()[bits_at(bytes, 6 * i, 6)];
      return 16;
    case TensorElement::e4m3:
      for (int i = 0; i < 16; ++i) values[i] = decoded<kE4m3>()[bytes[i]];
      return 16;
    case TensorElement::e5m2:
      for (int i = 0; i < 16; ++i) values[i] = decoded<kE5m2>()[bytes[i]];
      return 16;
    case TensorElement::s8:
      for (int i = 0; i < 16; ++i) values[i] = static_cast<int8_t>(bytes[i]);
      return 16;
    case TensorElement::u8:
      for (int i = 0; i < 16; ++i) values[i] = bytes[i];
      return 16;
  }
  return 0;
}

float scale_value(uint32_t byte, bool fine) {
  if (fine) return decoded<kE4m3>()[byte & 127];
  return byte == 255 ? std::numeric_limits<float>::quiet_NaN()
                     : std::ldexp(1.0f, static_cast<int>(byte) - 127);
}

namespace {

typedef float Vector __attribute__((vector_size(32)));
constexpr uint32_t kVector = 8;

Vector read_vector(const float* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

uint32_t add_integer(uint32_t before, float sum, bool saturate) {
  const int64_t exact = int64_t{static_cast<int32_t>(before)} + static_cast<int64_t>(sum);
  if (saturate)
    return static_cast<uint32_t>(static_cast<int32_t>(std::min<int64_t>(
        std::max<int64_t>(exact, std::numeric_limits<int32_t>::min()), std::numeric_limits<int32_t>::max())));
  return static_cast<uint32_t>(exact);
}

}  // namespace

// Eight columns of four lanes at a time. Products are summed in the order of K, those of a block of scale
// factors before they are scaled; then comes what D held.
void TensorTiles::compute_lanes(uint32_t lane, uint32_t first, uint32_t columns, uint32_t* const* d) {
  const bool scaled = form.operation.scaled();
  const auto blocks = static_cast<uint32_t>(scaled ? form.scale_blocks() : 1);
  const uint32_t depth = form.depth / blocks;
  for (uint32_t n = 0; n < columns; n += kVector) {
    Vector sum[4] = {};
    for (uint32_t block = 0; block < blocks; ++block) {
      Vector part[4] = {};
      for (uint32_t k = block * depth; k < (block + 1) * depth; ++k) {
        if (form.operation.sparse) {
          for (uint32_t i = 0; i < 4; ++i)
            part[i] += read_vector(&b[places[lane + i][k]][first + n]) * a[lane + i][k];
          continue;
        }
        const Vector row = read_vector(&b[k][first + n]);
        for (uint32_t i = 0; i < 4; ++i) part[i] += row * a[lane + i][k];
      }
      for (uint32_t i = 0; i < 4; ++i)
        sum[i] += scaled ? part[i] * (read_vector(&scale_b[lane / 32][block][n]) * scale_a[lane + i][block])
                         : part[i];
    }
    const uint32_t count = std::min(kVector, columns - n);
    for (uint32_t i = 0; i < 4; ++i) {
      if (!d[i]) continue;
      uint32_t* cells = d[i] + n;
      for (uint32_t c = 0; c < count; ++c) {
        const float value = sum[i][c] * sign;
        if (form.result == ResultType::s32) {
          cells[c] = add_integer(accumulate ? cells[c] : 0, value, saturate);
        } else if (form.result == ResultType::f32) {
          cells[c] = bit_cast<uint32_t>((accumulate ? bit_cast<float>(cells[c]) * scale : 0.0f) + value);
        } else {
          const float before = accumulate ? half_to_float(cells[c] & 0xffff) * scale : 0.0f;
          cells[c] = float_to_half(before + value);
        }
      }
    }
  }
}

}  // namespace workbench::emulator::WORKBENCH_ISA
