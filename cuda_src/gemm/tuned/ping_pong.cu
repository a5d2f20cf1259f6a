// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_90a.
//
// stage 11, ping-pong: each consumer has a tile of its own, of 128 rows and 128 columns. the two consumers
// alternate: one writes its sums to C while the other multiplies. there are pauses between the writes,
// because there is time for them. without pauses, all blocks together would push more out of the L2 than
// memory can take, and k-tiles would have to wait.
//
// what it gains: the tensor cores no longer wait for the end of a tile. this matters most if K is short.
//
// what limits it: a tile of half the size loads a third more for the same work. if K is large, the L2 cannot
// deliver that. then the wide tiles that two consumers share are faster.

#include "pipeline/ping_pong.cuh"
#include "product.cuh"

using Columns = Staging<OUT>;  // of C that a warp collects before it stores
constexpr int BUFFERS = 2;
constexpr int BANDS = BLOCK_M / WGMMA_M;  // of 64 rows of a tile
constexpr unsigned PAUSE = 8;             // between parts of a tile that are stored, for each k-iteration: ns

static_assert(BLOCK_M * BLOCK_N <= 128 * 128,
              "a thread has registers for 128 sums: take 128 x 128 or 64 x 256");

struct Gemm {
  using roles = Roles<2>;
  using globals = Operands;
  using input_block = KTiles;
  struct shared_block {
    alignas(1024) OUT c[roles::CONSUMER_WARPS][BUFFERS][Columns::ELEMENTS];  // swizzled
  };
  static constexpr int PIPELINE_STAGES =
      stages_that_fit(roles::SHARED_BYTES, sizeof(input_block), sizeof(shared_block));
  using ring = Pipeline<PIPELINE_STAGES, roles::WARPS>;
  struct work_tile {
    int iterations, m, n;  // where the tile starts
    bool last;             // there is no other to be multiplied meanwhile
  };
  struct accumulators {
    float sum[BANDS][BLOCK_N / 2];
  };

  // every so many-th tile
  static __device__ __forceinline__ bool schedule(const globals& g, work_tile& tile, int number) {
    const int mine = blockIdx.x + number * gridDim.x;
    if (mine >= tiles_m(g) * tiles_n(g)) return false;
    const Tile place = grouped_tile<GROUP_M>(mine, tiles_m(g), tiles_n(g));
    tile = {k_tiles(g), place.row * BLOCK_M, place.column * BLOCK_N};
    tile.last = mine + gridDim.x >= tiles_m(g) * tiles_n(g);
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

    __device__ __forceinline__ void begin(const work_tile&, accumulators&) {}

    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Turn<ring>& consumed, int iteration) {
      KTile<IN>::multiply_bands<TRANS_B>(sums.sum, input.a, input.b, iteration > 0);
      consumed.release_previous();
    }

    // a warp, 16 rows of each band
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums,
                                             Turn<ring>& consumed) {
      consumed.pass();
      wgmma_wait<0>();
      consumed.release_last();
      auto& buffers = shared.c[roles::warp_of_all()];
#pragma unroll
      for (int band = 0; band < BANDS; ++band)
#pragma unroll
        for (int n = 0; n < BLOCK_N; n += Columns::COLUMNS) {
          if (band + n > 0 && !tile.last) __nanosleep(PAUSE * tile.iterations);
          Columns::store<BUFFERS>(g.rows, buffers[n / Columns::COLUMNS % BUFFERS], &sums.sum[band][n / 2],
                                  tile.m + band * WGMMA_M + roles::warp() * WARP_ROWS, tile.n + n);
        }
    }

    __device__ __forceinline__ void finish() {}
  };
};

extern "C" __global__ void __launch_bounds__(Gemm::roles::THREADS, 1)
    gemm_ping_pong(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                   const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  PingPongFrame<Gemm>::run({A, B, {C_boxes, C, M, N, ldc}, K}, memory);
}
