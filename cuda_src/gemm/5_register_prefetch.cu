// C[m, n] = sum_k A[m, k] B[n, k]. A: (M, K), B: (N, K), C: (M, N); rows are lda, ldb, ldc elements apart.
// bf16 and fp16.
//
// stage 5, register prefetch: what stage 4 does where there is no cp.async. eight warps load the next slice
// into registers, multiply the present one, and only then write what has come to the other of two buffers:
// the time that memory takes passes with multiplications.
//
// what it gains: of two waits for everyone in a step one is left, and none for memory. eight warps, two for
// each tensor core, hide each other's ldmatrix.
//
// what limits it: what is loaded ahead costs registers, so one slice is all that can be in flight, and every
// byte takes two instructions more than with cp.async.

#include "tile/convert.cuh"
#include "ptx/mma.cuh"
#include "tile/vector.cuh"

constexpr int WARP = 32, THREADS = WARPS_M * WARPS_N * WARP;
constexpr int CHUNK = VECTOR_BYTES / sizeof(IN);  // elements that move together
constexpr int SWIZZLE = 8;  // chunks among which rows are permuted: 128 bytes, all banks
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;  // the shape of one mma.sync
constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr int TILES_M = WARP_M / MMA_M, TILES_N = WARP_N / MMA_N;
constexpr int ROW_CHUNKS = BLOCK_K / CHUNK, ROW_STEP = THREADS / ROW_CHUNKS;

static_assert(sizeof(IN) == 2, "mma.sync takes bf16 and fp16 here");
static_assert(TRANS_B, "B is read along k: layout nt");
static_assert(BLOCK_K == SWIZZLE * CHUNK,
              "BLOCK_K has to be 64: rows of a slice are swizzled 128 bytes at a time");
static_assert(WARP_M % MMA_M == 0 && WARP_N % (2 * MMA_N) == 0,
              "a warp's tile has to be made of 16 x 16 pieces");
static_assert(ROW_STEP % SWIZZLE == 0, "a thread's rows have to share one permutation: too few threads");

// rows of k in shared memory, their chunks permuted
template <int ROWS>
struct Slice {
  static_assert(ROWS % ROW_STEP == 0, "threads have to copy whole rows of a slice");
  IN data[ROWS * BLOCK_K];

  __device__ IN* chunk(unsigned row, unsigned chunk) {
    return data + row * BLOCK_K + (chunk ^ row % SWIZZLE) * CHUNK;
  }
};

// a thread's part of a slice on its way: the same chunk of every ROW_STEP-th row. as words: elements would be
// taken apart as soon as they come, and that would have to wait for them
template <int ROWS>
struct Part {
  static constexpr int WORDS = VECTOR_BYTES / sizeof(u32);
  using Words = Vector<u32, WORDS>;
  Words chunks[ROWS / ROW_STEP];

  // what lies outside of the matrix is zero
  __device__ void load(const IN* from, int ld, int row0, int k0, int rows, int depth) {
    const int row = row0 + threadIdx.x / ROW_CHUNKS, k = k0 + threadIdx.x % ROW_CHUNKS * CHUNK;
    const IN* source = from + static_cast<long long>(row) * ld + k;
    const long long step = static_cast<long long>(ROW_STEP) * ld;
    const bool aligned = ld % CHUNK == 0;
    if (aligned && row0 + ROWS <= rows && k0 + BLOCK_K <= depth) {
#pragma unroll
      for (Words& chunk : chunks)
        chunk = load_vector<WORDS>(reinterpret_cast<const u32*>(source)), source += step;
    } else {
#pragma unroll
      for (int i = 0; i < ROWS / ROW_STEP; ++i, source += step) {
        const auto tail = load_tail<CHUNK>(source, row + i * ROW_STEP < rows ? depth - k : 0, aligned);
        chunks[i] = reinterpret_cast<const Words&>(tail);
      }
    }
  }

  __device__ void store(Slice<ROWS>& slice) const {
    IN* target = slice.chunk(threadIdx.x / ROW_CHUNKS, threadIdx.x % ROW_CHUNKS);
#pragma unroll
    for (int i = 0; i < ROWS / ROW_STEP; ++i)
      store_vector(reinterpret_cast<u32*>(target + i * ROW_STEP * BLOCK_K), chunks[i]);
  }
};

struct Buffer {
  Slice<BLOCK_M> a;
  Slice<BLOCK_N> b;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_register_prefetch(const IN* __restrict__ A, const IN* __restrict__ B, OUT* __restrict__ C, int M,
                           int N, int K, int lda, int ldb, int ldc) {
  extern __shared__ __align__(SWIZZLE * VECTOR_BYTES) unsigned char shared[];
  Buffer* buffers = reinterpret_cast<Buffer*>(shared);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int m0 = blockIdx.y * BLOCK_M, n0 = blockIdx.x * BLOCK_N;
  const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  const int steps = (K + BLOCK_K - 1) / BLOCK_K;

  Part<BLOCK_M> next_a;
  Part<BLOCK_N> next_b;
  const auto load = [&](int step) {
    next_a.load(A, lda, m0, step * BLOCK_K, M, K);
    next_b.load(B, ldb, n0, step * BLOCK_K, N, K);
  };
  const auto store = [&](Buffer& to) {
    next_a.store(to.a);
    next_b.store(to.b);
    __syncthreads();  // for everyone, and everyone is done with the other buffer
  };
  load(0);
  store(buffers[0]);

  float sum[TILES_M][TILES_N][4] = {};
  for (int step = 0; step < steps; ++step) {
    const bool more = step + 1 < steps;
    if (more) load(step + 1);

    Buffer& buffer = buffers[step % 2];
#pragma unroll
    for (int k = 0; k < BLOCK_K; k += MMA_K) {
      u32 a[TILES_M][4], b[TILES_N / 2][4];
#pragma unroll
      for (int i = 0; i < TILES_M; ++i)
        ldmatrix_x4(a[i], buffer.a.chunk(warp_m + i * MMA_M + lane % 16, k / CHUNK + lane / 16));
#pragma unroll
      for (int j = 0; j < TILES_N / 2;
           ++j)  // two pieces of B: n 0 to 7 and 8 to 15, each for k 0 to 7 and 8 to 15
        ldmatrix_x4(b[j], buffer.b.chunk(warp_n + j * 2 * MMA_N + lane / 16 * 8 + lane % 8,
                                         k / CHUNK + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int j = 0; j < TILES_N; ++j)
          mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], IN());
    }
    if (more) store(buffers[(step + 1) % 2]);
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
