// TYPE and WIDTH_BYTES are given. a tile of 16 rows, read as it lies in shared memory after TMA wrote it and, `plain`, as
// what it is. x, image, plain: (16, WIDTH_BYTES / sizeof(TYPE))
#include "ptx/tma.cuh"
#include "tile/convert.cuh"
#include "tile/swizzle.cuh"

using Tile = Swizzled<TYPE, WIDTH_BYTES>;

extern "C" __global__ void read(const __grid_constant__ TensorMap x, TYPE* plain, TYPE* by_chunks) {
  __shared__ alignas(1024) TYPE tile[16 * Tile::COLUMNS];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(full, sizeof(tile));
    tma_load(tile, x, full, 0, 0);
  }
  __syncthreads();
  mbarrier_wait(full, 0);
  for (int i = threadIdx.x; i < 16 * Tile::COLUMNS; i += blockDim.x)
    plain[i] = *Tile::at(tile, i / Tile::COLUMNS, i % Tile::COLUMNS);
  for (int i = threadIdx.x; i < 16 * Tile::CHUNKS; i += blockDim.x)
    store_vector(by_chunks + i * Tile::CHUNK,
                 load_vector<Tile::CHUNK>(Tile::chunk(tile, i / Tile::CHUNKS, i % Tile::CHUNKS)));
}
