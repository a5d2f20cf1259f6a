// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N); rows are lda, ldb, ldc
// elements apart. bf16 and fp16.
//
// stage 3 of mma, cp.async: shared memory has a circular buffer of STAGES k-tiles of A and B. while a block
// multiplies the present k-tile, cp.async fills later ones.
//
// what it gains: data that is loaded ahead occupies no registers. so several k-tiles can be in flight, and a
// warp's tile can be larger. a k-tile needs one barrier instead of two, and moving a byte takes two
// instructions less.
//
// what limits it: every operand passes through registers, and threads compute the addresses of all operands.
// besides, mma.sync cannot reach the full rate of the tensor cores of Hopper.

#include "ptx/cp_async.cuh"
#include "ptx/mma.cuh"
#include "tile/convert.cuh"
#include "tile/vector.cuh"

constexpr int WARP = 32, THREADS = WARPS_M * WARPS_N * WARP;
constexpr int CHUNK = VECTOR_BYTES / sizeof(IN);  // elements that move together
constexpr int SWIZZLE = 8;  // chunks among which rows are permuted: 128 bytes, all banks
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;  // the shape of one mma.sync
constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr int TILES_M = WARP_M / MMA_M, TILES_N = WARP_N / MMA_N;
constexpr int B_ROWS = TRANS_B ? BLOCK_N : BLOCK_K, B_COLUMNS = TRANS_B ? BLOCK_K : BLOCK_N;

static_assert(sizeof(IN) == 2, "mma.sync takes bf16 and fp16 here");
static_assert(
    BLOCK_K % (SWIZZLE * CHUNK) == 0 && BLOCK_N % (SWIZZLE * CHUNK) == 0,
    "BLOCK_K and BLOCK_N have to be multiples of 64: rows of a tile are swizzled 128 bytes at a time");
static_assert(WARP_M % MMA_M == 0 && WARP_N % (2 * MMA_N) == 0,
              "a warp's tile has to be made of 16 x 16 pieces");
static_assert(STAGES >= 2, "one k-tile is multiplied while at least one is loaded");

// a tile of a row-major matrix in shared memory, its chunks permuted. a thread copies the same chunk of
// every ROW_STEP-th row, so that only addresses change on the way down
template <int ROWS, int COLUMNS>
struct Tile {
  static constexpr int ROW_CHUNKS = COLUMNS / CHUNK, ROW_STEP = THREADS / ROW_CHUNKS;
  static_assert(THREADS % ROW_CHUNKS == 0 && ROWS % ROW_STEP == 0,
                "threads have to copy whole rows of a tile");
  static_assert(ROW_STEP % SWIZZLE == 0, "a thread's rows have to share one permutation: too few threads");
  IN data[ROWS * COLUMNS];

  __device__ IN* chunk(unsigned row, unsigned chunk) {
    return data + row * COLUMNS + (chunk ^ row % SWIZZLE) * CHUNK;
  }

  // starts to copy; what lies outside of the matrix becomes zero. cp.async moves whole chunks at multiples of
  // 16 bytes: at the edges, and everywhere when rows are not such multiples, elements go through registers
  // instead
  __device__ void load(const IN* from, int ld, int row0, int column0, int rows, int columns) {
    const int r = row0 + threadIdx.x / ROW_CHUNKS, c = column0 + threadIdx.x % ROW_CHUNKS * CHUNK;
    const long long step = static_cast<long long>(ROW_STEP) * ld;
    const IN* source = from + static_cast<long long>(r) * ld + c;
    IN* target = chunk(threadIdx.x / ROW_CHUNKS, threadIdx.x % ROW_CHUNKS);
    const bool aligned = ld % CHUNK == 0;
    if (aligned && row0 + ROWS <= rows && column0 + COLUMNS <= columns) {
#pragma unroll
      for (int i = 0; i < ROWS; i += ROW_STEP, source += step) cp_async_16(target + i * COLUMNS, source);
    } else {
#pragma unroll 1
      for (int i = 0; i < ROWS; i += ROW_STEP, source += step) {
        const int valid = i < rows - r ? columns - c : 0;
        if (aligned && valid >= CHUNK)
          cp_async_16(target + i * COLUMNS, source);
        else if (valid > 0)
          store_vector(target + i * COLUMNS, load_tail<CHUNK>(source, valid, false));
        else
          store_vector(target + i * COLUMNS, Vector<IN, CHUNK>{});
      }
    }
  }
};

struct KTile {
  Tile<BLOCK_M, BLOCK_K> a;
  Tile<B_ROWS, B_COLUMNS> b;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_cp_async(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M, int N,
                  int K, int lda, int ldb, int ldc) {
  extern __shared__ __align__(SWIZZLE * VECTOR_BYTES) unsigned char shared[];
  KTile* buffer = reinterpret_cast<KTile*>(shared);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int m0 = blockIdx.y * BLOCK_M, n0 = blockIdx.x * BLOCK_N;
  const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  const int k_tiles = (K + BLOCK_K - 1) / BLOCK_K;

  // one group of copies a k-tile, empty ones at the end: so the number of groups in flight is always the same
  const auto load = [&](int kt) {
    if (kt < k_tiles) {
      KTile& tile = buffer[kt % STAGES];
      const int k0 = kt * BLOCK_K;
      tile.a.load(A, lda, m0, k0, M, K);
      tile.b.load(B, ldb, TRANS_B ? n0 : k0, TRANS_B ? k0 : n0, TRANS_B ? N : K, TRANS_B ? K : N);
    }
    cp_async_commit();
  };
  for (int kt = 0; kt < STAGES - 1; ++kt) load(kt);

  float sum[TILES_M][TILES_N][4] = {};
  for (int kt = 0; kt < k_tiles; ++kt) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this k-tile has come for everyone, and everyone is done with the one before
    load(kt + STAGES - 1);

    KTile& tile = buffer[kt % STAGES];
#pragma unroll
    for (int k = 0; k < BLOCK_K; k += MMA_K) {
      u32 a[TILES_M][4], b[TILES_N / 2][4];
#pragma unroll
      for (int i = 0; i < TILES_M; ++i)
        ldmatrix_x4(a[i], tile.a.chunk(warp_m + i * MMA_M + lane % 16, k / CHUNK + lane / 16));
#pragma unroll
      for (int j = 0; j < TILES_N / 2; ++j) {
        // two pieces of B at once: n 0 to 7 and 8 to 15, each for k 0 to 7 and 8 to 15
        const int n = warp_n + j * 2 * MMA_N;
        if constexpr (TRANS_B)
          ldmatrix_x4(b[j], tile.b.chunk(n + lane / 16 * 8 + lane % 8, k / CHUNK + lane / 8 % 2));
        else
          ldmatrix_x4_trans(b[j], tile.b.chunk(k + lane % 16, n / CHUNK + lane / 16));
      }
#pragma unroll
      for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int j = 0; j < TILES_N; ++j)
          mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], IN());
    }
  }

  const int m = m0 + warp_m + lane / 4, n = n0 + warp_n + lane % 4 * 2;
  OUT* row = C + static_cast<long long>(m) * ldc + n;
  const bool whole = n0 + BLOCK_N <= N && ldc % 2 == 0;  // a pair of elements moves at once
#pragma unroll
  for (int i = 0; i < TILES_M * 2; ++i, row += 8ll * ldc) {  // 8 rows at a time
    if (m + i * 8 >= M) break;
#pragma unroll
    for (int j = 0; j < TILES_N; ++j) {
      const float* s = &sum[i / 2][j][i % 2 * 2];
      const Vector<OUT, 2> pair = {from_float<OUT>(s[0]), from_float<OUT>(s[1])};
      if (whole)
        store_vector(row + j * MMA_N, pair);
      else
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (n + j * MMA_N + e < N) row[j * MMA_N + e] = pair.x[e];
    }
  }
}
