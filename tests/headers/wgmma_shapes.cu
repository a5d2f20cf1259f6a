// NAME, TYPE (1, 2 or 4 bytes), SIXTEEN_BITS and PRODUCTS are given: of each N two kernels, with a in shared memory and in
// registers. All of a type are compiled at once: the headers take longer than a kernel.
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "ptx/wgmma_all.cuh"

constexpr int ROWS = 64, ROW_BYTES = 128, ATOM_BYTES = 8 * ROW_BYTES;
constexpr int SPAN = ROW_BYTES / sizeof(TYPE), CHUNK = 16 / sizeof(TYPE);  // elements of a swizzled row, of a chunk
constexpr int DEPTH = SPAN, STEP = 32 / sizeof(TYPE);                      // of k, of k in one wgmma

// element (row, column) of a tile whose rows are 128 bytes, with the 128-byte swizzle
__device__ TYPE* swizzled(TYPE* tile, int row, int column) {
  return tile + row * SPAN + (column / CHUNK ^ row % 8) * CHUNK + column % CHUNK;
}

// d = a b^T, added to c: the first step of k over what the registers hold. a: (64, DEPTH), b: (N_COLUMNS, DEPTH), d:
// (64, N_COLUMNS)
template <int N_COLUMNS, bool FROM_REGISTERS>
__device__ void product(const TYPE* a, const TYPE* b, float* d) {
  constexpr bool A_ALONG_M = SIXTEEN_BITS && !FROM_REGISTERS, B_ALONG_N = SIXTEEN_BITS && N_COLUMNS % SPAN == 0;
  constexpr int PANELS = (N_COLUMNS + SPAN - 1) / SPAN;  // of b along n
  __shared__ alignas(ATOM_BYTES) TYPE a_tile[ROWS * DEPTH];
  __shared__ alignas(ATOM_BYTES) TYPE b_tile[B_ALONG_N ? PANELS * SPAN * DEPTH : N_COLUMNS * DEPTH];
  const int t = threadIdx.x;
  for (int i = t; i < ROWS * DEPTH; i += WARPGROUP) {
    const int m = i / DEPTH, k = i % DEPTH;
    *(A_ALONG_M ? swizzled(a_tile, k, m) : swizzled(a_tile, m, k)) = a[i];
  }
  for (int i = t; i < N_COLUMNS * DEPTH; i += WARPGROUP) {
    const int n = i / DEPTH, k = i % DEPTH;
    *(B_ALONG_N ? swizzled(b_tile + n / SPAN * SPAN * DEPTH, k, n % SPAN) : swizzled(b_tile, n, k)) = b[i];
  }
  async_fence();
  __syncthreads();

  const int row = t / 32 * 16 + t % 32 / 4;
  float sum[N_COLUMNS / 2];
#pragma unroll
  for (float& x : sum) x = 1e30f;
  const u64 from = swizzled_operand(shared_address(a_tile), 0, ATOM_BYTES);
  const u64 with = swizzled_operand(shared_address(b_tile), B_ALONG_N ? SPAN * DEPTH * sizeof(TYPE) : 0, ATOM_BYTES);
  u32 held[DEPTH / STEP][4];  // a: 4 bytes of two rows, at two places of k
#pragma unroll
  for (int step = 0; step < DEPTH / STEP; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      constexpr int WORD = 4 / sizeof(TYPE);
      const int k = step * STEP + i / 2 * 4 * WORD + t % 4 * WORD;
      held[step][i] = *reinterpret_cast<const u32*>(&a[(row + i % 2 * 8) * DEPTH + k]);
    }
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < DEPTH / STEP; ++step) {
    const u64 right = operand_at(with, step * (B_ALONG_N ? STEP * ROW_BYTES : 32));
    [[maybe_unused]] const u64 left = operand_at(from, step * (A_ALONG_M ? STEP * ROW_BYTES : 32));
#if SIXTEEN_BITS
    if constexpr (FROM_REGISTERS)
      NAME<B_ALONG_N>(sum, held[step], right, step > 0);
    else
      NAME<A_ALONG_M, B_ALONG_N>(sum, left, right, step > 0);
#else
    if constexpr (FROM_REGISTERS)
      NAME(sum, held[step], right, step > 0);
    else
      NAME(sum, left, right, step > 0);
#endif
  }
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < N_COLUMNS / 2; ++i)
    d[(row + i / 2 % 2 * 8) * N_COLUMNS + i / 4 * 8 + t % 4 * 2 + i % 2] = sum[i];
}

#define PRODUCT(N_COLUMNS)                                         \
  extern "C" __global__ void __launch_bounds__(WARPGROUP)          \
      shared_##N_COLUMNS(const TYPE* a, const TYPE* b, float* d) { \
    product<N_COLUMNS, false>(a, b, d);                            \
  }                                                                \
  extern "C" __global__ void __launch_bounds__(WARPGROUP)          \
      held_##N_COLUMNS(const TYPE* a, const TYPE* b, float* d) {   \
    product<N_COLUMNS, true>(a, b, d);                             \
  }
PRODUCTS
