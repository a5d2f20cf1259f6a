// tiles of outputs: added up where several blocks share one, completed, and stored by way of shared memory.
#pragma once
#include "tile/last_block.cuh"
#include "tiles.cuh"

constexpr int STAGED = BLOCK_N + CHUNK;  // elements of a staged row: neighbours are in other banks

// leaves the sums of one of `splits` blocks in `partial`; by the last of them, adds all up and returns true
__device__ __forceinline__ bool add_up(Sums& sums, float* partial, unsigned* counters, int tile, int split,
                                       int splits) {
  constexpr int FOURS = TILES_M * TILES_N, WHOLE = BLOCK_M * BLOCK_N;
  float* const first = partial + (static_cast<long long>(tile) * splits * THREADS * FOURS + threadIdx.x) * 4;
  float (&mine)[FOURS][4] = reinterpret_cast<float (&)[FOURS][4]>(sums.sum);
  float* const own = first + static_cast<long long>(split) * WHOLE;
#pragma unroll
  for (int i = 0; i < FOURS; ++i)
    store_vector(own + i * THREADS * 4, Vector<float, 4>{mine[i][0], mine[i][1], mine[i][2], mine[i][3]});
  __syncthreads();  // all threads have stored before one counts for them
  if (!last_block(counters + tile, splits)) return false;
#pragma unroll
  for (int i = 0; i < FOURS; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) mine[i][e] = 0.f;
#pragma unroll 2
  for (int other = 0; other < splits; ++other)
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
      const auto found = load_vector<4>(first + static_cast<long long>(other) * WHOLE + i * THREADS * 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) mine[i][e] += found.x[e];
    }
  return true;
}

// rows of a staged tile to y, WIDTH elements at once
template <int WIDTH>
__device__ __forceinline__ void store_rows(const IN* staged, const Convolution& c, const OutputTile& tile,
                                           IN* y) {
  constexpr int MOVED = BLOCK_N / WIDTH;
  const int pixels = c.pixels - tile.pixel, filters = c.group_filters - tile.filter;
  y += static_cast<long long>(tile.pixel) * c.filters + tile.group * c.group_filters + tile.filter;
#pragma unroll 4
  for (int i = threadIdx.x; i < BLOCK_M * MOVED; i += THREADS) {
    const int row = i / MOVED, column = i % MOVED * WIDTH;
    if (row < pixels && column < filters)
      store_vector(y + static_cast<long long>(row) * c.filters + column,
                   load_vector<WIDTH>(staged + row * STAGED + column));
  }
}

// completes the sums, and stores them by way of shared memory, so that threads side by side store what lies
// side by side
__device__ __forceinline__ void store(IN* staged, const Sums& sums, const Convolution& c,
                                      const OutputTile& tile, const IN* bias, IN* y) {
  const int lane = threadIdx.x % WARP, filters = c.group_filters - tile.filter;
  const int row = Sums::first_row() + lane / 4, column = Sums::first_column() + lane % 4 * 2;
  const IN* const own = bias ? bias + tile.group * c.group_filters + tile.filter : nullptr;
#pragma unroll
  for (int j = 0; j < TILES_N; ++j) {
    const int at = column + j * MMA_N;
    const float first = own && at < filters ? to_float(own[at]) : 0.f;
    const float second = own && at + 1 < filters ? to_float(own[at + 1]) : 0.f;
#pragma unroll
    for (int i = 0; i < TILES_M * 2; ++i) {  // 8 rows at a time
      const float* s = &sums.sum[i / 2][j][i % 2 * 2];
      store_vector(staged + (row + i * 8) * STAGED + at,
                   Vector<IN, 2>{from_float<IN>(activate<ACTIVATION>(s[0] + first)),
                                 from_float<IN>(activate<ACTIVATION>(s[1] + second))});
    }
  }
  __syncthreads();  // the tile is complete
  if (c.group_filters % CHUNK == 0)
    store_rows<CHUNK>(staged, c, tile, y);
  else if (c.group_filters % 2 == 0)
    store_rows<2>(staged, c, tile, y);
  else
    store_rows<1>(staged, c, tile, y);
}
