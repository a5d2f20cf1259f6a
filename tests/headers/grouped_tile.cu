// GROUP_M and WINDING are given. the place of tile t of so many rows and columns of tiles. row, column:
// (threads)
#include "epilogue/tiles.cuh"

extern "C" __global__ void order(u32* row, u32* column, int rows, int columns) {
  const Tile place = WINDING ? winding_tile<GROUP_M>(threadIdx.x, rows, columns)
                             : grouped_tile<GROUP_M>(threadIdx.x, rows, columns);
  row[threadIdx.x] = place.row;
  column[threadIdx.x] = place.column;
}
