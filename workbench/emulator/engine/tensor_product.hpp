// The values of a product of tcgen05: elements, where D lies in tensor memory, sums.
#pragma once

#include "tensor_memory.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

enum class TensorKind { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };
enum class TensorElement { f16, bf16, tf32, s8, u8, e4m3, e5m2, e2m3, e3m2, e2m1, packed_e2m1 };
enum class ResultType { f16, f32, s32 };

struct TensorOperation {  // what the opcode says
  TensorKind kind = TensorKind::f16;
  bool pair = false, sparse = false, a_in_tensor = false, shift_a = false, weights = false;
  int factors = 0;  // of a row, in one product: 1, 2 or 4; 0: no scales
  bool scaled() const { return kind >= TensorKind::mxf8f6f4; }
};

// Bits of an element in shared memory. Elements of 6 and 4 bits lie, 16 of them, in 16 bytes.
constexpr uint32_t bits_of(TensorElement element) {
  switch (element) {
    case TensorElement::tf32:
      return 32;
    case TensorElement::f16:
    case TensorElement::bf16:
      return 16;
    case TensorElement::packed_e2m1:
      return 4;
    default:
      return 8;
  }
}
constexpr uint32_t container_bytes(TensorElement element) { return bits_of(element) / 8; }
constexpr bool can_transpose(TensorElement element) { return element <= TensorElement::e5m2; }
// Elements of K in one product, of a sparse A those that are stored.
inline uint32_t depth_of(const TensorOperation& operation) {
  switch (operation.kind) {
    case TensorKind::f16:
      return 16;
    case TensorKind::tf32:
      return 8;
    case TensorKind::mxf4:
    case TensorKind::mxf4nvf4:
      return 64;
    default:
      return 32;
  }
}

struct TensorForm {
  TensorOperation operation;
  TensorElement a, b;
  ResultType result;
  uint32_t rows, columns, depth;
  bool transpose_a, transpose_b, negate_a, negate_b;
  bool fine_scales;  // e4m3 without a sign, else e8m0

  uint32_t depth_of_b() const { return operation.sparse ? 2 * depth : depth; }
  // Scale factors of a row.
  int scale_blocks() const { return operation.factors * (depth == 96 ? 3 : 2) / 2; }
};

// The values in 16 bytes; their number.
uint32_t decode_tensor_chunk(TensorElement element, const uint8_t* bytes, float* values);
float scale_value(uint32_t byte, bool fine);
// A float of few bits, all of whose codes are numbers.
float small_float(uint32_t code, int exponent_bits, int mantissa_bits);

// Where the rows and columns of D lie in the tensor memory of a block: in 128 lanes; rows
// of 16 lanes of each 32; or columns in two or four parts, one below the other.
class TensorPlacement {
 public:
  TensorPlacement() = default;
  TensorPlacement(const TensorForm& form, uint32_t blocks) {
    rows_ = form.rows / blocks;
    columns_ = form.columns;
    if (rows_ == 64 && (form.operation.weights || (blocks == 2 && !form.operation.sparse)))
      parts_ = 2;
    else if (rows_ == 32)
      parts_ = 4;
    else if (rows_ == 64)
      gaps_ = true;
    columns_ /= parts_;
  }
  // The row of the block in a lane; -1: none.
  int row(uint32_t lane) const {
    if (gaps_) return lane % 32 < 16 ? static_cast<int>(lane / 32 * 16 + lane % 16) : -1;
    return static_cast<int>(lane % rows_);
  }
  uint32_t first(uint32_t lane) const { return gaps_ ? 0 : lane / rows_ * columns_; }  // column of D
  uint32_t columns() const { return columns_; }                                        // in a lane
  uint32_t rows() const { return rows_; }
  bool has_gaps() const { return gaps_; }
  uint8_t bands(uint32_t base) const {
    return static_cast<uint8_t>(!gaps_ ? 0xff : base % 32 < 16 ? 0x55 : 0xaa);
  }

 private:
  uint32_t rows_ = 128, columns_ = 0, parts_ = 1;
  bool gaps_ = false;
};

constexpr uint32_t kMostTensorColumns = 256, kMostTensorDepth = 128, kMostStoredDepth = 96, kMostFactors = 6;

struct TensorTiles {
  TensorForm form;
  float sign, scale;
  bool saturate, accumulate;
  alignas(64) float rows[kTensorLanes][kMostStoredDepth];  // of A in shared memory
  alignas(64) float a[kTensorLanes][kMostStoredDepth];     // by lane
  alignas(64) float b[kMostTensorDepth][kMostTensorColumns + 16];
  uint8_t places[kTensorLanes][kMostStoredDepth];  // of a sparse A: which k
  float scale_a[kTensorLanes][kMostFactors];
  alignas(64) float scale_b[kTensorLanes / 32][kMostFactors][kMostTensorColumns + 16];
  uint32_t bad_metadata;

  // Where the stored elements of a lane's row belong; false for metadata that means nothing.
  template <class F>
  bool find_places(uint32_t lane, F word) {
    const uint32_t bits = bits_of(form.a), whole = form.depth_of_b();
    // bits of metadata about an element, and elements about which four bits are
    const uint32_t chunk = bits == 32 ? 2 : bits == 4 ? 8 : 4;
    bool fine = true;
    for (uint32_t k = 0, stored = 0; k < whole; k += chunk) {
      uint32_t nibble;
      if (bits >= 16) {  // 8 lanes hold the first half of K for 16 rows, the next 8 the second
        const uint32_t half = whole / 2;
        const uint32_t from = lane / 16 * 16 + lane % 8 + (k >= half ? 8 : 0);
        nibble = word(from, 0) >> (k % half * 16 / half + lane / 8 % 2 * 16) & 15;
      } else {
        const uint32_t bit = k * 4 / chunk;
        nibble = word(lane, bit / 32) >> bit % 32 & 15;
      }
      const uint32_t first = nibble & 3, second = nibble >> 2;
      const bool sound = bits == 32 ? nibble == 0b0100 || nibble == 0b1110 : first != second;
      if (!sound) fine = false, bad_metadata = nibble;
      if (bits == 32) {
        places[lane][stored++] = static_cast<uint8_t>(k + first / 2);
      } else {
        const uint32_t each = chunk / 4;
        for (const uint32_t place : {first, second})
          for (uint32_t i = 0; i < each; ++i)
            places[lane][stored++] = static_cast<uint8_t>(k + place * each + i);
      }
    }
    return fine;
  }

  // D of every lane; `cells` says where its first column lies, or null where it stays as it is.
  template <class F>
  void compute(const TensorPlacement& placement, F cells) {
    for (uint32_t lane = 0; lane < kTensorLanes; lane += 4) {
      uint32_t* d[4] = {};
      bool any = false;
      for (uint32_t i = 0; i < 4; ++i) {
        if (placement.row(lane + i) < 0) continue;
        d[i] = cells(lane + i);
        any |= d[i] != nullptr;
      }
      if (any) compute_lanes(lane, placement.first(lane), placement.columns(), d);
    }
  }

 private:
  void compute_lanes(uint32_t lane, uint32_t first, uint32_t columns, uint32_t* const* d);
};

}  // namespace workbench::emulator::WORKBENCH_ISA
