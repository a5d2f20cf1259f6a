// transforms over PERIOD = FIRST x SECOND places as products of matrices of real numbers by wgmma, a
// warpgroup 64 rows; see ../symmetric.cuh.
#pragma once
#include "../symmetric.cuh"
#include "ptx/mma.cuh"
#include "ptx/wgmma_all.cuh"
#include "tile/panels.cuh"
#include "tile/swizzle.cuh"
#include "tile/warp.cuh"

constexpr int BAND = WGMMA_M, PANEL = KTile<IN>::DEPTH;  // rows of a warpgroup, columns of a panel
constexpr int WIDTH = SECOND < PANEL ? PANEL : SECOND, PAIRS = WIDTH / SECOND;  // side by side
constexpr int LEFT_COLUMNS = PANEL;  // that are accumulated at once; RIGHT_COLUMNS of products from the right
constexpr int THREADS = FIRST / BAND * WARPGROUP;
constexpr int RESIDENT =
    (SECOND > PANEL ? 8 : RESIDENT_WARPS) * WARP / THREADS;  // blocks of a multiprocessor

static_assert(FIRST * SECOND == PERIOD && FIRST % BAND == 0 && FIRST <= 2 * BAND, "a warpgroup has 64 rows");
static_assert(SECOND >= 16 && SECOND <= 2 * PANEL, "a matrix has frequencies by 8, and their negatives");

// a matrix in panels, the 16-byte chunks of which are swizzled
template <int ROWS, int WIDTH_>
struct Tile : Panels<IN, ROWS, WIDTH_> {
  __device__ __forceinline__ IN* chunk(int row, int number) {
    constexpr int CHUNKS = PANEL / EACH;
    return Swizzled<IN, ROW_BYTES>::chunk(this->panel[number / CHUNKS], row, number % CHUNKS);
  }
  __device__ __forceinline__ u64 operand(int panel, int row, int byte) const {
    return operand_at(swizzled_operand(shared_address(this->panel[panel]), 0, ATOM_BYTES),
                      row * ROW_BYTES + byte);
  }
};

// PAIRS pairs of sequences
struct Sequences {
  Tile<FIRST, WIDTH> re, im;

  // by the block: starts to load what there is of `count` sequences, `next` elements apart
  __device__ __forceinline__ void load(const IN* from, long long next, int count, int length, int extended) {
#pragma unroll 1
    for (int i = 0; i < PAIRS; ++i)
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int sequence = 2 * i + part;
        load_sequence<THREADS>({sequence < count ? from + sequence * next : nullptr, length, extended},
                               [&](int place) {
                                 const int number = (i * SECOND + place % SECOND) / EACH;
                                 return (part ? im : re).chunk(place / SECOND, number);
                               });
      }
  }

  // to the exchange between warps: what a thread holds
  template <int COLUMNS>
  __device__ __forceinline__ void store(const Sums<COLUMNS>& sums, int thread, int column) {
    const int row = thread / WARP * 16 + thread % 16;
#pragma unroll
    for (int i = 0; i < COLUMNS / 16; ++i) {
      u32 parts[2][1][4];
      to_left_operand<IN>(parts[0], reinterpret_cast<const float (&)[8]>(sums.re[i * 8]));
      to_left_operand<IN>(parts[1], reinterpret_cast<const float (&)[8]>(sums.im[i * 8]));
      const int number = column / EACH + i * 2 + thread % WARP / 16;
      stmatrix_x4(re.chunk(row, number), parts[0][0]);
      stmatrix_x4(im.chunk(row, number), parts[1][0]);
    }
  }
};

// the matrix from the right. where it is narrower than a panel the transposed one is beside it, as wgmma
// transposes whole panels
struct RightMatrix {
  static constexpr int TILES = PAIRS > 1 ? 2 : 1;
  Tile<SECOND, WIDTH> tile[TILES];

  // by the block
  __device__ __forceinline__ void make(const float2* roots) {
    make_matrix<true, SECOND, THREADS>(roots, [&](int row, int chunk) { return tile[0].chunk(row, chunk); });
    if (TILES == 1) return;
    __syncthreads();
    for (int i = threadIdx.x; i < SECOND * SECOND; i += THREADS) {
      const int row = i / SECOND, column = i % SECOND;
      tile[TILES - 1].chunk(column, row / EACH)[row % EACH] =
          tile[0].chunk(row, column / EACH)[column % EACH];
    }
  }
};

struct Shared {
  Tile<FIRST, FIRST> left;
  RightMatrix right;
  Sequences x[2];
};

// the first of both rows of a thread
__device__ __forceinline__ int row_of(int thread) { return thread / WARP * 16 + thread % WARP / 4; }

// x, of which the compiler no longer knows where it comes from: so it does not keep what is computed of it,
// addresses of shared memory above all, in registers from one work tile to the next
__device__ __forceinline__ int recomputed(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// both parts are there
template <int COLUMNS>
__device__ __forceinline__ void finish(Sums<COLUMNS>& sums) {
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) asm volatile("" : "+f"(sums.re[i]), "+f"(sums.im[i])::"memory");
}

// 64 rows of the matrix, transposed or not, from `first` on, times the columns of x from `column` on, of
// which the first DEPTH rows are multiplied
template <bool TRANSPOSED, int DEPTH = FIRST, int COLUMNS>
__device__ __forceinline__ void multiply_left(Sums<COLUMNS>& sums, const Tile<FIRST, FIRST>& matrix,
                                              int first, const Sequences& x, int column) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < DEPTH; k += WGMMA_K) {
    const u64 a = TRANSPOSED ? matrix.operand(first / PANEL, k, 0)
                             : matrix.operand(k / PANEL, first, k % PANEL * sizeof(IN));
    wgmma<1, TRANSPOSED>(sums.re, a, x.re.operand(column / PANEL, k, column % PANEL * sizeof(IN)), IN(),
                         k > 0);
    wgmma<1, TRANSPOSED>(sums.im, a, x.im.operand(column / PANEL, k, column % PANEL * sizeof(IN)), IN(),
                         k > 0);
  }
  finish(sums);
}

// rows times columns of the matrix, transposed, or not; of pairs side by side each by itself
template <bool TRANSPOSED, int COLUMNS>
__device__ __forceinline__ void multiply_right(Sums<COLUMNS>& sums, const Operand<WIDTH>& rows,
                                               const RightMatrix& matrix, int column) {
  wgmma_fence();
  if constexpr (PAIRS == 1) {
#pragma unroll
    for (int k = 0; k < SECOND; k += WGMMA_K) {
      const u64 b = TRANSPOSED ? matrix.tile[0].operand(k / PANEL, column, k % PANEL * sizeof(IN))
                               : matrix.tile[0].operand(column / PANEL, k, column % PANEL * sizeof(IN));
      wgmma<!TRANSPOSED>(sums.re, rows.re[k / WGMMA_K], b, IN(), k > 0);
      wgmma<!TRANSPOSED>(sums.im, rows.im[k / WGMMA_K], b, IN(), k > 0);
    }
  } else {
#pragma unroll
    for (int i = 0; i < COLUMNS; i += SECOND)
#pragma unroll
      for (int k = 0; k < SECOND; k += WGMMA_K) {
        const int operand = (column + i + k) / WGMMA_K;
        const u64 b = matrix.tile[!TRANSPOSED].operand(0, 0, k * sizeof(IN));
        wgmma<0>(reinterpret_cast<float (&)[SECOND / 2]>(sums.re[i / 2]), rows.re[operand], b, IN(), k > 0);
        wgmma<0>(reinterpret_cast<float (&)[SECOND / 2]>(sums.im[i / 2]), rows.im[operand], b, IN(), k > 0);
      }
  }
  finish(sums);
}

// by a warp: columns from `column` on of its rows of x go to y, `count`
// sequences that are `next` elements apart
template <int COLUMNS>
__device__ __forceinline__ void store_sequences(IN* y, long long next, int count, Sequences& x, int thread,
                                                int column, int length) {
  constexpr int CHUNKS = COLUMNS / EACH, STEP = WARP / CHUNKS;
  const bool aligned = length % EACH == 0;
  const int first = thread / WARP * 16 + thread % WARP / CHUNKS, own = column + thread % CHUNKS * EACH;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const int sequence = own / SECOND * 2 + part;
    IN* const to = y + sequence * next;
#pragma unroll
    for (int i = 0; i < 16; i += STEP) {
      const int row = first + i, place = row * SECOND + own % SECOND;
      if (sequence >= count || place >= length) continue;
      const auto chunk = load_vector<EACH>((part ? x.im : x.re).chunk(row, own / EACH));
      if (aligned)
        store_vector(to + place, chunk);
      else
        store_tail(to + place, chunk, length - place, false);
    }
  }
}
