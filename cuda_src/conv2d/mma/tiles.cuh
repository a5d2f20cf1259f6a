// what the stages of this track have in common: k-tiles of windows and of filters in shared memory, which
// mma.sync multiplies, and how a tile of outputs is stored.
#pragma once
#include "../convolution.cuh"
#include "ptx/mma.cuh"
#include "tile/vector.cuh"

constexpr int WARP = 32, THREADS = WARPS_M * WARPS_N * WARP;
constexpr int CHUNK = VECTOR_BYTES / sizeof(IN);  // elements that move together
constexpr int SWIZZLE = 8;  // chunks among which rows are permuted: 128 bytes, all banks
constexpr int BLOCK_K = SWIZZLE * CHUNK;
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;  // the shape of one mma.sync
constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr int TILES_M = WARP_M / MMA_M, TILES_N = WARP_N / MMA_N;

static_assert(sizeof(IN) == 2, "mma.sync takes bf16 and fp16 here");
static_assert(WARP_M % MMA_M == 0 && WARP_N % (2 * MMA_N) == 0,
              "a warp's tile has to be made of 16 x 16 pieces");

// rows of BLOCK_K elements in shared memory, the chunks of each permuted
template <int ROWS>
struct Tile {
  IN data[ROWS * BLOCK_K];

  __device__ __forceinline__ IN* chunk(unsigned row, unsigned chunk) {
    return data + row * BLOCK_K + (chunk ^ row % SWIZZLE) * CHUNK;
  }
};

struct KTile {
  Tile<BLOCK_M> windows;
  Tile<BLOCK_N> filters;
};

// where a window begins: the element of its channel 0 there, which may lie outside of the image
struct alignas(VECTOR_BYTES) Origin {
  long long element;
  int top, left;

  static __device__ __forceinline__ Origin of(const Convolution& c, int pixel) {
    const auto window = c.window_or_nowhere(pixel);
    const long long row = static_cast<long long>(window.image) * c.height + window.top;
    return {(row * c.width + window.left) * c.channels, window.top, window.left};
  }
};

// what a warp holds of a tile of outputs
struct Sums {
  float sum[TILES_M][TILES_N][4] = {};

  static __device__ __forceinline__ int first_row() { return threadIdx.x / WARP / WARPS_N * WARP_M; }
  static __device__ __forceinline__ int first_column() { return threadIdx.x / WARP % WARPS_N * WARP_N; }

  // adds the products of a k-tile, or of its first `end` ones
  __device__ __forceinline__ void add(KTile& tile, int end = BLOCK_K) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < BLOCK_K; k += MMA_K) {
      if (k >= end) break;
      u32 a[TILES_M][4], b[TILES_N / 2][4];
#pragma unroll
      for (int i = 0; i < TILES_M; ++i)
        ldmatrix_x4(a[i], tile.windows.chunk(first_row() + i * MMA_M + lane % 16, k / CHUNK + lane / 16));
#pragma unroll
      for (int j = 0; j < TILES_N / 2; ++j)  // 16 filters: 0 to 7 and 8 to 15, each for k 0 to 7 and 8 to 15
        ldmatrix_x4(b[j], tile.filters.chunk(first_column() + j * 2 * MMA_N + lane / 16 * 8 + lane % 8,
                                             k / CHUNK + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int j = 0; j < TILES_N; ++j)
          mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], IN());
    }
  }

  // completes and stores them
  __device__ __forceinline__ void store(const Convolution& c, const OutputTile& tile, const IN* bias,
                                        IN* y) const {
    const int lane = threadIdx.x % WARP, end = (tile.group + 1) * c.group_filters;  // of the group
    const int pixel = tile.pixel + first_row() + lane / 4;
    const int filter = tile.group * c.group_filters + tile.filter + first_column() + lane % 4 * 2;
    const bool pairs = c.filters % 2 == 0 && c.group_filters % 2 == 0;  // two elements move at once
    IN* row = y + static_cast<long long>(pixel) * c.filters;
#pragma unroll
    for (int i = 0; i < TILES_M * 2; ++i, row += 8ll * c.filters) {  // 8 rows at a time
      if (pixel + i * 8 >= c.pixels) break;
#pragma unroll
      for (int j = 0; j < TILES_N; ++j) {
        const int at = filter + j * MMA_N;
        const float* s = &sum[i / 2][j][i % 2 * 2];
        if (at >= end) continue;
        if (pairs) {
          store_vector(row + at, Vector<IN, 2>{from_float<IN>(completed(s[0], bias, at)),
                                               from_float<IN>(completed(s[1], bias, at + 1))});
        } else {
          row[at] = from_float<IN>(completed(s[0], bias, at));
          if (at + 1 < end) row[at + 1] = from_float<IN>(completed(s[1], bias, at + 1));
        }
      }
    }
  }
};
