// tiles of outputs whose k-tiles several blocks share: which of them a block takes, how the last of the
// blocks adds up what all have, and what follows a sum. sm_90a.
#pragma once
#include "../convolution.cuh"
#include "epilogue/register_sums.cuh"
#include "epilogue/rows.cuh"
#include "tile/k_tile.cuh"

constexpr int BLOCK_K = KTile<IN>::DEPTH;

struct Operands {
  const TensorMap &x, &f;
  Rows<IN> rows;  // of y: a pixel each
  const IN* bias;
  const Convolution& c;
  float* partial;
  unsigned* counters;
  int splits;
};

// a block's part of a tile
struct TilePart {
  int iterations, channel_tiles;
  int number, split, first;  // of the tile; of the block among those that share it; of its k-tiles
  OutputTile at;
  Convolution::Window window;  // of the first pixel

  // what a block takes in a round: every so many-th part. false: there is none left
  __device__ __forceinline__ bool take(const Operands& g, int round) {
    channel_tiles = (g.c.group_channels + BLOCK_K - 1) / BLOCK_K;
    return take(g, round, g.c.taps_y * g.c.taps_x * channel_tiles);
  }

  // the same where a sum has so many k-tiles
  __device__ __forceinline__ bool take(const Operands& g, int round, int all) {
    const long long mine = blockIdx.x + static_cast<long long>(round) * gridDim.x;
    const int across = (g.c.group_filters + BLOCK_N - 1) / BLOCK_N;
    const int down = (g.c.pixels + BLOCK_M - 1) / BLOCK_M;
    if (mine >= static_cast<long long>(down) * across * g.c.groups() * g.splits) return false;
    number = mine / g.splits, split = mine % g.splits;
    first = static_cast<long long>(all) * split / g.splits;
    iterations = static_cast<long long>(all) * (split + 1) / g.splits - first;
    at = OutputTile::numbered(g.c, number, BLOCK_M, BLOCK_N);
    window = g.c.window(at.pixel);
    return true;
  }
};

// the same tile's sums of THREADS consumers: true in the last of the blocks that share it, with all of them
template <int THREADS, int BANDS, int SUMS>
__device__ __forceinline__ bool add_up(const Operands& g, const TilePart& tile, float (&sum)[BANDS][SUMS],
                                       bool& last) {
  constexpr int WHOLE = THREADS * BANDS * SUMS;
  return add_parts<THREADS>(sum, tile.split, g.splits,
                            g.partial + static_cast<long long>(tile.number) * g.splits * WHOLE,
                            g.counters + tile.number, last);
}

// bias and activation of what a thread holds of a wgmma in WIDTH columns
template <int WIDTH>
__device__ __forceinline__ void complete(const Operands& g, float* sum, int filter) {
  if (ACTIVATION == IDENTITY && !g.bias) return;
#pragma unroll
  for (int i = 0; i < WIDTH / 2; i += 4)  // 8 columns, in rows lane / 4 and lane / 4 + 8
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int at = filter + i * 2 + threadIdx.x % 4 * 2 + e;
      const float added = g.bias && at < g.c.filters ? to_float(g.bias[at]) : 0.f;
      sum[i + e] = activate<ACTIVATION>(sum[i + e] + added);
      sum[i + 2 + e] = activate<ACTIVATION>(sum[i + 2 + e] + added);
    }
}
