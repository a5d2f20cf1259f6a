// OUT, WIDE and IN_CHUNKS are given
#include "epilogue/staging.cuh"

using Columns = Staging<OUT, WIDE>;

// what a warp holds as one of a wgmma does, 16 rows of WIDE, goes to shared memory
__device__ void put(const float* sums, OUT* staged) {
  const int lane = threadIdx.x;
  float sum[WIDE / 2];
  for (int i = 0; i < WIDE / 2; ++i) {
    const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    sum[i] = sums[row * WIDE + column];
  }
  Columns::put(staged, sum);
  __syncwarp();
}

// y = that, as it lies there
extern "C" __global__ void put_and_read(const float* sums, OUT* y) {
  __shared__ alignas(128) OUT staged[Columns::ELEMENTS];
  put(sums, staged);
  for (int i = threadIdx.x; i < Columns::ROWS * Columns::CHUNKS; i += 32) {
    const OUT* from = Columns::chunk(staged, i / Columns::CHUNKS, i % Columns::CHUNKS);
    store_vector(y + i * Columns::CHUNK, load_vector<Columns::CHUNK>(from));
  }
}

// y = the first M rows and N columns of it
extern "C" __global__ void put_and_store(const float* sums, OUT* y, const __grid_constant__ TensorMap boxes,
                                         int M, int N) {
  __shared__ alignas(128) OUT staged[Columns::ELEMENTS];
  put(sums, staged);
  Columns::by_threads<IN_CHUNKS>({boxes, y, M, N, N}, staged, 0, 0);
}
