// a k-tile of numbers of 8 or 4 bits with the scales of its blocks, and its product by tcgen05: what the stages for
// sm_100a share. the k-tile itself is that of gemm, whose columns are bytes here.
#pragma once
#define TRANS_B 1
#include "../gemm/tcgen05/product.cuh"
#include "ptx/tma_ranks.cuh"

constexpr int ELEMENTS = BLOCK_K * PACKING;                        // of a row of a k-tile
constexpr int PRODUCT_ELEMENTS = PRODUCT_K * PACKING;              // that a product reads of a row
constexpr int SCALES = PRODUCT_ELEMENTS / BLOCK;                   // blocks of them
constexpr int SCALE_ROWS = 128, SCALE_BLOCKS = 4, SCALE_TILE = SCALE_ROWS * SCALE_BLOCKS;
constexpr int SCALE_TILES = ELEMENTS / BLOCK / SCALE_BLOCKS;       // in a k-tile, one beside the other
constexpr int TILE_COLUMNS = SCALE_ROWS / 32;                      // of tensor memory, for a tile of scales
constexpr int A_COLUMNS = TILE_COLUMNS * BLOCK_M / SCALE_ROWS, B_COLUMNS = TILE_COLUMNS * BLOCK_N / SCALE_ROWS;
constexpr int SCALE_COLUMNS = SCALE_TILES * (A_COLUMNS + B_COLUMNS);

static_assert(BLOCK_N % SCALE_ROWS == 0, "BLOCK_N has to be 128 or 256: scales come in tiles of 128 rows");

// tcgen05.cp.32x128b.warpx4: a tile of scales, of 128 rows and 4 blocks, to 4 columns of all lanes. a tile has 16 bytes
// for each of 32 rows: those of the row and of the ones 32, 64 and 96 further down. later products of the thread find it
__device__ __forceinline__ void tensor_copy_scales(u32 to, const void* tile) {
  constexpr u64 VERSION = 1ull << 46, EIGHT_ROWS = 8 * 16;
  const u64 from = (shared_address(tile) & 0x3ffff) >> 4 | EIGHT_ROWS >> 4 << 32 | VERSION;
  asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(from) : "memory");
}

// the instruction descriptor of a product of the tile. `first` is the byte of a column of scales that holds those of the
// first of its blocks
__device__ __forceinline__ constexpr u32 tensor_form_scaled(int first) {
  constexpr u32 UNSCALED = tensor_form<__half, BLOCK_M, BLOCK_N, false>() ^ 1 << 4;  // sums are fp32 in any case
  constexpr u32 TYPE = PACKING - 1, POWERS_OF_TWO = FINE ? 0 : 1 << 23;
  return UNSCALED | TYPE << 7 | TYPE << 10 | POWERS_OF_TWO | first << 4 | first << 29;
}

// tcgen05.mma.block_scale: as tensor_multiply. the columns of scales are those of a tile for every 128 rows
__device__ __forceinline__ void tensor_multiply_scaled(u32 d, u64 a, u64 b, u32 form, u32 a_scales, u32 b_scales,
                                                       bool add) {
#define MULTIPLY(KIND)                                                                    \
  asm volatile(                                                                           \
      "{\n"                                                                               \
      ".reg .pred add;\n"                                                                 \
      "setp.ne.b32 add, %6, 0;\n"                                                         \
      "tcgen05.mma.cta_group::1.kind::" KIND " [%0], %1, %2, %3, [%4], [%5], add;\n"      \
      "}" ::"r"(d),                                                                       \
      "l"(a), "l"(b), "r"(form), "r"(a_scales), "r"(b_scales), "r"(static_cast<u32>(add)) \
      : "memory")
  if constexpr (SCALES == 1)
    MULTIPLY("mxf8f6f4.block_scale.scale_vec::1X");
  else if constexpr (SCALES == 2)
    MULTIPLY("mxf4.block_scale.scale_vec::2X");
  else
    MULTIPLY("mxf4nvf4.block_scale.scale_vec::4X");
#undef MULTIPLY
}

struct ScaledKTile {
  KTiles<BLOCK_M, BLOCK_N> numbers;
  alignas(128) unsigned char a_scales[BLOCK_M / SCALE_ROWS][SCALE_TILES][SCALE_TILE];
  alignas(128) unsigned char b_scales[BLOCK_N / SCALE_ROWS][SCALE_TILES][SCALE_TILE];
  static constexpr int BYTES = sizeof(numbers) + sizeof(a_scales) + sizeof(b_scales);

  // by one thread: asks for k-tile i of the rows from m and from n on. `full` expects BYTES. beyond the tiles of scales
  // zeros come, which are finite scales
  __device__ __forceinline__ void load(const TensorMap& A, const TensorMap& B, const TensorMap& A_scales,
                                       const TensorMap& B_scales, Barrier& full, int m, int n, int i) {
    numbers.load(A, B, full, m, n, i * ELEMENTS);
    tma_load(a_scales, A_scales, full, m / SCALE_ROWS, i * SCALE_TILES * 2, 0);  // a tile is two rows of 256 bytes
    tma_load(b_scales, B_scales, full, n / SCALE_ROWS, i * SCALE_TILES * 2, 0);
  }

  // by one thread: copies the scales to tensor memory, SCALE_COLUMNS from `scales` on, and starts products of the
  // numbers, whose rows have `left` elements to the end of K, to be put into `sums`, or added
  __device__ __forceinline__ void multiply(u32 sums, u32 scales, int left, bool add) const {
    const u32 of_b = scales + SCALE_TILES * A_COLUMNS;
#pragma unroll
    for (int s = 0; s < SCALE_TILES; ++s) {
      tensor_copy_scales(scales + s * A_COLUMNS, a_scales[0][s]);
#pragma unroll
      for (int r = 0; r < BLOCK_N / SCALE_ROWS; ++r)
        tensor_copy_scales(of_b + s * B_COLUMNS + r * TILE_COLUMNS, b_scales[r][s]);
    }
    const u64 rows = tensor_operand(numbers.a, 0, ATOM_BYTES), columns = tensor_operand(numbers.b, 0, ATOM_BYTES);
#pragma unroll
    for (int i = 0; i < BLOCK_K / PRODUCT_K; ++i) {
      if (i * PRODUCT_ELEMENTS >= left) break;
      const int tile = i * SCALES / SCALE_BLOCKS;
      tensor_multiply_scaled(sums, rows + (i * PRODUCT_K >> 4), columns + (i * PRODUCT_K >> 4),
                             tensor_form_scaled(i * SCALES % SCALE_BLOCKS), scales + tile * A_COLUMNS,
                             of_b + tile * B_COLUMNS, i > 0 || add);
    }
  }
};
