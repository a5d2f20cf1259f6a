// tiles of rows of packed sequences, numbered where nothing but the offsets is known.
#pragma once
#include "sequences.cuh"

struct RowTile {
  int sequence, head, tile;  // sequence -1: there is none
};

// tiles of ROWS rows. places for them begin at offset / ROWS + i for sequence i: these numbers never
// decrease, and there are as many places as tiles, or one more, which stays empty. so a search in the offsets
// finds what a prefix sum of the numbers of tiles would
template <int ROWS>
struct RowTiles {
  const int* offsets;
  int batch;

  __device__ __forceinline__ int first(int sequence) const { return offsets[sequence] / ROWS + sequence; }

  // place `number` of all heads, by a warp, all lanes: heads of a sequence one after the other, the last tile
  // of each first, which sees the most keys
  __device__ __forceinline__ RowTile find(int number, int heads) const {
    if (number >= first(batch) * heads) return {-1, 0, 0};
    const int place = number / heads;
    const int sequence = find_last(batch, place, [&](int i) { return first(i); });
    const int before = first(sequence), places = first(sequence + 1) - before;
    const int within = number - before * heads;
    return {sequence, within / places, places - 1 - within % places};
  }
};
