// averages on their way through shared memory: a warp puts its 16 rows where its queries were, and TMA stores
// them from there. sm_90a.
#pragma once
#include "ptx/mma.cuh"
#include "ptx/named_barrier.cuh"
#include "specialised.cuh"
#include "tile/swizzle.cuh"

// a warp's chunk of 8 elements of a row of its queries
__device__ __forceinline__ IN* chunk_of(Queries& queries, int row, int chunk) {
  using Chunks = Swizzled<IN, ROW_BYTES>;
  return Chunks::chunk(queries.panel[chunk / Chunks::CHUNKS], row, chunk % Chunks::CHUNKS);
}

struct Outputs {
  const TensorMap& o;
  int stored = -1;  // the place of the queries that TMA still reads

  // by a consumer warp, which has multiplied its queries for the last time
  __device__ __forceinline__ void store(const Operands& g, Shared& shared, const WorkTile& tile,
                                        Averages& averages, int consumer, QueryPlace& queries) {
    constexpr int ROWS = 16, ROWS_OF_WARPGROUP = WGMMA_M;
    const int warp = threadIdx.x % WARPGROUP / WARP, lane = threadIdx.x % WARP;
    const int first = consumer * ROWS_OF_WARPGROUP + warp * ROWS;
    Queries& place = shared.q[queries.stage];
    float factor[2], log_sum[2];
    averages.softmax.finish(g.scale, factor, log_sum);
    scale_rows(averages.sum, factor);
    u32 rounded[DIM / WGMMA_K][4];
    to_left_operand<IN>(rounded, averages.sum);
    named_sync<WARPGROUP>(1 + WARPGROUPS + consumer);  // until all of its warps have multiplied them
#pragma unroll
    for (int i = 0; i < DIM / WGMMA_K; ++i)
      stmatrix_x4(chunk_of(place, first + lane % ROWS, i * 2 + lane / ROWS), rounded[i]);
    async_fence();
    __syncwarp();
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < Queries::PANELS; ++i)
        tma_store(o, place.panel[i] + first * Queries::WIDTH, tile.batch, tile.head, tile.first + first,
                  i * Queries::WIDTH);
      tma_store_commit();
    }
    if (lane % ROW_LANES == 0) {
      const long long head = static_cast<long long>(tile.batch) * g.heads + tile.head;
      float* const lse = g.lse + head * g.rows + averages.row;
      if (averages.row < g.rows) lse[0] = log_sum[0];
      if (averages.row + 8 < g.rows) lse[8] = log_sum[1];
    }
    stored = queries.stage;
    queries.advance();
    if (QUERY_BUFFERS == 1) release(shared);
  }

  // when the first keys of the next work tile are multiplied, and at the end: the producer may fill the place
  // again
  __device__ __forceinline__ void release(Shared& shared) {
    if (stored >= 0 && threadIdx.x % WARP == 0) {
      tma_store_wait_read<0>();
      mbarrier_arrive(shared.q_empty[stored]);
    }
    stored = -1;
  }
};
