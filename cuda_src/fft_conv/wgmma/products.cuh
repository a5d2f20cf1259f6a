// transforms over PERIOD = FIRST x SECOND places as products of matrices of real numbers by wgmma, a
// warpgroup 64 rows; see ../symmetric.cuh.
#pragma once
#include "../symmetric.cuh"
#include "ptx/mma.cuh"
#include "tile/panels.cuh"
#include "tile/swizzle.cuh"
#include "tile/warp.cuh"

constexpr int BAND = WGMMA_M, PANEL = KTile<IN>::DEPTH;  // rows of a warpgroup, columns of a panel
constexpr int WIDTH = SECOND < PANEL ? PANEL : SECOND, PAIRS = WIDTH / SECOND;  // side by side
constexpr int COLUMNS = PANEL;  // that are accumulated at once
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

  // to the exchange between warps: what a lane holds of row `row` and the one 8 further down
  template <int COLUMNS>
  __device__ __forceinline__ void store(const Sums<COLUMNS>& sums, int row, int column) {
    const int lane = threadIdx.x % WARP, of_matrix = row - lane / 4 + lane % 16;
#pragma unroll
    for (int i = 0; i < COLUMNS / 16; ++i) {
      u32 parts[2][1][4];
      to_left_operand<IN>(parts[0], reinterpret_cast<const float (&)[8]>(sums.re[i * 8]));
      to_left_operand<IN>(parts[1], reinterpret_cast<const float (&)[8]>(sums.im[i * 8]));
      const int number = column / EACH + i * 2 + lane / 16;
      stmatrix_x4(re.chunk(of_matrix, number), parts[0][0]);
      stmatrix_x4(im.chunk(of_matrix, number), parts[1][0]);
    }
  }
};

struct Shared {
  Tile<FIRST, FIRST> left;
  Tile<WIDTH, WIDTH> right;
  Sequences x[2];

  // by the block: as many matrices on the diagonal as there are pairs
  __device__ __forceinline__ void make_right(const float2* roots) {
    if (PAIRS > 1)
      for (int i = threadIdx.x; i < WIDTH * WIDTH / EACH; i += THREADS)
        store_vector(right.chunk(i / (WIDTH / EACH), i % (WIDTH / EACH)), Vector<IN, EACH>{});
    if (PAIRS > 1) __syncthreads();
    for (int i = 0; i < PAIRS; ++i)
      make_matrix<true, SECOND, THREADS>(roots, [&](int row, int chunk) {
        return right.chunk(i * SECOND + row, i * SECOND / EACH + chunk);
      });
  }
};

// both parts are there
template <int COLUMNS>
__device__ __forceinline__ void finish(Sums<COLUMNS>& sums) {
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) asm volatile("" : "+f"(sums.re[i]), "+f"(sums.im[i])::"memory");
}

// 64 rows of the matrix, transposed or not, from `first` on, times the columns of x from `column` on, of
// which the first `depth` rows are not zero
template <bool TRANSPOSED>
__device__ __forceinline__ void multiply_left(Sums<COLUMNS>& sums, const Tile<FIRST, FIRST>& matrix,
                                              int first, const Sequences& x, int column, int depth) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < FIRST; k += WGMMA_K) {
    if (k > 0 && k >= depth) break;
    const u64 a = TRANSPOSED ? matrix.operand(first / PANEL, k, 0)
                             : matrix.operand(k / PANEL, first, k % PANEL * sizeof(IN));
    wgmma<1, TRANSPOSED>(sums.re, a, x.re.operand(column / PANEL, k, 0), IN(), k > 0);
    wgmma<1, TRANSPOSED>(sums.im, a, x.im.operand(column / PANEL, k, 0), IN(), k > 0);
  }
  finish(sums);
}

// rows times columns of the matrix, transposed, or not
template <bool TRANSPOSED>
__device__ __forceinline__ void multiply_right(Sums<COLUMNS>& sums, const Operand<WIDTH>& rows,
                                               const Tile<WIDTH, WIDTH>& matrix, int column) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < WIDTH; k += WGMMA_K) {
    const u64 b = TRANSPOSED ? matrix.operand(k / PANEL, column, k % PANEL * sizeof(IN))
                             : matrix.operand(column / PANEL, k, 0);
    wgmma<!TRANSPOSED>(sums.re, rows.re[k / WGMMA_K], b, IN(), k > 0);
    wgmma<!TRANSPOSED>(sums.im, rows.im[k / WGMMA_K], b, IN(), k > 0);
  }
  finish(sums);
}

// columns from `column` on of row `row` and the one 8 further down, of `count` sequences, `next` elements
// apart
__device__ __forceinline__ void store_sequences(IN* y, long long next, int count, const Sums<COLUMNS>& sums,
                                                int row, int column, int length) {
  const bool aligned = length % EACH == 0;
#pragma unroll
  for (int i = 0; i < COLUMNS / 32; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        u32 pairs[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* const two = &(part ? sums.im : sums.re)[i * 16 + j * 4 + half * 2];
          pairs[j] = pair_from_float<IN>(two[0], two[1]);
        }
        exchange_pairs(pairs);
        const int own = column + i * 32 + threadIdx.x % 4 * EACH, sequence = own / SECOND * 2 + part;
        const int place = (row + half * 8) * SECOND + own % SECOND;
        const auto& chunk = reinterpret_cast<const Vector<IN, EACH>&>(pairs);
        if (sequence >= count || place >= length) continue;
        if (aligned)
          store_vector(y + sequence * next + place, chunk);
        else
          store_tail(y + sequence * next + place, chunk, length - place, false);
      }
}
