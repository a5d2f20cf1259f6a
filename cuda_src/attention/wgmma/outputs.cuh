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
  static constexpr int ROWS = 16, NAME = 8;  // of a warp; of the first consumer's named barrier
  const TensorMap& o;
  int stored = -1;  // the place of the queries that TMA still reads

  // the first row of a warp within a work tile
  static __device__ __forceinline__ int first_row(int consumer) {
    return consumer * WGMMA_M + threadIdx.x % WARPGROUP / WARP * ROWS;
  }

  // sums become averages, and the logarithms of the sums of exponentials are stored: `lse` is that of row 0
  // of so many
  static __device__ __forceinline__ void finish(const Operands& g, Averages& averages, float* lse, int rows) {
    float factor[2], log_sum[2];
    averages.softmax.finish(g.scale, factor, log_sum);
    scale_rows(averages.sum, factor);
    if (threadIdx.x % ROW_LANES > 0) return;
    if (averages.row < rows) lse[averages.row] = log_sum[0];
    if (averages.row + 8 < rows) lse[averages.row + 8] = log_sum[1];
  }

  // by a consumer warp, whose warpgroup has multiplied its queries for the last time: averages go where these
  // are, and to rows from `row` of a head on
  __device__ __forceinline__ void store(Shared& shared, const Averages& averages, int batch, int head,
                                        int row, int consumer, const QueryPlace& queries) {
    const int first = first_row(consumer), lane = threadIdx.x % WARP;
    Queries& place = shared.q[queries.stage];
    u32 rounded[DIM / WGMMA_K][4];
    to_left_operand<IN>(rounded, averages.sum);
#pragma unroll
    for (int i = 0; i < DIM / WGMMA_K; ++i)
      stmatrix_x4(chunk_of(place, first + lane % ROWS, i * 2 + lane / ROWS), rounded[i]);
    async_fence();
    __syncwarp();
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < Queries::PANELS; ++i)
        tma_store(o, place.panel[i] + first * Queries::WIDTH, batch, head, row, i * Queries::WIDTH);
      tma_store_commit();
    }
  }

  // until all warps of the warpgroup have multiplied their queries
  static __device__ __forceinline__ void gather(int consumer) { named_sync<WARPGROUP>(NAME + consumer); }

  // the place of the queries is done with, as soon as TMA has read it
  __device__ __forceinline__ void leave(Shared& shared, QueryPlace& queries) {
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

// a work tile of attention: what is beyond its rows TMA leaves out
__device__ __forceinline__ void store_tile(Outputs& outputs, const Operands& g, Shared& shared,
                                           const WorkTile& tile, Averages& averages, int consumer,
                                           QueryPlace& queries) {
  const long long head = static_cast<long long>(tile.batch) * g.heads + tile.head;
  Outputs::finish(g, averages, g.lse + head * g.rows, g.rows);
  Outputs::gather(consumer);
  outputs.store(shared, averages, tile.batch, tile.head, tile.first + Outputs::first_row(consumer), consumer,
                queries);
  outputs.leave(shared, queries);
}
