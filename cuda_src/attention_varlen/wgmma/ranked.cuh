// sequences in the order of their keys, most first: a kernel before makes a table, in which blocks find
// tiles. sm_90a.
#pragma once
#include "tiles.cuh"

constexpr int RANKED = 8;                 // sequences of a block, a warp each
constexpr int CACHED = 16 * 1024 * 1024;  // bytes of keys and values that stay in the L2

__device__ __forceinline__ int row_tiles(const Sequence& sequence) {
  return (sequence.rows + BLOCK_M - 1) / BLOCK_M;
}

// the kernel before. order: (batch) int32, the sequence of each rank; starts: (batch + 1) int32, how many
// tiles of rows those of lower ranks have. each sequence is compared with all others, so nobody waits for
// anybody
__device__ __forceinline__ void rank_sequences(const int* offsets_q, const int* offsets_k, int* order,
                                               int* starts, int batch) {
  const int mine = blockIdx.x * RANKED + threadIdx.x / WARP;
  if (mine >= batch) return;
  const Sequence own(offsets_q, offsets_k, mine);
  unsigned rank = 0, tiles = 0;
  for (int i = threadIdx.x % WARP; i < batch; i += WARP) {
    const Sequence other(offsets_q, offsets_k, i);
    if (other.keys > own.keys || (other.keys == own.keys && i < mine)) ++rank, tiles += row_tiles(other);
  }
  rank = __reduce_add_sync(ALL_LANES, rank), tiles = __reduce_add_sync(ALL_LANES, tiles);
  if (threadIdx.x % WARP > 0) return;
  order[rank] = mine, starts[rank] = tiles;
  if (rank == batch - 1) starts[batch] = tiles + row_tiles(own);
}

// that table
struct Ranked {
  const int *offsets_q, *offsets_k, *order, *starts;
  int batch;

  // tiles of all heads
  __device__ __forceinline__ int all(int heads) const { return starts[batch] * heads; }

  // tile `number` of them, by a warp, all lanes: rows of some heads in turn, the last rows first; under a
  // mask of as many heads as have their keys and values in the L2, else of those that share them
  __device__ __forceinline__ PackedTile tile(const Operands& g, int number) const {
    const int rank = find_last(batch, number / g.heads, [&](int i) { return starts[i]; });
    const Sequence sequence(offsets_q, offsets_k, order[rank]);
    const int tiles = row_tiles(sequence), within = number - starts[rank] * g.heads;
    const int fitting = CACHED / (2 * static_cast<int>(sizeof(IN))) / g.dim / max(1, sequence.keys);
    const int together = CAUSAL ? max(1, min(g.heads, g.group * fitting)) : g.group;
    const int first = within / (together * tiles) * together, of_group = min(together, g.heads - first);
    const int place = within - first * tiles;
    return {sequence, first + place % of_group, tiles - 1 - place / of_group};
  }
};
