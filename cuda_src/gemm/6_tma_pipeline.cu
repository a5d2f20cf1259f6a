// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes. bf16 and fp16, sm_90a.
//
// stage 6, TMA pipeline: the warps specialise. one thread of the first warpgroup, the producer, asks the
// copy engine (TMA) for whole slices of A and B; two warpgroups, the consumers, have the tensor cores
// multiply them where they lie (wgmma). a ring of STAGES slices is handed back and forth through barriers:
// full[s] completes when the bytes of slice s have come, empty[s] when every consumer warp is done with it.
//
// what it gains: operands no longer pass through registers, nobody computes addresses, and wgmma runs the
// tensor cores at their full rate. blocks are numbered so that those at work together share rows of A and
// columns of B in the L2.
//
// what limits it: for large products, what limits the vendor's library too. small ones have too few tiles of
// 128 x 256 for the device, whose tensor cores idle while a block fills its ring and while it stores C.

#include "tile/convert.cuh"
#include "ptx/tma.cuh"
#include "tile/vector.cuh"
#include "ptx/wgmma.cuh"

constexpr int WARP = 32, CONSUMERS = 2, CONSUMER_WARPS = CONSUMERS * WARPGROUP / WARP;
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
constexpr int WGMMA_M = 64, WGMMA_K = 16;
constexpr int ROW_BYTES = 128;                 // of a slice: the width of the swizzle
constexpr int ATOM_BYTES = 8 * ROW_BYTES;      // the swizzle repeats every 8 rows
constexpr int PANEL = ROW_BYTES / sizeof(IN);  // columns of B in one box where they lie along its rows
constexpr int STAGED_BYTES = 256;              // of a row of C that a warp collects before it stores
constexpr int STAGED = STAGED_BYTES / sizeof(OUT), CHUNK = VECTOR_BYTES / sizeof(OUT);
constexpr int STAGED_ROWS = 16, STAGED_CHUNKS = STAGED / CHUNK;
// 168 registers a thread at launch: too many for the producer, too few for 128 accumulators and what is
// around them
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;

static_assert(sizeof(IN) == 2, "wgmma takes bf16 and fp16 here");
static_assert(BLOCK_M == CONSUMERS * WGMMA_M, "each consumer multiplies 64 rows: BLOCK_M has to be 128");
static_assert(BLOCK_N == 128 || BLOCK_N == 256, "BLOCK_N is the n of a wgmma: 128 or 256");
static_assert(BLOCK_K * sizeof(IN) == ROW_BYTES,
              "BLOCK_K has to be 64: a row of a slice is as wide as the swizzle");

struct Shared {
  IN a[STAGES][BLOCK_M * BLOCK_K];  // rows of k
  IN b[STAGES][BLOCK_N * BLOCK_K];  // rows of k, too. without TRANS_B: panels of 64 columns, in rows of n
  OUT c[CONSUMER_WARPS][STAGED_ROWS * STAGED];
  Barrier full[STAGES], empty[STAGES];
};

// the tile of C of this block. GROUP_M rows of tiles are walked together, column by column
struct Tile {
  int m, n;

  __device__ Tile(int M, int N) {
    const int tiles_m = (M + BLOCK_M - 1) / BLOCK_M, tiles_n = (N + BLOCK_N - 1) / BLOCK_N;
    const int group = blockIdx.x / (GROUP_M * tiles_n), within = blockIdx.x % (GROUP_M * tiles_n);
    const int height = min(GROUP_M, tiles_m - group * GROUP_M);
    m = (group * GROUP_M + within % height) * BLOCK_M;
    n = within / height * BLOCK_N;
  }
};

// load: by one thread
__device__ void produce(Shared& shared, const TensorMap& A, const TensorMap& B, Tile tile, int steps) {
  for (int step = 0; step < steps; ++step) {
    const int s = step % STAGES, k = step * BLOCK_K;
    mbarrier_wait(shared.empty[s], step / STAGES % 2 ^ 1);
    mbarrier_arrive_expect(shared.full[s], sizeof(shared.a[s]) + sizeof(shared.b[s]));
    tma_load(shared.a[s], A, shared.full[s], tile.m, k);
    if constexpr (TRANS_B)
      tma_load(shared.b[s], B, shared.full[s], tile.n, k);
    else
      for (int n = 0; n < BLOCK_N; n += PANEL)
        tma_load(&shared.b[s][n * BLOCK_K], B, shared.full[s], k, tile.n + n);
  }
}

// compute: by a warpgroup, 64 rows of the tile
__device__ void consume(Shared& shared, float (&sum)[BLOCK_N / 2], int consumer, int steps) {
  constexpr int A_STEP = WGMMA_K * sizeof(IN);  // bytes to the next 16 of k
  constexpr int B_STEP = TRANS_B ? A_STEP : WGMMA_K * ROW_BYTES;
  constexpr int PANEL_BYTES = BLOCK_K * ROW_BYTES;
  const bool first_lane = threadIdx.x % WARP == 0;

  for (int step = 0; step < steps; ++step) {
    const int s = step % STAGES;
    mbarrier_wait(shared.full[s], step / STAGES % 2);
    const u32 a = shared_address(&shared.a[s][consumer * WGMMA_M * BLOCK_K]), b = shared_address(shared.b[s]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < BLOCK_K / WGMMA_K; ++k)
      wgmma<!TRANS_B>(sum, swizzled_operand(a + k * A_STEP, 0, ATOM_BYTES),
                      swizzled_operand(b + k * B_STEP, TRANS_B ? 0 : PANEL_BYTES, ATOM_BYTES), IN());
    wgmma_commit();
    wgmma_wait<1>();  // the step before is done, this one goes on: its slice can be filled again
    if (step > 0 && first_lane) mbarrier_arrive(shared.empty[(step - 1) % STAGES]);
  }
  wgmma_wait<0>();
}

// store: by a warp, 16 rows of the tile. accumulators lie in pairs; they are collected in shared memory,
// chunks swizzled against bank conflicts, so that a warp stores 256 neighbouring bytes of a row
__device__ void store(OUT* staged, const float (&sum)[BLOCK_N / 2], OUT* C, int m0, int n0, int M, int N,
                      int ldc) {
  const int lane = threadIdx.x % WARP;
  const auto chunk = [&](int row, int chunk) { return staged + row * STAGED + (chunk ^ row % 8) * CHUNK; };
#pragma unroll
  for (int done = 0; done < BLOCK_N; done += STAGED) {
#pragma unroll
    for (int i = 0; i < STAGED / 4; ++i) {  // pairs: 8 columns at a time, in rows lane / 4 and lane / 4 + 8
      const int row = lane / 4 + i % 2 * 8, column = i / 2 * 8 + lane % 4 * 2, pair = done / 2 + i * 2;
      const Vector<OUT, 2> v = {from_float<OUT>(sum[pair]), from_float<OUT>(sum[pair + 1])};
      store_vector(chunk(row, column / CHUNK) + column % CHUNK, v);
    }
    __syncwarp();
#pragma unroll 2
    for (int i = lane; i < STAGED_ROWS * STAGED_CHUNKS; i += WARP) {
      const int m = m0 + i / STAGED_CHUNKS, n = n0 + done + i % STAGED_CHUNKS * CHUNK;
      const auto v = load_vector<CHUNK>(chunk(i / STAGED_CHUNKS, i % STAGED_CHUNKS));
      if (m < M) store_tail(C + static_cast<long long>(m) * ldc + n, v, N - n, ldc % CHUNK == 0);
    }
    __syncwarp();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_tma_pipeline(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, OUT* C, int M,
                      int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(shared.full[s], 1);
      mbarrier_init(shared.empty[s], CONSUMER_WARPS);
    }
    mbarrier_init_fence();
  }
  __syncthreads();

  const Tile tile(M, N);
  const int steps = (K + BLOCK_K - 1) / BLOCK_K;
  if (threadIdx.x < WARPGROUP) {
    keep_registers<PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) produce(shared, A, B, tile, steps);
  } else {
    take_registers<CONSUMER_REGISTERS>();
    const int consumer = threadIdx.x / WARPGROUP - 1, warp = threadIdx.x / WARP - WARPGROUP / WARP;
    float sum[BLOCK_N / 2] = {};
    consume(shared, sum, consumer, steps);
    store(shared.c[warp], sum, C, tile.m + warp * STAGED_ROWS, tile.n, M, N, ldc);
  }
}
