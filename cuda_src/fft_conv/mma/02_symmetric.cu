// y = ifft(fft(u) spectrum) of every sequence over PERIOD = FIRST x SECOND places, see symmetric.cuh and
// ../sequence.cuh. u, y: (batch, channels, length); spectrum: (channels, PERIOD, 2), of the filters and
// divided by PERIOD; roots: exp(-2 pi i j / PERIOD). bf16.
//
// symmetric: frequencies k and -k share their products with cosines and sines. so a matrix has as many real
// numbers as there were complex ones, and both parts of a matrix of sequences are multiplied by the same.
//
// what it gains: half of the products, and half of the matrices' loads.
//
// what limits it: each warp loads all of a pair's sequences from shared memory, once for each product from
// the left.

#include "symmetric.cuh"

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
  const int group = threadIdx.x / GROUP_THREADS, rows = threadIdx.x % GROUP_THREADS / WARP * 16;
  const int row = rows + threadIdx.x % WARP / 4, frequency = frequency_of(row);
  const int depth = extended ? FIRST : min(FIRST, (length + SECOND - 1) / SECOND);  // rows that are not zero
  const long long next = static_cast<long long>(channels) * length;                 // sequence of a channel
  u += static_cast<long long>(blockIdx.x) * length;
  y += static_cast<long long>(blockIdx.x) * length;
  spectrum += static_cast<long long>(blockIdx.x) * PERIOD;

  // of both rows of a lane, column 0: where positive frequencies are, and where negative ones
  const int first = FIRST / 2 + FIRST * (threadIdx.x % 4 * 2),
            of_rows[2] = {frequency, -(frequency ? frequency : FIRST / 2)};
  const float2* const positive[2] = {spectrum + of_rows[0] + first, spectrum + of_rows[1] + first};
  const float2* const negative[2] = {spectrum + PERIOD + of_rows[0] - first,
                                     spectrum + PERIOD + of_rows[1] - first};

  const auto number = [&](int round) { return ((blockIdx.y * rounds + round) * PAIRS + group) * 2; };
  const auto load = [&](int round) {
    if (round < rounds) {
      const int own = number(round);
      Complex<FIRST, SECOND>& x = shared.x[round % 2][group];
      load_sequence(x.re, {own < batch ? u + own * next : nullptr, length, extended});
      load_sequence(x.im, {own + 1 < batch ? u + (own + 1) * next : nullptr, length, extended});
    }
    cp_async_commit();
  };
  load(0);
  make_matrix<false>(shared.left, roots);
  make_matrix<true>(shared.right, roots);

  for (int round = 0; round < rounds; ++round) {
    Complex<FIRST, SECOND>& x = shared.x[round % 2][group];
    cp_async_wait<0>();
    __syncthreads();  // the sequences have come, and everyone is done with those before
    load(round + 1);

    Operand places, frequencies;
    PairedTurns turns(roots, frequency);
#pragma unroll
    for (int column = 0; column < SECOND; column += COLUMNS) {
      Sums sums;
      multiply_left<false>(sums, shared.left, rows, x, column, depth);
      if (rows == 0)
        turns.forward<true>(sums);
      else
        turns.forward<false>(sums);
      places.set(sums, column);
    }
    __syncthreads();  // everyone is done with the sequences
#pragma unroll
    for (int column = 0; column < SECOND; column += COLUMNS) {
      Sums sums;
      multiply_right<true>(sums, places, shared.right, column);
      every_pair_of_columns(sums, [&](int half, int slot, float2& c, float2& s) {
        to_frequencies(c, s);
        const int away = FIRST * (column / 2 + slot);
        c = c * positive[half][away], s = s * negative[half][-away];
        from_frequencies(c, s);
      });
      frequencies.set(sums, column);
    }
    PairedTurns back(roots, frequency);
#pragma unroll
    for (int column = 0; column < SECOND; column += COLUMNS) {
      Sums sums;
      multiply_right<false>(sums, frequencies, shared.right, column);
      if (rows == 0)
        back.back<true>(sums);
      else
        back.back<false>(sums);
      store_rows_of_lane(x, sums, row, column);
    }
    __syncthreads();  // the rows of all warps are there

    const int own = number(round);
    if (rows * SECOND >= length || own >= batch) continue;  // nothing of these rows is stored
#pragma unroll 1
    for (int column = 0; column < SECOND; column += COLUMNS) {
      Sums sums;
      multiply_left<true>(sums, shared.left, rows, x, column, FIRST);
      store_part(y + own * next, sums.re, row, column, length);
      if (own + 1 < batch) store_part(y + (own + 1) * next, sums.im, row, column, length);
    }
  }
}
