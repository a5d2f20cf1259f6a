// C[m, n] = a_scale[m] b_scale[n] sum_k A[m, k] B[n, k]. A: (M, K), B: (N, K), of e4m3, C: (M, N), rows ldc
// elements apart. A and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows
// are. sm_100a.
//
// stage 3, tensor memory: tcgen05 multiplies e4m3, and its sums lie in tensor memory. they have all bits of fp32, so
// nobody adds up k-tiles. the warps specialise as in the stage two_accumulators of gemm: a thread loads k-tiles ahead,
// another starts their products, and four warps read the sums of a tile, a row in each lane, scale and store them
// while the next tile is multiplied.
//
// what it gains: no register holds a sum, and no instruction moves one between two k-tiles. so tiles are as wide as
// those of bf16.
//
// what limits it: each block loads all of its operands itself. every lane reads the scales of all columns, which the L1
// delivers to a warp at once.

#define TRANS_B 1
#include "../gemm/tcgen05/product.cuh"

constexpr int ACCUMULATORS = 2;
static_assert(sizeof(IN) == 1, "scales are those of 8-bit numbers: take e4m3");
static_assert(ACCUMULATORS * BLOCK_N <= TENSOR_COLUMNS, "two accumulators have 512 columns: lower BLOCK_N to 256");

using KTile = KTiles<BLOCK_M, BLOCK_N>;

struct Shared {
  KTile k_tiles[STAGES];
  LaneStaging<OUT, 2> c[TileWarps::EPILOGUE];
  Pipeline<STAGES, 1> ring;
  Pipeline<ACCUMULATORS, TileWarps::EPILOGUE> done;
  u32 sums;
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the k-tiles do not fit into shared memory: lower STAGES");

extern "C" __global__ void __launch_bounds__(TileWarps::THREADS)
    gemm_fp8_tensor_memory(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                           const __grid_constant__ TensorMap C_boxes, const float* a_scale, const float* b_scale,
                           OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / 32, iterations = tiles<BLOCK_K>(K);
  const bool first_lane = threadIdx.x % 32 == 0;
  const int tiles_m = tiles<BLOCK_M>(M), tiles_n = tiles<BLOCK_N>(N);

  tensor_begin<ACCUMULATORS * BLOCK_N, 1>(shared.sums, shared.ring, shared.done);

  Place<STAGES> at;
  Place<ACCUMULATORS> to;
  if (warp == TileWarps::LOADS && first_lane) {
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
      const Tile place = grouped_tile<GROUP_M>(tile, tiles_m, tiles_n);
      load_k_tiles(shared.k_tiles, shared.ring, at, iterations, [&](KTile& k_tile, Barrier& full, int k) {
        k_tile.load(A, B, full, place.row * BLOCK_M, place.column * BLOCK_N, k);
      });
    }
  } else if (warp == TileWarps::MULTIPLIES && first_lane) {
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x, to.advance()) {
      shared.done.acquire(to);
      tensor_take_over();
      multiply_k_tiles<1>(shared.k_tiles, shared.ring, at, iterations, shared.sums + to.stage * BLOCK_N,
                         shared.done.full[to.stage]);
    }
  } else if (warp < TileWarps::EPILOGUE) {
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x, to.advance()) {
      const Tile place = grouped_tile<GROUP_M>(tile, tiles_m, tiles_n);
      const int row = place.row * BLOCK_M + warp * 32, own = row + threadIdx.x % 32;
      const float of_row = own < M ? a_scale[own] : 0.f;
      const auto scale = [&](float (&x)[32], int column) {
#pragma unroll
        for (int i = 0; i < 32; ++i) x[i] *= of_row * (column + i < N ? b_scale[column + i] : 0.f);
      };
      shared.done.wait(to);
      tensor_take_over();
      shared.c[warp].store<BLOCK_N>({C_boxes, C, M, N, ldc},
                                    shared.sums + (warp * 32 << 16) + to.stage * BLOCK_N, row,
                                    place.column * BLOCK_N, scale);
      tensor_hand_over();
      shared.done.release(to.stage);
    }
    tma_store_wait_read<0>();
  }
  tensor_end<ACCUMULATORS * BLOCK_N, 1>(shared.sums);
}
