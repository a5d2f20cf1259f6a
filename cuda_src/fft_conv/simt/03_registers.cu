// y = ifft(fft(u) spectrum) of every sequence over PERIOD places, see ../sequence.cuh. u, y: (batch,
// channels, length); spectrum: (channels, PERIOD, 2), of the filters and divided by PERIOD; roots: exp(-2 pi
// i j / PERIOD).
//
// registers: a thread holds 16 elements. so radix-16 butterflies need no memory, and four radix-2 steps
// become one step. the last butterflies of the transform and the first ones of the inverse work on the same
// elements. so between them the product with the spectrum is computed in registers.
//
// what it gains: a quarter of the passes through shared memory, and a quarter of the barriers.
//
// what limits it: real numbers are transformed as complex ones, so half of the work is for zeros.

#include "stockham.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    fft_conv_registers(const IN* u, const float2* spectrum, const float2* roots, IN* y, int batch,
                       int channels, int length, int extended) {
  extern __shared__ __align__(16) unsigned char memory[];
  Exchange& exchange = reinterpret_cast<Exchange*>(memory)[threadIdx.x / THREADS];
  const int t = threadIdx.x % THREADS, own = blockIdx.y * TRANSFORMS + threadIdx.x / THREADS;
  const long long first = (static_cast<long long>(own) * channels + blockIdx.x) * length;
  const Sequence sequence{own < batch ? u + first : nullptr, length, extended};

  float2 v[HELD];
#pragma unroll
  for (int q = 0; q < HELD; ++q) v[q] = {sequence.at(t + q * THREADS), 0.f};
  convolve(v, exchange, spectrum + static_cast<long long>(blockIdx.x) * PERIOD, roots, t);
#pragma unroll
  for (int q = 0; q < HELD; ++q) {
    const int i = t + q * THREADS;
    if (own < batch && i < length) y[first + i] = from_float<IN>(v[q].x);
  }
}
