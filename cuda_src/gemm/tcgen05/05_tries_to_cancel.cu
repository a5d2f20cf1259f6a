// C[m, n] = sum_k A[m, k] B[k, n], with TRANS_B: B[n, k]. A: (M, K), C: (M, N), rows ldc elements apart. A
// and B come as tensor maps, so their rows are multiples of 16 bytes; C too, where its rows are. bf16 and
// fp16, sm_100a.
//
// stage 5, tries to cancel: the grid has a block for each tile, as where none is persistent. who is done with a tile
// takes over that of a block that has not started yet, by clusterlaunchcontrol.try_cancel: that block never starts. one
// thread asks, ahead of time, and all warps of the block read the answer.
//
// what it gains: a block that is late takes fewer tiles, and no other waits for it. the hardware hands the tiles out, so
// no counter in memory has to be reset.
//
// what limits it: an answer takes about as long as a load from memory. short tiles wait for it.

#include "product.cuh"
#include "ptx/launch_control.cuh"

constexpr int ACCUMULATORS = 2, ANSWERS = 2, ASKS = TileWarps::ALL;  // the warp behind those of tiles
static_assert(ACCUMULATORS * BLOCK_N <= TENSOR_COLUMNS, "two accumulators have 512 columns: lower BLOCK_N to 256");

using KTile = KTiles<BLOCK_M, BLOCK_N>;

struct Shared {
  KTile k_tiles[STAGES];
  LaneStaging<OUT, 2> c[TileWarps::EPILOGUE];
  Pipeline<STAGES, 1> ring;
  Pipeline<ACCUMULATORS, TileWarps::EPILOGUE> done;
  Pipeline<ANSWERS, TileWarps::ALL> asked;  // of every warp a thread, or all, read an answer
  LaunchAnswer answers[ANSWERS];
  u32 sums;
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the k-tiles do not fit into shared memory: lower STAGES");

// the tiles of a block: its own, then those that it takes over
struct Taken {
  Shared& shared;
  int tile = blockIdx.x;
  Place<ANSWERS> at = {};

  // by each warp, or one thread of it
  __device__ __forceinline__ bool next(bool release) {
    shared.asked.wait(at);
    tile = shared.answers[at.stage].first_block();
    async_fence();  // the next answer is written by the async proxy
    if (release) mbarrier_arrive(shared.asked.empty[at.stage]);
    at.advance();
    return tile >= 0;
  }
};

// by one thread: until nothing is left to be taken over
__device__ __forceinline__ void ask(Shared& shared) {
  for (Place<ANSWERS> at;; at.advance()) {
    shared.asked.acquire(at);
    try_cancel(shared.answers[at.stage], shared.asked.commit(at.stage, sizeof(LaunchAnswer)));
    shared.asked.wait(at);
    if (shared.answers[at.stage].first_block() < 0) return;
  }
}

extern "C" __global__ void __launch_bounds__(TileWarps::THREADS + 32)
    gemm_tries_to_cancel(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
                          const __grid_constant__ TensorMap C_boxes, OUT* C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / 32, iterations = tiles<BLOCK_K>(K);
  const bool first_lane = threadIdx.x % 32 == 0;
  const int tiles_m = tiles<BLOCK_M>(M), tiles_n = tiles<BLOCK_N>(N);

  tensor_begin<ACCUMULATORS * BLOCK_N, 1>(shared.sums, shared.ring, shared.done, shared.asked);

  Place<STAGES> at;
  Place<ACCUMULATORS> to;
  Taken taken{shared};
  if (warp == TileWarps::LOADS && first_lane) {
    do {
      const Tile place = grouped_tile<GROUP_M>(taken.tile, tiles_m, tiles_n);
      load_k_tiles(shared.k_tiles, shared.ring, at, iterations, [&](KTile& k_tile, Barrier& full, int k) {
        k_tile.load(A, B, full, place.row * BLOCK_M, place.column * BLOCK_N, k);
      });
    } while (taken.next(true));
  } else if (warp == TileWarps::MULTIPLIES && first_lane) {
    do {
      shared.done.acquire(to);
      tensor_take_over();
      multiply_k_tiles<1>(shared.k_tiles, shared.ring, at, iterations, shared.sums + to.stage * BLOCK_N,
                         shared.done.full[to.stage]);
      to.advance();
    } while (taken.next(true));
  } else if (warp == ASKS && first_lane) {
    ask(shared);
  } else if (warp < TileWarps::EPILOGUE) {
    bool more = true;
    while (more) {
      const Tile place = grouped_tile<GROUP_M>(taken.tile, tiles_m, tiles_n);
      shared.done.wait(to);
      tensor_take_over();
      shared.c[warp].store<BLOCK_N>({C_boxes, C, M, N, ldc},
                                    shared.sums + (warp * 32 << 16) + to.stage * BLOCK_N,
                                    place.row * BLOCK_M + warp * 32, place.column * BLOCK_N);
      tensor_hand_over();
      shared.done.release(to.stage);
      to.advance();
      more = taken.next(false);
      __syncwarp();
      if (first_lane) mbarrier_arrive(shared.asked.empty[(taken.at.stage + ANSWERS - 1) % ANSWERS]);
    }
    tma_store_wait_read<0>();
  }
  tensor_end<ACCUMULATORS * BLOCK_N, 1>(shared.sums);
}
