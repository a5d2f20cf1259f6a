// y = ifft(fft(u) spectrum) of every sequence over PERIOD = FIRST x SECOND places, see ../symmetric.cuh and
// ../sequence.cuh. u, y: (batch, channels, length); spectrum: (channels, PERIOD, 2), of the filters and
// divided by PERIOD; roots: exp(-2 pi i j / PERIOD). bf16.
//
// symmetric: frequencies k and -k share their products with cosines and sines. so a matrix has as many real
// numbers as it had complex ones before. both parts of a matrix of sequences, real and imaginary, are
// multiplied by the same real matrix.
//
// what it gains: half as many products, and half as many loads of matrices and of the spectrum.
//
// what limits it: for each product from the left, each warp loads all sequences of a pair from shared memory.

#include "convolve.cuh"

struct Shared {
  RealMatrix<FIRST> left;
  RealMatrix<SECOND> right;
  Complex<FIRST, SECOND> x[2][PAIRS];
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    fft_conv_symmetric(const IN* u, const float2* spectrum, const float2* roots, IN* y, int batch,
                       int channels, int length, int extended, int rounds) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int group = threadIdx.x / GROUP_THREADS;
  const int depth = extended ? FIRST : min(FIRST, (length + SECOND - 1) / SECOND);  // rows that are not zero
  const long long next = static_cast<long long>(channels) * length;                 // sequence of a channel
  u += static_cast<long long>(blockIdx.x) * length;
  y += static_cast<long long>(blockIdx.x) * length;
  spectrum += static_cast<long long>(blockIdx.x) * PERIOD;

  const auto number = [&](int round) { return ((blockIdx.y * rounds + round) * PAIRS + group) * 2; };
  const auto load = [&](int round) {
    if (round < rounds) {
      const int own = number(round);
      shared.x[round % 2][group].load({own < batch ? u + own * next : nullptr, length, extended},
                                      {own + 1 < batch ? u + (own + 1) * next : nullptr, length, extended});
    }
    cp_async_commit();
  };
  load(0);
  make_matrix<false, FIRST, THREADS>(roots,
                                     [&](int row, int chunk) { return shared.left.chunk(row, chunk); });
  make_matrix<true, SECOND, THREADS>(roots,
                                     [&](int row, int chunk) { return shared.right.chunk(row, chunk); });
  const int frequency = frequency_of_lane();
  const PairedTurns turns(roots, frequency);

  for (int round = 0; round < rounds; ++round) {
    const int own = number(round);
    cp_async_wait<0>();
    __syncthreads();  // the sequences have come, and everyone is done with those before
    load(round + 1);
    const auto to = [&](int part) { return own + part < batch ? y + (own + part) * next : nullptr; };
    convolve(shared.left, shared.right, shared.x[round % 2][group], spectrum, turns, to, length, depth);
  }
}
