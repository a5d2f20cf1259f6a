// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_100a.
//
// stage 3, two accumulators: as many blocks as fit on the device stay there and take one tile of C after the
// other. tensor memory holds the sums of two tiles. while four warps store one of them, the products of the next
// go to the other. mbarriers hand an accumulator back and forth, as those of the circular buffer do a k-tile.
//
// what it gains: the tensor cores go on while a tile is stored, and k-tiles of the next tile are loaded ahead.
//
// what limits it: each block loads all of its operands into its own shared memory, whose bandwidth is just
// enough for a tile of 128 x 256. a product with few tiles keeps only few blocks busy.

#include "product.cuh"

constexpr int ACCUMULATORS = 2;
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
    gemm_two_accumulators(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                          const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
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
      shared.done.wait(to);
      tensor_take_over();
      shared.c[warp].store<BLOCK_N>({C_boxes, C, M, N, ldc},
                                    shared.sums + (warp * 32 << 16) + to.stage * BLOCK_N,
                                    place.row * BLOCK_M + warp * 32, place.column * BLOCK_N);
      tensor_hand_over();
      shared.done.release(to.stage);
    }
    tma_store_wait_read<0>();
  }
  tensor_end<ACCUMULATORS * BLOCK_N, 1>(shared.sums);
}
