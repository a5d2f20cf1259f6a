// y = ifft(fft(u) spectrum) of every sequence over PERIOD = FIRST x SECOND places, see ../symmetric.cuh and
// ../sequence.cuh. u, y: (batch, channels, length); spectrum: (channels, PERIOD, 2), of the filters and
// divided by PERIOD; roots: exp(-2 pi i j / PERIOD). FIRST is 64 or 128, SECOND 16 to 128. bf16. sm_90a.
//
// wgmma: a warpgroup has 64 rows of all its pairs. the tensor cores read matrices and sequences from shared
// memory. where rows are short, several pairs lie side by side.
//
// what it gains: before, each warp loaded its operands from shared memory into registers. now no operand from
// shared memory passes through registers. results leave through shared memory, in whole rows.
//
// what limits it: the fp32 operations between products, which are 24 for each place. half of them are for
// twiddle factors.

#include "products.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    fft_conv_wgmma(const IN* u, const float2* spectrum, const float2* roots, IN* y, int batch, int channels,
                   int length, int extended) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int group = uniform(threadIdx.x / WARPGROUP);
  const bool edge = threadIdx.x < WARP;                 // a lane of the warp may be one
  const bool half = !extended && length <= PERIOD / 2;  // of the rows are zero

  // work tiles: PAIRS pairs of a channel each
  const int each = (batch + 2 * PAIRS - 1) / (2 * PAIRS);
  const long long tiles = static_cast<long long>(channels) * each;
  const int first = tiles * blockIdx.x / gridDim.x, end = tiles * (blockIdx.x + 1) / gridDim.x;
  const long long next = static_cast<long long>(channels) * length;  // sequence of a channel
  const auto load = [&](int tile) {
    if (tile < end) {
      const int sequence = tile % each * PAIRS * 2;
      const IN* const from = u + sequence * next + static_cast<long long>(tile / each) * length;
      shared.x[(tile - first) % 2].load(from, next, batch - sequence, length, extended);
    }
    cp_async_commit();
  };
  load(first);
  make_matrix<false, FIRST, THREADS>(roots,
                                     [&](int row, int chunk) { return shared.left.chunk(row, chunk); });
  shared.right.make(roots);
  const PairedTurns turns(roots, frequency_of(row_of(threadIdx.x)));

  for (int tile = first; tile < end; ++tile) {
    const int thread = recomputed(threadIdx.x);
    Sequences& x = shared.x[(tile - first) % 2];
    cp_async_wait<0>();
    async_fence();
    __syncthreads();  // the sequences have come, and everyone is done with those before
    load(tile + 1);

    Operand<WIDTH> places, frequencies;
    PairedTurns forward = turns, back = turns;
#pragma unroll
    for (int column = 0; column < WIDTH; column += LEFT_COLUMNS) {
      Sums<LEFT_COLUMNS> sums = {};
      if (half)
        multiply_left<false, FIRST / 2>(sums, shared.left, group * BAND, x, column);
      else
        multiply_left<false>(sums, shared.left, group * BAND, x, column);
      forward.renew();
      if (edge)
        forward.forward<true>(sums);
      else
        forward.forward<false>(sums);
      places.set(sums, column);
    }
    const float2* const own = spectrum + static_cast<long long>(tile / each) * PERIOD;
#pragma unroll
    for (int column = 0; column < WIDTH; column += RIGHT_COLUMNS) {
      Sums<RIGHT_COLUMNS> sums = {};
      const Spectrum<RIGHT_COLUMNS> factors(own, frequency_of(row_of(thread)), column);
      multiply_right<true>(sums, places, shared.right, column);
      if (edge)
        factors.multiply<true>(sums, turns.edge);
      else
        factors.multiply<false>(sums, false);
      frequencies.set(sums, column);
    }
    __syncthreads();  // everyone is done with the sequences
#pragma unroll
    for (int column = 0; column < WIDTH; column += RIGHT_COLUMNS) {
      Sums<RIGHT_COLUMNS> sums = {};
      multiply_right<false>(sums, frequencies, shared.right, column);
      back.renew();
      if (edge)
        back.back<true>(sums);
      else
        back.back<false>(sums);
      x.store(sums, thread, column);
    }
    async_fence();
    __syncthreads();  // the rows of all warps are there

    const int sequence = tile % each * PAIRS * 2;
    IN* const to = y + sequence * next + static_cast<long long>(tile / each) * length;
    const bool stored = group * BAND * SECOND < length;  // whether anything of these rows is
#pragma unroll 1
    for (int column = 0; column < WIDTH; column += LEFT_COLUMNS) {
      Sums<LEFT_COLUMNS> sums = {};
      if (stored) multiply_left<true>(sums, shared.left, group * BAND, x, column);
      __syncthreads();  // everyone is done with these columns
      if (!stored) continue;
      x.store(sums, thread, column);
      __syncwarp();
      store_sequences<LEFT_COLUMNS>(to, next, batch - sequence, x, thread, column, length);
    }
  }
}
