// GROUP_M and SERPENTINE are given. the place of tile t of so many rows and columns of tiles. row, column:
// (threads)
#include "ptx/shared.cuh"
#include "scheduler/tile_order.cuh"

extern "C" __global__ void order(u32* row, u32* column, int rows, int columns) {
  const Tile place = SERPENTINE ? serpentine_tile<GROUP_M>(threadIdx.x, rows, columns)
                                : grouped_tile<GROUP_M>(threadIdx.x, rows, columns);
  row[threadIdx.x] = place.row;
  column[threadIdx.x] = place.column;
}

// k_tile: (threads). which k-tile each iteration of a block's tile takes
extern "C" __global__ void iterations(u32* k_tile, int number, int iterations) {
  k_tile[threadIdx.x] = serpentine_order(number, iterations)(threadIdx.x);
}
