// what the stages of this track have in common: o = softmax(scale q k^T) v. which rows of which head a block
// computes, and which keys those see; how tiles of queries, keys and values are loaded, multiplied and
// stored. sm_90a.
#pragma once
#include "ptx/wgmma_all.cuh"
#include "tile/fragment.cuh"
#include "tile/fragment_softmax.cuh"
#include "tile/panels.cuh"

constexpr int BLOCK_M = WARPGROUPS * WGMMA_M;  // rows of a work tile: a consumer has 64 of them

static_assert(BLOCK_N % WGMMA_K == 0 && BLOCK_N <= 256, "a product takes 16 keys at a time, and at most 256");

template <int ROWS>
using Vectors = Panels<IN, ROWS, DIM>;
using Queries = Vectors<BLOCK_M>;
using Keys = Vectors<BLOCK_N>;

// what a kernel is given: tensor maps of (batch, head, row, element); o with any strides; lse (batch, head,
// row)
struct Operands {
  const TensorMap &q, &k, &v;
  IN* o;
  float* lse;
  long long o_batch, o_head, o_row;  // elements to the next
  int heads, group, rows, keys, dim;
  float scale;

  __device__ __forceinline__ int row_tiles() const { return (rows + BLOCK_M - 1) / BLOCK_M; }

  // how many keys a row sees
  __device__ __forceinline__ int seen(int row) const {
    return CAUSAL ? max(0, min(keys, row + 1 + keys - rows)) : keys;
  }
};

// BLOCK_M rows of a head, from `first` on, and how many tiles of keys they see
struct WorkTile {
  int batch, head, first, tiles;

  WorkTile() = default;

  __device__ __forceinline__ WorkTile(const Operands& g, int head_of_all, int row_tile)
      : batch(head_of_all / g.heads), head(head_of_all % g.heads), first(row_tile * BLOCK_M) {
    tiles = (g.seen(min(first + BLOCK_M, g.rows) - 1) + BLOCK_N - 1) / BLOCK_N;
  }

  // where it begins in the arrays, and where its tiles of keys do
  __device__ __forceinline__ int query_row() const { return first; }
  __device__ __forceinline__ int key_row(int tile) const { return tile * BLOCK_N; }
};

// by a warpgroup: has the logits of its 64 rows computed, which begin at `first` of the tile
__device__ __forceinline__ void multiply_keys(float (&logits)[BLOCK_N / 2], const Queries& q, int first,
                                              const Keys& k) {
  multiply_vectors(logits, q, first, k);
}

// by a warpgroup: has the values, weighted, added to the sums of its rows
__device__ __forceinline__ void add_values(float (&sum)[DIM / 2], const u32 (&weights)[BLOCK_N / WGMMA_K][4],
                                           const Keys& v) {
  add_weighted(sum, weights, v);
}

// what a consumer warpgroup keeps of its 64 rows: a thread of two of them. `sequence` is what knows how many
// keys a row sees: seen(row)
struct Averages {
  float sum[DIM / 2] = {};
  FragmentSoftmax softmax;
  int row;    // of the head, the other is 8 further down
  int whole;  // tiles of keys that all rows of the warpgroup see all of

  template <class Sequence, class Tile>
  __device__ __forceinline__ Averages(const Sequence& sequence, const Tile& tile, int consumer) {
    const int first = tile.first + consumer * WGMMA_M;
    row = first + threadIdx.x % WARPGROUP / WARP * 16 + threadIdx.x % WARP / ROW_LANES;
    whole = sequence.seen(first) / BLOCK_N;
  }

  // logits of the keys of a tile that a row does not see are masked
  template <class Sequence>
  __device__ __forceinline__ void mask(const Sequence& sequence, float (&logits)[BLOCK_N / 2],
                                       int tile) const {
    mask_columns(logits, {sequence.seen(row) - tile * BLOCK_N, sequence.seen(row + 8) - tile * BLOCK_N});
  }

  __device__ __forceinline__ void store(const Operands& g, const WorkTile& tile) {
    const long long head = static_cast<long long>(tile.batch) * g.heads + tile.head;
    store(g, g.rows, tile.batch * g.o_batch + tile.head * g.o_head, head * g.rows);
  }

  // of so many rows, the first of which has its results at these places
  __device__ __forceinline__ void store(const Operands& g, int rows, long long first_o, long long first_lse) {
    constexpr int CHUNK = VECTOR_BYTES / sizeof(IN);
    float factor[2], log_sum[2];
    softmax.finish(g.scale, factor, log_sum);
    scale_rows(sum, factor);
    IN* const o = g.o + first_o + row * g.o_row;
    const bool inside[2] = {row < rows, row + 8 < rows};
    store_rows({o, o + 8 * g.o_row}, inside, sum, g.dim, g.o_row % CHUNK == 0 && g.o_head % CHUNK == 0);
    if (threadIdx.x % ROW_LANES == 0) {
      float* const lse = g.lse + first_lse + row;
      if (inside[0]) lse[0] = log_sum[0];
      if (inside[1]) lse[8] = log_sum[1];
    }
  }
};
