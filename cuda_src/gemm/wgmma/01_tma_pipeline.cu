// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes. bf16 and fp16, sm_90a.
//
// stage 1, TMA pipeline: the warps specialise. one thread of the first warpgroup, the producer, asks TMA for
// whole k-tiles of A and B. two warpgroups, the consumers, multiply them with wgmma, which reads shared
// memory. between them is a circular buffer of STAGES k-tiles, handed over through mbarriers. one mbarrier
// completes when the bytes of a k-tile have arrived, another when every consumer warp is done with them. the
// loop around this is the library's frame load / compute / epilogue. this file has the parts of that frame.
//
// what it gains: operands no longer pass through registers, no thread computes addresses, and wgmma runs the
// tensor cores at their full rate. blocks are numbered to suit the L2: blocks that run at the same time share
// rows of A and columns of B.
//
// what limits it: a block computes only one tile. its tensor cores idle while it fills the buffer, and while
// it stores C.

#include "pipeline/load_compute_epilogue.cuh"
#include "product.cuh"

using Columns = Staging<OUT, 256 / sizeof(OUT)>;  // of C that a warp collects before it stores

struct Gemm {
  using roles = Roles<BLOCK_M / WGMMA_M>;  // a consumer multiplies 64 rows of the tile
  using globals = Operands;
  using input_block = KTiles;
  struct shared_block {
    alignas(128) OUT c[roles::CONSUMER_WARPS][Columns::ELEMENTS];
  };
  using ring = Pipeline<STAGES, roles::CONSUMER_WARPS>;
  struct work_tile {
    int iterations, m, n;  // where the tile starts
  };
  struct accumulators {
    float sum[BLOCK_N / 2];
    int first;  // row of the tile
  };

  // one tile
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    if (number > 0) return false;
    const Tile place = grouped_tile<GROUP_M>(blockIdx.x, tiles_m(g), tiles_n(g));
    tile = {k_tiles(g), place.row * BLOCK_M, place.column * BLOCK_N};
    return true;
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    const int k = iteration * BLOCK_K;
    tma_load(input.a, g.A, full, tile.m, k);
    load_b([&](IN* to, int row, int column) { tma_load(to, g.B, full, row, column); }, input.b, tile.n, k);
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    input_block* blocks;

    __device__ __forceinline__ void begin(const work_tile&, accumulators& sums) {
      sums.first = uniform(roles::consumer()) * WGMMA_M;
#pragma unroll
      for (float& x : sums.sum) x = 0.f;
    }

    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Consumed<ring>& consumed, int) {
      KTile<IN>::multiply<TRANS_B>(sums.sum, &input.a[sums.first * BLOCK_K], input.b);
      consumed.release_previous();
    }

    // a warp, 16 rows of the tile: they are collected in shared memory, so that it stores 256 neighbouring bytes
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Consumed<ring>& consumed) {
      wgmma_wait<0>();
      consumed.release_last();
      OUT* staged = shared.c[roles::warp_of_all()];
#pragma unroll
      for (int n = 0; n < BLOCK_N; n += Columns::COLUMNS) {
        __syncwarp();
        Columns::put(staged, &sums.sum[n / 2]);
        __syncwarp();
        Columns::by_threads<false>(g.rows, staged, tile.m + roles::warp_of_all() * WARP_ROWS, tile.n + n);
      }
    }

    __device__ __forceinline__ void finish() {}
  };
};

extern "C" __global__ void __launch_bounds__(Gemm::roles::THREADS, 1)
    gemm_tma_pipeline(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, OUT* C, int M,
                      int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  LoadComputeEpilogue<Gemm>::run({A, B, {A, C, M, N, ldc}, K}, memory);  // TMA does not store C here
}
