// y = ifft(fft(u) spectrum) of every sequence over PERIOD places, see ../sequence.cuh. u, y: (batch,
// channels, length); spectrum: (channels, PERIOD, 2), of the filters and divided by PERIOD; roots: exp(-2 pi
// i j / PERIOD).
//
// paired: the sequences of two batches are the real and the imaginary part of one complex sequence. a filter
// is real. so the convolution of the filter with that sequence has the two results as its real and its
// imaginary part. they do not have to be separated.
//
// what it gains: half as many transforms.
//
// what limits it: the butterflies, and their passes through shared memory.

#include "stockham.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    fft_conv_paired(const IN* u, const float2* spectrum, const float2* roots, IN* y, int batch, int channels,
                    int length, int extended) {
  extern __shared__ __align__(16) unsigned char memory[];
  Exchange& exchange = reinterpret_cast<Exchange*>(memory)[threadIdx.x / THREADS];
  const int t = threadIdx.x % THREADS, own = (blockIdx.y * TRANSFORMS + threadIdx.x / THREADS) * 2;
  const long long first = (static_cast<long long>(own) * channels + blockIdx.x) * length;
  const long long second = first + static_cast<long long>(channels) * length;
  const Sequence real{own < batch ? u + first : nullptr, length, extended};
  const Sequence imaginary{own + 1 < batch ? u + second : nullptr, length, extended};

  float2 v[HELD];
#pragma unroll
  for (int q = 0; q < HELD; ++q) v[q] = {real.at(t + q * THREADS), imaginary.at(t + q * THREADS)};
  convolve(v, exchange, spectrum + static_cast<long long>(blockIdx.x) * PERIOD, roots, t);
#pragma unroll
  for (int q = 0; q < HELD; ++q) {
    const int i = t + q * THREADS;
    if (own < batch && i < length) y[first + i] = from_float<IN>(v[q].x);
    if (own + 1 < batch && i < length) y[second + i] = from_float<IN>(v[q].y);
  }
}
