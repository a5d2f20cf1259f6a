// in which order blocks take the tiles of a grid of tiles, and iterate within each of them.
#pragma once

struct Tile {
  int row, column;
};

// grouped rasterisation: tile `number` of so many rows and columns of tiles. GROUP rows are walked together,
// column by column, so that blocks that work at the same time find each other's inputs in the L2
template <int GROUP>
__device__ __forceinline__ Tile grouped_tile(int number, int rows, int columns) {
  const int whole = GROUP * columns;
  const int group = number < whole ? 0 : number / whole;  // the first tile of a block is waited for
  const int within = number - group * whole, height = min(GROUP, rows - group * GROUP);
  // of a whole group without a division at run time: unsigned, or compilers make it one with that below
  const unsigned in_all = number;
  if (height == GROUP)
    return {group * GROUP + static_cast<int>(in_all % GROUP),
            static_cast<int>(in_all / GROUP) - group * columns};
  return {group * GROUP + within % height, within / height};
}

// how serpentine_tile divides so many rows of tiles: into groups of about GROUP rows, as equal as can be, as
// of a low one blocks have little in common. tile `number` lies in group `group`, at `within`
template <int GROUP>
struct EqualGroups {
  int group, within, first, height;

  __device__ __forceinline__ EqualGroups(int number, int rows, int columns) {
    const int groups = max(1, (rows + GROUP / 2) / GROUP), most = (rows + groups - 1) / groups;
    const int whole = most * columns;
    group = number < whole ? 0 : number / whole;
    within = number - group * whole;
    first = group * most;
    height = min(most, rows - first);
  }
};

// serpentine rasterisation: every other group is walked from right to left. it begins with the columns that
// the group before ended with, and has left in the L2
template <int GROUP>
__device__ __forceinline__ Tile serpentine_tile(int number, int rows, int columns) {
  const EqualGroups<GROUP> in(number, rows, columns);
  const int column = in.within / in.height;
  return {in.first + in.within % in.height, in.group % 2 ? columns - 1 - column : column};
}

// in which order the k-iterations of a tile take its k-tiles
struct IterationOrder {
  int first, by;

  __device__ __forceinline__ int operator()(int iteration) const { return first + iteration * by; }
};

// serpentine, too: of the `iterations` of a block's tile `number`, every other tile goes back from the last
// to the first. what it shares with the tile before is then what was read last, and still in the L2
__device__ __forceinline__ IterationOrder serpentine_order(int number, int iterations) {
  return number % 2 ? IterationOrder{iterations - 1, -1} : IterationOrder{0, 1};
}
