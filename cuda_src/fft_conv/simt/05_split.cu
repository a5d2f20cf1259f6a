// y = ifft(fft(u) spectrum) of every sequence over PERIOD places, see ../sequence.cuh. u, y: (batch,
// channels, length); spectrum: (channels, PERIOD, 2), of the filters and divided by PERIOD; roots: exp(-2 pi
// i j / PERIOD).
//
// split: the frequencies s, s + PARTS, s + 2 PARTS and so on are computed by a transform of length PERIOD /
// PARTS. its input is a sum over the parts of the sequence: the elements at the same place in all parts,
// times roots of unity (decimation in frequency). these transforms run one after the other. the results of
// their inverses are multiplied by the conjugate roots and added up.
//
// what it gains: periods of 32,768 and 65,536 elements become possible. they do not fit into shared memory at
// once.
//
// what limits it: the results wait in registers, or in local memory. the sequence is read PARTS times.

#include "stockham.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    fft_conv_split(const IN* u, const float2* spectrum, const float2* roots, IN* y, int batch, int channels,
                   int length, int extended) {
  extern __shared__ __align__(16) unsigned char memory[];
  Exchange& exchange = reinterpret_cast<Exchange*>(memory)[threadIdx.x / THREADS];
  const int t = threadIdx.x % THREADS, own = (blockIdx.y * TRANSFORMS + threadIdx.x / THREADS) * 2;
  const long long first = (static_cast<long long>(own) * channels + blockIdx.x) * length;
  const long long second = first + static_cast<long long>(channels) * length;
  const Sequence real{own < batch ? u + first : nullptr, length, extended};
  const Sequence imaginary{own + 1 < batch ? u + second : nullptr, length, extended};
  spectrum += static_cast<long long>(blockIdx.x) * PERIOD;

  float2 sums[KEPT][HELD] = {};  // of the parts that the sequence reaches
#pragma unroll 1
  for (int s = 0; s < PARTS; ++s) {
    float2 v[HELD];
#pragma unroll
    for (int q = 0; q < HELD; ++q) {
      const int i = t + q * THREADS;
      v[q] = {0.f, 0.f};
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const int place = part * PLACES + i;
        if (part >= KEPT && !extended) break;  // nothing but zeros
        v[q] = v[q] + float2{real.at(place), imaginary.at(place)} * roots[part * s % PARTS * PLACES];
      }
      v[q] = v[q] * roots[i * s];
    }
    convolve<PARTS>(v, exchange, spectrum + s, roots, t);
#pragma unroll
    for (int q = 0; q < HELD; ++q) {
      v[q] = v[q] * conjugate(roots[(t + q * THREADS) * s]);
#pragma unroll
      for (int part = 0; part < KEPT; ++part)
        sums[part][q] = sums[part][q] + v[q] * conjugate(roots[part * s % PARTS * PLACES]);
    }
  }
#pragma unroll
  for (int q = 0; q < HELD; ++q)
#pragma unroll
    for (int part = 0; part < KEPT; ++part) {
      const int place = part * PLACES + t + q * THREADS;
      if (own < batch && place < length) y[first + place] = from_float<IN>(sums[part][q].x);
      if (own + 1 < batch && place < length) y[second + place] = from_float<IN>(sums[part][q].y);
    }
}
