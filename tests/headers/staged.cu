// OUT and WIDE are given
#include "tiles.cuh"

// y = what a warp holds as one of a wgmma does, 16 rows of WIDE, by way of shared memory
extern "C" __global__ void put(const float* sums, OUT* y) {
  using Columns = Staged<OUT, WIDE>;
  __shared__ alignas(128) OUT staged[Columns::ELEMENTS];
  const int lane = threadIdx.x;
  float sum[WIDE / 2];
  for (int i = 0; i < WIDE / 2; ++i) {
    const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    sum[i] = sums[row * WIDE + column];
  }
  Columns::put(staged, sum);
  __syncwarp();
  for (int i = lane; i < Columns::ROWS * Columns::CHUNKS; i += 32) {
    const OUT* from = Columns::chunk(staged, i / Columns::CHUNKS, i % Columns::CHUNKS);
    store_vector(y + i * Columns::CHUNK, load_vector<Columns::CHUNK>(from));
  }
}
