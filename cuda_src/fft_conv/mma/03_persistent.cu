// y = ifft(fft(u) spectrum) of every sequence over PERIOD = FIRST x SECOND places, see ../symmetric.cuh and
// ../sequence.cuh. u, y: (batch, channels, length); spectrum: (channels, PERIOD, 2), of the filters and
// divided by PERIOD; roots: exp(-2 pi i j / PERIOD). bf16.
//
// persistent: there are as many blocks as fit on the device. each block makes the matrices once, and takes
// its share of all pairs. it takes the pairs of a channel one after the other.
//
// what it gains: making the matrices costs as much as several pairs, and now happens once for each block. all
// blocks begin and end together.
//
// what limits it: for each product from the left, each warp loads all sequences of a pair from shared memory.

#include "convolve.cuh"

struct Shared {
  RealMatrix<FIRST> left;
  RealMatrix<SECOND> right;
  Complex<FIRST, SECOND> x[2][PAIRS];
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    fft_conv_persistent(const IN* u, const float2* spectrum, const float2* roots, IN* y, int batch,
                        int channels, int length, int extended) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int group = threadIdx.x / GROUP_THREADS, frequency = frequency_of_lane();
  const int depth = extended ? FIRST : min(FIRST, (length + SECOND - 1) / SECOND);  // rows that are not zero

  // work tiles: PAIRS pairs of a channel each
  const int each = (batch + 2 * PAIRS - 1) / (2 * PAIRS);
  const long long tiles = static_cast<long long>(channels) * each;
  const int first = tiles * blockIdx.x / gridDim.x, end = tiles * (blockIdx.x + 1) / gridDim.x;
  // where sequence 0 or 1 of this pair begins, or -1
  const auto begin = [&](int tile, int part) {
    const long long sequence = (tile % each * PAIRS + group) * 2 + part;
    return sequence < batch ? (sequence * channels + tile / each) * length : -1;
  };
  const auto load = [&](int tile) {
    if (tile < end) {
      const long long re = begin(tile, 0), im = begin(tile, 1);
      shared.x[(tile - first) % 2][group].load({re >= 0 ? u + re : nullptr, length, extended},
                                               {im >= 0 ? u + im : nullptr, length, extended});
    }
    cp_async_commit();
  };
  load(first);
  make_matrix<false, FIRST, THREADS>(roots,
                                     [&](int row, int chunk) { return shared.left.chunk(row, chunk); });
  make_matrix<true, SECOND, THREADS>(roots,
                                     [&](int row, int chunk) { return shared.right.chunk(row, chunk); });
  const PairedTurns turns(roots, frequency);

  for (int tile = first; tile < end; ++tile) {
    cp_async_wait<0>();
    __syncthreads();  // the sequences have come, and everyone is done with those before
    load(tile + 1);
    const auto to = [&](int part) {
      const long long place = begin(tile, part);
      return place >= 0 ? y + place : nullptr;
    };
    const float2* const own = spectrum + static_cast<long long>(tile / each) * PERIOD;
    convolve(shared.left, shared.right, shared.x[(tile - first) % 2][group], own, turns, to, length, depth);
  }
}
