// copies images and filters to arrays whose pixels, and taps, have more channels of a group, `padded`, which
// are a multiple of 16 bytes: 0 in those that are added.
#pragma once
#include "tile/convert.cuh"
#include "tile/vector.cuh"

constexpr int PAD_THREADS = 256, PADDED = VECTOR_BYTES / sizeof(IN);  // a thread writes so many elements

struct PadChannels {
  const IN* from;
  IN* to;
  long long rows;  // pixels times groups, or filters times taps

  // by a thread: 16 bytes of a row. FROM elements of it are read at once, of which `channels` are a multiple
  __device__ __forceinline__ void copy(long long number, int channels, int padded) const {
    const int across = padded / PADDED;
    const long long row = number / across;
    if (row >= rows) return;
    const int first = static_cast<int>(number - row * across) * PADDED;
    Vector<IN, PADDED> held;
#pragma unroll
    for (int e = 0; e < PADDED; e += FROM) {
      Vector<IN, FROM> piece;
#pragma unroll
      for (int i = 0; i < FROM; ++i) piece.x[i] = from_float<IN>(0.f);
      if (first + e < channels) piece = load_vector<FROM>(from + row * channels + first + e);
#pragma unroll
      for (int i = 0; i < FROM; ++i) held.x[e + i] = piece.x[i];
    }
    store_vector(to + number * PADDED, held);
  }
};

// by all blocks of a launch: the first `blocks` copy x, the others f
__device__ __forceinline__ void pad_channels(const PadChannels& x, const PadChannels& f, int blocks,
                                             int channels, int padded) {
  const bool first = blockIdx.x < blocks;
  const long long block = first ? blockIdx.x : blockIdx.x - blocks;
  (first ? x : f).copy(block * PAD_THREADS + threadIdx.x, channels, padded);
}
