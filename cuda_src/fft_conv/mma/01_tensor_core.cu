// y = ifft(fft(u) spectrum) of every sequence over PERIOD = FIRST x SECOND places, see products.cuh and
// ../sequence.cuh. u, y: (batch, channels, length); spectrum: (channels, PERIOD, 2), of the filters and
// divided by PERIOD; roots: exp(-2 pi i j / PERIOD). bf16.
//
// tensor cores: a transform is two products with matrices: FIRST x FIRST from the left and SECOND x SECOND
// from the right. these matrices stay in shared memory. the sequences of two batches are the real and the
// imaginary part of a matrix, in the order in which they are stored. from the first product to the third
// everything stays in registers. then rows are exchanged through shared memory. a block takes pairs of
// sequences of one channel, one pair after the other. meanwhile cp.async loads the next pair.
//
// what it gains: PERIOD (FIRST + SECOND) products replace log PERIOD steps of butterflies. these are more
// operations, but tensor cores compute them. one exchange through shared memory replaces four.
//
// what limits it: the operands of the products pass through registers. they are bf16, so each rounding leaves
// 8 bits.

#include "products.cuh"

struct Shared {
  Matrices<FIRST, SECOND> matrices;
  Complex<FIRST, SECOND> x[2][PAIRS];
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    fft_conv_tensor_core(const IN* u, const float2* spectrum, const float2* roots, IN* y, int batch,
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
  make_matrix(shared.matrices.left, roots);
  if (FIRST != SECOND) make_matrix(shared.matrices.right(), roots);

  for (int round = 0; round < rounds; ++round) {
    const int own = number(round);
    cp_async_wait<0>();
    __syncthreads();  // the sequences have come, and everyone is done with those before
    load(round + 1);
    const auto to = [&](int part) { return own + part < batch ? y + (own + part) * next : nullptr; };
    convolve(shared.matrices, shared.x[round % 2][group], spectrum, roots, to, length, depth);
  }
}
